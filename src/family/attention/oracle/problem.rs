//! One test case: the shape of an attention problem, its memory layout (computed by `memory_layout`), and the contents
//! of its tensors.

use super::{descale::Descales, memory_layout::Side};
use crate::{
    check::Number,
    family::attention::{
        CallOptions, DeclaredCall, DeclaredRule, Mask, Point, Score,
        abi::AttentionFeatures,
        features::{Additions, CallHead, FEATURES, rooms},
    },
};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::fmt;

/// Memory layouts of Q, K, V and O. The four tensors get different strides wherever the layout allows, so that a kernel
/// that confuses two tensors' strides is caught.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// Tokens outside heads, no gaps: (batch, seqlen, heads, `head_dim`).
    Bshd,
    /// Heads outside tokens, no gaps: (batch, heads, seqlen, `head_dim`).
    Bhsd,
    /// Gaps of multiples of 16 bytes after every head, row and batch entry.
    Padded,
    /// Gaps and a start that are not multiples of 16 bytes.
    Unaligned,
    /// All multiples of 16 bytes except one part of one tensor (Q, K, V, O, dO, dQ, dK, dV, QV = 0 .. 8): a launcher
    /// that does not check it takes the fast path and faults.
    UnalignedPart(usize, Part),
    /// The row stride is negative: tokens are stored in reverse order.
    Reversed,
    /// Reversed for one tensor only (numbered as above).
    ReversedTensor(usize),
}

/// Tensor names, indexed by tensor number.
const TENSORS: [&str; 9] = ["q", "k", "v", "o", "do", "dq", "dk", "dv", "qv"];

/// Parts of a tensor's layout that can be aligned or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The address of the first element.
    Start,
    /// The stride of heads.
    Head,
    /// The stride of rows.
    Row,
    /// The stride of batch entries.
    Batch,
}

impl fmt::Display for Layout {
    /// Writes the form used in names of cases.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bshd => f.write_str("bshd"),
            Self::Bhsd => f.write_str("bhsd"),
            Self::Padded => f.write_str("padded"),
            Self::Unaligned => f.write_str("unaligned"),
            Self::Reversed => f.write_str("reversed"),
            Self::ReversedTensor(tensor) => write!(f, "reversed-{}", TENSORS[*tensor]),
            Self::UnalignedPart(tensor, part) => {
                let part = match part {
                    Part::Start => "start",
                    Part::Head => "head",
                    Part::Row => "row",
                    Part::Batch => "batch",
                };
                write!(f, "unaligned-{}-{part}", TENSORS[*tensor])
            }
        }
    }
}

/// Ways to pass the lengths of the sequences of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lengths {
    /// All are equal.
    Uniform,
    /// `seqused_q` and `seqused_k`; every sequence has rows beyond its used ones.
    Used,
    /// `cu_seqlens_q` and `cu_seqlens_k`.
    Packed,
    /// Packed queries, and keys in batch slots with `seqused_k` used rows: serving with a key cache.
    PackedQuery,
    /// Packed keys, and queries in batch slots with `seqused_q` used rows: padded decoder states over packed encoder
    /// states.
    PackedKey,
    /// `cu_seqlens` and `seqused` of both sides: rows between the sequences belong to no sequence.
    PackedUsed,
}

impl Lengths {
    /// The nearest alternative without packed keys.
    #[must_use]
    pub fn without_packed_keys(self) -> Self {
        match self {
            Self::Uniform | Self::Used | Self::PackedQuery => self,
            Self::Packed | Self::PackedUsed => Self::PackedQuery,
            Self::PackedKey => Self::Used,
        }
    }

    /// The word used in case names; empty if all lengths are equal.
    pub fn word(self) -> &'static str {
        match self {
            Self::Uniform => "",
            Self::Used => " seqused",
            Self::Packed => " cu_seqlens",
            Self::PackedQuery => " cu_seqlens_q+seqused_k",
            Self::PackedKey => " cu_seqlens_k+seqused_q",
            Self::PackedUsed => " cu_seqlens+seqused",
        }
    }
}

