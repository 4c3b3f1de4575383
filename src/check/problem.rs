//! One test case: the shape of an attention problem, how its tensors lie in memory, and what is in them.

use crate::device::Strides;
use std::fmt;

/// How Q, K, V and O lie in memory. The four tensors get different strides wherever the layout leaves that open, so
/// that a kernel that takes one tensor's stride for another's is caught.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// Tokens outside heads, no gaps: (batch, seqlen, heads, `head_dim`).
    Bshd,
    /// Heads outside tokens, no gaps: (batch, heads, seqlen, `head_dim`).
    Bhsd,
    /// Gaps of multiples of 16 bytes after every head, row and batch entry.
    Padded,
    /// Gaps and a start that are no multiples of 16 bytes.
    Unaligned,
    /// All multiples of 16 bytes but for one part of one tensor (Q, K, V, O = 0, 1, 2, 3): a launcher that does not
    /// look at it takes the fast path and faults.
    UnalignedPart(usize, Part),
    /// The row stride is negative: tokens lie in memory from the last to the first.
    Reversed,
}

/// What of a tensor's place can be aligned or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Its first element.
    Start,
    /// The stride of heads.
    Head,
    /// The stride of rows.
    Row,
    /// The stride of batch entries.
    Batch,
}

impl fmt::Display for Layout {
    /// As the names of cases say it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bshd => f.write_str("bshd"),
            Self::Bhsd => f.write_str("bhsd"),
            Self::Padded => f.write_str("padded"),
            Self::Unaligned => f.write_str("unaligned"),
            Self::Reversed => f.write_str("reversed"),
            Self::UnalignedPart(tensor, part) => {
                let part = match part {
                    Part::Start => "start",
                    Part::Head => "head",
                    Part::Row => "row",
                    Part::Batch => "batch",
                };
                write!(f, "unaligned-{}-{part}", ["q", "k", "v", "o"][*tensor])
            }
        }
    }
}

/// How the lengths of the sequences of a batch reach the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lengths {
    /// All are equal.
    Uniform,
    /// `seqused_q` and `seqused_k`; every sequence has rows beyond its used ones.
    Used,
    /// `cu_seqlens_q` and `cu_seqlens_k`.
    Packed,
    /// Packed queries, and keys in slots of a batch of which `seqused_k` rows are used: serving with a key cache.
    PackedQuery,
}

/// What Q, K and V hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inputs {
    /// Standard normal.
    Normal,
    /// One element of each row is not zero, and which one differs from row to row: any element taken for another shows.
    OneHot,
    /// Every element of a head is the same: LSE counts the visible keys.
    Constant,
    /// -4, 0 or 4 in Q and K, so that logits are far apart, of both signs, and yet exact in 16 bits.
    Large,
    /// Logits rise along the keys.
    Rising,
    /// Logits fall along the keys: a kernel that walks them from the last to the first outgrows its maximum each step.
    Falling,
}

impl Inputs {
    fn word(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::OneHot => "one-hot",
            Self::Constant => "constant",
            Self::Large => "large",
            Self::Rising => "rising",
            Self::Falling => "falling",
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
}

/// One test case, complete but for head dim, dtype and mask, which the variant fixes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Rows of Q and of K of each sequence that take part.
    pub sequences: Vec<(usize, usize)>,
    /// Query heads.
    pub heads: usize,
    /// Key heads; divides `heads`.
    pub heads_k: usize,
    /// How tensors lie in memory.
    pub layout: Layout,
    /// How lengths are given.
    pub lengths: Lengths,
    /// What the tensors hold.
    pub inputs: Inputs,
    /// Factor on Q Kᵀ.
    pub scale: Scale,
    /// Whether the kernel is given a place for the log-sum-exp.
    pub lse: bool,
}

/// Which of the two row axes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Rows of Q, O and LSE.
    Query,
    /// Rows of K and V.
    Key,
}

/// Where the rows of one side lie, before strides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowPlan {
    /// First row of each sequence along the row axis; all 0 unless packed.
    pub first: Vec<usize>,
    /// Rows along the row axis of one batch entry; of all sequences, where packed.
    pub rows: usize,
    /// Batch entries in memory; 1 where packed.
    pub entries: usize,
    /// `seqlen_q` or `seqlen_k` of the call: the rows of an entry, or the longest sequence where packed.
    pub bound: usize,
}

/// One tensor's place in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placement {
    /// Element strides.
    pub strides: Strides,
    /// Elements from the first to the last, gaps included.
    pub span: usize,
    /// Elements before element (0, 0, 0).
    pub origin: usize,
}

/// Rows in memory behind the used ones of every sequence, where `seqused` is given.
const UNUSED_ROWS: usize = 3;

/// What stands in place of a stride that the kernel must not read.
const NOT_READ: i64 = 0x5bad_5bad;

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
        }
    }

    /// The same with another layout.
    #[must_use]
    pub fn layout(self, layout: Layout) -> Self {
        Self { layout, ..self }
    }

    /// The same with lengths given in another way.
    #[must_use]
    pub fn lengths(self, lengths: Lengths) -> Self {
        Self { lengths, ..self }
    }

    /// The same with other contents and scale.
    #[must_use]
    pub fn inputs(self, inputs: Inputs, scale: Scale) -> Self {
        Self { inputs, scale, ..self }
    }

    /// The same without a place for the log-sum-exp.
    #[must_use]
    pub fn without_lse(self) -> Self {
        Self { lse: false, ..self }
    }

    /// The stable name of the case for a variant's mask: `b2 h8/2 sq113 sk203 causal bshd normal`.
    pub fn name(&self, causal: bool) -> String {
        let list = |pick: fn(&(usize, usize)) -> usize| {
            let all: Vec<usize> = self.sequences.iter().map(pick).collect();
            let uniform = self.lengths == Lengths::Uniform;
            let shown = if uniform { &all[..all.len().min(1)] } else { &all[..] };
            shown.iter().map(usize::to_string).collect::<Vec<_>>().join("+")
        };
        let mut name =
            format!("b{} h{}/{} sq{} sk{}", self.sequences.len(), self.heads, self.heads_k, list(|s| s.0), list(|s| s.1));
        name += if causal { " causal" } else { " full" };
        name += match self.lengths {
            Lengths::Uniform => "",
            Lengths::Used => " seqused",
            Lengths::Packed => " cu_seqlens",
            Lengths::PackedQuery => " cu_seqlens_q+seqused_k",
        };
        name = format!("{name} {} {}{}", self.layout, self.inputs.word(), self.scale);
        if !self.lse {
            name += " no-lse";
        }
        name
    }

    /// The softmax scale for a head dim, as the kernel receives it.
    pub fn softmax_scale(&self, head_dim: usize) -> f32 {
        match self.scale {
            Scale::Usual => (1.0 / (head_dim as f64).sqrt()) as f32,
            Scale::Zero => 0.0,
            Scale::Quarter => 0.25,
            Scale::One => 1.0,
        }
    }

    /// Whether `side` is given by `cu_seqlens`.
    pub fn is_packed(&self, side: Side) -> bool {
        match self.lengths {
            Lengths::Uniform | Lengths::Used => false,
            Lengths::Packed => true,
            Lengths::PackedQuery => side == Side::Query,
        }
    }

    /// Whether `side` is given by `seqused`.
    pub fn is_used(&self, side: Side) -> bool {
        match self.lengths {
            Lengths::Uniform | Lengths::Packed => false,
            Lengths::Used => true,
            Lengths::PackedQuery => side == Side::Key,
        }
    }

    /// Rows of each sequence of `side` that take part.
    pub fn used_rows(&self, side: Side) -> impl Iterator<Item = usize> {
        self.sequences.iter().map(move |&(q, k)| if side == Side::Query { q } else { k })
    }

    /// Where the rows of `side` lie.
    pub fn rows(&self, side: Side) -> RowPlan {
        let longest = self.used_rows(side).max().unwrap_or(0);
        if self.is_packed(side) {
            let mut total = 0;
            let mut first = Vec::with_capacity(self.sequences.len());
            for rows in self.used_rows(side) {
                first.push(total);
                total += rows;
            }
            return RowPlan { first, rows: total, entries: 1, bound: longest };
        }
        let rows = if self.is_used(side) { longest + UNUSED_ROWS } else { longest };
        RowPlan { first: vec![0; self.sequences.len()], rows, entries: self.sequences.len(), bound: rows }
    }

    /// The place of tensor number `tensor` (Q, K, V, O = 0, 1, 2, 3), which has `heads` heads on `side`.
    pub fn place(&self, tensor: usize, side: Side, heads: usize, head_dim: usize) -> Placement {
        let plan = self.rows(side);
        let (rows, entries, number) = (plan.rows as i64, plan.entries as i64, tensor as i64);
        let (heads, dim) = (heads as i64, head_dim as i64);
        let (mut batch, mut row, head, mut lead);
        match self.layout {
            Layout::Bshd | Layout::Reversed => (head, row, batch, lead) = (dim, heads * dim, rows * heads * dim, 0),
            Layout::Bhsd => (head, row, batch, lead) = (rows * dim, dim, rows * heads * dim, 0),
            Layout::Padded => {
                head = dim + 8 * (number % 2);
                row = heads * head + 8 * (number + 1);
                batch = rows * row + 64;
                lead = 8 * number;
            }
            Layout::UnalignedPart(which, part) => {
                let odd = |p| i64::from(which == tensor && part == p);
                head = dim + odd(Part::Head);
                row = (heads as u64 * head as u64).next_multiple_of(8) as i64 + odd(Part::Row);
                batch = (rows as u64 * row as u64).next_multiple_of(8) as i64 + odd(Part::Batch);
                lead = odd(Part::Start);
            }
            Layout::Unaligned => {
                head = dim + 1 + 2 * number;
                row = heads * head + 1 + number;
                batch = rows * row + 3;
                lead = 1;
            }
        }
        if self.layout == Layout::Reversed && rows > 0 {
            lead = (rows - 1) * row;
            row = -row;
        }
        let empty = rows == 0 || entries == 0;
        let last = if empty { 0 } else { (entries - 1) * batch + ((rows - 1) * row).max(0) + (heads - 1) * head + dim };
        if self.is_packed(side) {
            batch = NOT_READ;
        }
        Placement { strides: Strides { batch, row, head }, span: (lead + last) as usize, origin: lead as usize }
    }

    /// The place of the log-sum-exp, whose rows are contiguous; the strides hold batch and head.
    pub fn place_lse(&self) -> Placement {
        let plan = self.rows(Side::Query);
        let gap = match self.layout {
            Layout::Padded | Layout::Unaligned => 5,
            _ => 0,
        };
        let head = plan.rows + gap;
        let batch = self.heads * head + gap;
        let span = batch * plan.entries;
        let batch = if self.is_packed(Side::Query) { NOT_READ } else { batch as i64 };
        Placement { strides: Strides { batch, row: 1, head: head as i64 }, span, origin: 0 }
    }

    /// Offset of element 0 of a row, from element (0, 0, 0).
    pub fn offset(&self, placement: &Placement, side: Side, plan: &RowPlan, sequence: usize, row: usize, head: usize) -> i64 {
        let strides = placement.strides;
        let batch = if self.is_packed(side) { 0 } else { sequence as i64 * strides.batch };
        batch + (plan.first[sequence] + row) as i64 * strides.row + head as i64 * strides.head
    }
}