/// Contents of Q, K and V.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inputs {
    /// Standard normal.
    Normal,
    /// One nonzero element per row, at an index that differs from row to row: any confusion of elements shows.
    OneHot,
    /// Every element of a head is the same: LSE depends on the number of visible keys.
    Constant,
    /// Q and K like [`Constant`](Self::Constant); every element of V is 448, the largest E4M3 number.
    Widest,
    /// Normal except for V, whose elements are between 1 and 2: sums grow with the keys, and so does the error of sums
    /// with few bits.
    Positive,
    /// -4, 0 or 4 in Q and K, so that logits are far apart, of both signs, and yet exact in 16 bits.
    Large,
    /// Logits rise along the keys.
    Rising,
    /// Logits far below zero: a key that does not exist, with logit 0, would outweigh all others.
    Low,
    /// Logits fall along the keys: a kernel that iterates from the last key to the first exceeds its maximum at every
    /// step.
    Falling,
    /// Logits of every other row rise along the keys and those of the others fall, by hundreds of powers of two in one
    /// tile: some rows of a warp exceed their maxima while the scores of others must not be rescaled.
    Crossing,
    /// A key in the middle has over nine tenths of each row's weight. It exceeds the keys at both ends, which a kernel
    /// sees first, by less than 2⁸: if the maximum is not updated, its weight is rounded.
    Overtaken,
}

impl Inputs {
    /// The word used in case names.
    pub fn word(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::OneHot => "one-hot",
            Self::Constant => "constant",
            Self::Widest => "widest",
            Self::Positive => "positive",
            Self::Large => "large",
            Self::Low => "low",
            Self::Rising => "rising",
            Self::Falling => "falling",
            Self::Crossing => "crossing",
            Self::Overtaken => "overtaken",
        }
    }
}

/// The factor on Q Kᵀ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// 1 / √`head_dim`.
    Usual,
    /// 0: every visible key counts the same.
    Zero,
    /// 1/4.
    Quarter,
    /// 1.
    One,
    /// This many thousandths.
    Thousandths(u32),
}

/// One test case, complete except for head dim, dtype and mask, which the variant fixes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Used rows of Q and of K of each sequence.
    pub sequences: Vec<(usize, usize)>,
    /// Query heads.
    pub heads: usize,
    /// Key heads; divides `heads`.
    pub heads_k: usize,
    /// Memory layout.
    pub layout: Layout,
    /// Way of passing lengths.
    pub lengths: Lengths,
    /// Contents of the tensors.
    pub inputs: Inputs,
    /// Factor on Q Kᵀ.
    pub scale: Scale,
    /// True if the kernel gets a pointer for the log-sum-exp.
    pub lse: bool,
    /// The factors, if Q, K and V, or only K and V, are FP8.
    pub fp8: Option<Descales>,
    /// Other masks and scores.
    pub options: CallOptions,
    /// Number of repetitions of `sequences`, counting the first.
    pub times: usize,
    /// Distribution of the lengths of `sequences`, if they were drawn.
    pub drawn: Option<DrawnLengths>,
    /// Multiprocessors of an emulated device, if the case depends on them.
    pub multiprocessors: Option<usize>,
}

/// Lengths of many sequences, drawn evenly from a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DrawnLengths {
    /// The shortest.
    pub low: usize,
    /// The longest.
    pub high: usize,
    /// Seed.
    pub seed: u64,
}

impl Problem {
    /// A plain problem: one sequence, contiguous, normal inputs.
    pub fn new(sequences: &[(usize, usize)], heads: usize, heads_k: usize) -> Self {
        assert!(heads_k > 0 && heads.is_multiple_of(heads_k), "query heads are shared out evenly");
        Self {
            sequences: sequences.to_vec(),
            heads,
            heads_k,
            layout: Layout::Bshd,
            lengths: Lengths::Uniform,
            inputs: Inputs::Normal,
            scale: Scale::Usual,
            lse: true,
            fp8: None,
            options: CallOptions::default(),
            times: 1,
            drawn: None,
            multiprocessors: None,
        }
    }

    /// An encoder's problem: packed sequences that attend to themselves, with lengths drawn from a range.
    pub fn encoder(sequences: usize, low: usize, high: usize, heads: usize, heads_k: usize) -> Self {
        let drawn = DrawnLengths { low, high, seed: sequences as u64 };
        let mut rng = ChaCha8Rng::seed_from_u64(drawn.seed);
        let lengths: Vec<_> = (0..sequences).map(|_| rng.random_range(low..=high)).map(|rows| (rows, rows)).collect();
        Self { drawn: Some(drawn), ..Self::new(&lengths, heads, heads_k).lengths(Lengths::Packed) }
    }