impl fmt::Display for Scale {
    /// What a case's name says of it: nothing for the usual one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Usual => "",
            Self::Zero => " scale0",
            Self::Quarter => " scale1/4",
            Self::One => " scale1",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    const LAYOUTS: [Layout; 9] = [
        Layout::Bshd,
        Layout::Bhsd,
        Layout::Padded,
        Layout::Unaligned,
        Layout::Reversed,
        Layout::UnalignedPart(3, Part::Start),
        Layout::UnalignedPart(3, Part::Head),
        Layout::UnalignedPart(3, Part::Row),
        Layout::UnalignedPart(3, Part::Batch),
    ];

    #[test]
    fn a_name_tells_the_whole_case() {
        let plain = Problem::new(&[(113, 203), (113, 203)], 8, 2);
        assert_eq!(plain.name(true), "b2 h8/2 sq113 sk203 causal bshd normal");
        let packed = Problem::new(&[(1, 203), (64, 17)], 2, 2).lengths(Lengths::Packed).inputs(Inputs::Constant, Scale::Zero);
        assert_eq!(packed.name(false), "b2 h2/2 sq1+64 sk203+17 full cu_seqlens bshd constant scale0");
    }

    #[test]
    fn no_two_elements_share_a_place_and_none_lies_outside_the_span() {
        for layout in LAYOUTS {
            for lengths in [Lengths::Uniform, Lengths::Used, Lengths::Packed, Lengths::PackedQuery] {
                let sequences = if lengths == Lengths::Uniform { [(5, 5); 3] } else { [(5, 2), (0, 5), (3, 1)] };
                let problem = Problem::new(&sequences, 2, 2).layout(layout).lengths(lengths);
                for side in [Side::Query, Side::Key] {
                    let placement = problem.place(3, side, 2, 16);
                    let plan = problem.rows(side);
                    let mut seen = HashSet::new();
                    for (sequence, rows) in problem.used_rows(side).enumerate() {
                        for (row, head) in itertools::iproduct!(0..rows, 0..2) {
                            let offset = problem.offset(&placement, side, &plan, sequence, row, head);
                            for element in offset..offset + 16 {
                                assert!(seen.insert(element), "{layout:?} {lengths:?}: {element} twice");
                                let index = element + placement.origin as i64;
                                assert!((0..placement.span as i64).contains(&index), "{layout:?} {lengths:?}: {index}");
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn exactly_one_part_of_one_tensor_is_unaligned_where_asked() {
        for (which, part) in itertools::iproduct!(0..4, [Part::Start, Part::Head, Part::Row, Part::Batch]) {
            let problem = Problem::new(&[(5, 7); 2], 2, 1).layout(Layout::UnalignedPart(which, part));
            for tensor in 0..4 {
                let Placement { strides, origin, .. } = problem.place(tensor, Side::Key, 2, 72);
                let odd = [origin as i64, strides.head, strides.row, strides.batch].map(|n| n % 8 != 0);
                let expected = [Part::Start, Part::Head, Part::Row, Part::Batch].map(|p| which == tensor && part == p);
                assert_eq!(odd, expected, "tensor {tensor}, asked {which} {part:?}");
            }
        }
    }

    #[test]
    fn an_unaligned_layout_keeps_no_row_on_a_16_byte_boundary_for_every_tensor() {
        let problem = Problem::new(&[(5, 7)], 2, 1).layout(Layout::Unaligned);
        for tensor in 0..4 {
            let placement = problem.place(tensor, Side::Query, 2, 64);
            assert_ne!(placement.origin % 8, 0);
        }
    }
}