    /// This problem with its list of sequences repeated several times.
    #[must_use]
    pub fn repeated(self, times: usize) -> Self {
        Self { sequences: self.sequences.repeat(times), times: self.times * times, ..self }
    }

    /// This problem on an emulated device of this many multiprocessors.
    #[must_use]
    pub fn on(self, multiprocessors: usize) -> Self {
        Self { multiprocessors: Some(multiprocessors), ..self }
    }

    /// This problem with another layout.
    #[must_use]
    pub fn layout(self, layout: Layout) -> Self {
        Self { layout, ..self }
    }

    /// This problem with another way of passing lengths.
    #[must_use]
    pub fn lengths(self, lengths: Lengths) -> Self {
        Self { lengths, ..self }
    }

    /// This problem with other contents and scale.
    #[must_use]
    pub fn inputs(self, inputs: Inputs, scale: Scale) -> Self {
        Self { inputs, scale, ..self }
    }

    /// This problem with a NULL pointer for the log-sum-exp.
    #[must_use]
    pub fn without_lse(self) -> Self {
        Self { lse: false, ..self }
    }

    /// This problem in FP8.
    #[must_use]
    pub fn in_fp8(self, descales: Descales) -> Self {
        Self { fp8: Some(descales), ..self }
    }

    /// This problem with other masks and scores.
    #[must_use]
    pub fn asking(self, options: CallOptions) -> Self {
        Self { options, ..self }
    }

    /// This problem with the declared score of the kernel, if it has one and the problem has no declared numbers yet,
    /// and with the options that the kernel's features require, such as pages for a kernel that reads pages: it serves
    /// no other calls.
    #[must_use]
    pub fn for_kernel(mut self, kernel: Point) -> Self {
        self.options.declared = self.options.declared.or(kernel.features.score().map(DeclaredCall::usual));
        rooms(kernel.features).for_each(|room| room.fit(&mut self, kernel));
        self
    }

    /// The type of tensor number `tensor` (Q, K, V, O) if that of Q is `number`.
    pub fn number_of(&self, tensor: usize, number: Number) -> Number {
        match self.options.kv {
            Some(format) if matches!(tensor, 1 | 2) => format.number(),
            _ if tensor == 3 => number.of_output(),
            _ => number,
        }
    }

    /// True if tensor number `tensor` (Q, K, V, O) has one-byte elements.
    pub fn is_of_bytes(&self, tensor: usize) -> bool {
        match self.options.kv {
            Some(_) => matches!(tensor, 1 | 2),
            None => self.fp8.is_some() && tensor < 3,
        }
    }

    /// The mask of a sequence's query head.
    pub fn mask(&self, causal: bool, sequence: usize, head: usize) -> Mask {
        let (queries, keys) = self.sequences[sequence];
        Mask::new(causal, queries, keys)
            .with(self.options)
            .declared(self.declared(sequence, head))
            .adding(Additions::of(self.call_head(sequence, head)))
    }

    /// A query head of one sequence, with the options of the call.
    pub fn call_head(&self, sequence: usize, head: usize) -> CallHead {
        CallHead { options: self.options, sequence, head, heads: self.heads }
    }

    /// The declared score of a sequence's query head.
    fn declared(&self, sequence: usize, head: usize) -> Option<DeclaredRule> {
        let (queries, keys) = self.sequences[sequence];
        self.options.declared.map(|call| call.rule(sequence, head, queries, keys))
    }

    /// The score of a sequence's query head, given the factor on its products.
    pub fn score(&self, scale: f64, sequence: usize, head: usize) -> Score {
        let position = self.mask(false, sequence, head).position(0);
        let slope = f64::from(self.options.slope(sequence, head));
        Score::scaled(scale)
            .capped(f64::from(self.options.softcap()))
            .sloped(slope, position)
            .adding(Additions::of(self.call_head(sequence, head)))
            .declared(self.declared(sequence, head))
    }

    /// Query heads, rows and columns of all scores: the bounds that a call passes.
    pub fn score_extents(&self) -> [usize; 3] {
        [self.heads, self.rows(Side::Query).bound, self.rows(Side::Key).bound]
    }

    /// Numbers of masks and scores, for Q of type `number`.
    pub fn feature_params(&self, number: Number) -> AttentionFeatures {
        let mut params = self.options.params(self.heads);
        for room in FEATURES {
            room.enter_shape(self, number, &mut params);
        }
        params
    }

    /// The factors of Q, K and V for a sequence and key head. The factor of a non-FP8 Q is passed too, and not read.
    pub fn factors(&self, sequence: usize, head_k: usize) -> [f32; 3] {
        let read = |tensor| tensor > 0 || self.options.kv.is_none();
        let factor = |tensor| self.fp8.filter(|_| read(tensor)).map_or(1.0, |descales| descales.factor(tensor, sequence, head_k));
        std::array::from_fn(factor)
    }

    /// The stable name of the case for a variant's mask: `b2 h8/2 sq113 sk203 causal bshd normal`.
    pub fn name(&self, causal: bool) -> String {
        let list = |pick: fn(&(usize, usize)) -> usize| {
            let all: Vec<usize> = self.sequences[..self.sequences.len() / self.times].iter().map(pick).collect();
            let uniform = self.lengths == Lengths::Uniform;
            let shown = if uniform { &all[..all.len().min(1)] } else { &all[..] };
            shown.iter().map(usize::to_string).collect::<Vec<_>>().join("+")
        };
        let lengths = match self.drawn {
            Some(DrawnLengths { low, high, seed }) => format!("s{low}..{high}#{seed}"),
            None => format!("sq{} sk{}", list(|s| s.0), list(|s| s.1)),
        };
        let times = if self.times > 1 { format!(" x{}", self.times) } else { String::new() };
        let mut name = format!("b{} h{}/{} {lengths}{times}", self.sequences.len(), self.heads, self.heads_k);
        name += " ";
        name += Mask::word(causal);
        name += self.lengths.word();
        name = format!("{name} {} {}{}", self.layout, self.inputs.word(), self.scale);
        if !self.lse {
            name += " no-lse";
        }
        name += self.fp8.map_or("", Descales::word);
        name += &self.options.words();
        name + &self.multiprocessors.map_or_else(String::new, |count| format!(" on{count}"))
    }

    /// The softmax scale for a head dim, as the kernel receives it.
    pub fn softmax_scale(&self, head_dim: usize) -> f32 {
        match self.scale {
            Scale::Usual => (1.0 / (head_dim as f64).sqrt()) as f32,
            Scale::Zero => 0.0,
            Scale::Quarter => 0.25,
            Scale::One => 1.0,
            Scale::Thousandths(number) => (f64::from(number) / 1000.0) as f32,
        }
    }
}

impl fmt::Display for Scale {
    /// The word used in case names; empty for the usual scale.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usual => Ok(()),
            Self::Zero => f.write_str(" scale0"),
            Self::Quarter => f.write_str(" scale1/4"),
            Self::One => f.write_str(" scale1"),
            Self::Thousandths(number) => write!(f, " scale{number}/1000"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_tells_the_whole_case() {
        let plain = Problem::new(&[(113, 203), (113, 203)], 8, 2);
        assert_eq!(plain.name(true), "b2 h8/2 sq113 sk203 causal bshd normal");
        let packed = Problem::new(&[(1, 203), (64, 17)], 2, 2).lengths(Lengths::Packed).inputs(Inputs::Constant, Scale::Zero);
        assert_eq!(packed.name(false), "b2 h2/2 sq1+64 sk203+17 full cu_seqlens bshd constant scale0");
        let repeated = Problem::new(&[(3, 5), (0, 2)], 1, 1).lengths(Lengths::Packed).repeated(3).on(16);
        assert_eq!(repeated.name(true), "b6 h1/1 sq3+0 sk5+2 x3 causal cu_seqlens bshd normal on16");
        let drawn = Problem::encoder(64, 4, 128, 12, 4);
        assert_eq!(drawn.name(false), "b64 h12/4 s4..128#64 full cu_seqlens bshd normal");
        assert!(drawn.sequences.iter().all(|&(q, k)| q == k && (4..=128).contains(&q)));
        let fp8 = Problem::new(&[(5, 7)], 1, 1).in_fp8(Descales::ByHead);
        assert_eq!(fp8.name(false), "b1 h1/1 sq5 sk7 full bshd normal descale-by-head");
    }
}
