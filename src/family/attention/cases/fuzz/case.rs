//! A complete call of the dispatcher, as drawn by a fuzzing run. Its name is a sequence of words in any order; words of
//! default values are omitted.
//!
//! `fwd hdim208 bf16 b2 h3/3 sq15+88 sk5+15 causal cu_seqlens bshd normal no-workspace seed7`

use super::drawn::DrawnCall;
use crate::{
    device::Order,
    family::attention::{
        self, CallOptions, Point,
        features::{FEATURES, number_after},
        oracle::{
            descale::Descales,
            problem::{DrawnLengths, Inputs, Layout, Lengths, Part, Problem, Scale},
        },
    },
    kernel::Kind,
    kernel::{Dtype, HeadDim, ReadHeadDimError},
};
use std::{fmt, str::FromStr};

/// The function of `kgen.h` to call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Entry {
    /// `kgen_fwd`.
    Fwd,
    /// `kgen_bwd`.
    Bwd,
}

impl Entry {
    /// `fwd` or `bwd`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Fwd => "fwd",
            Self::Bwd => "bwd",
        }
    }

    /// The kernel kind used if no other is better.
    pub fn kind(self) -> attention::Kind {
        match self {
            Self::Fwd => attention::Kind::Fwd,
            Self::Bwd => attention::Kind::Bwd,
        }
    }

    /// The function that has this word.
    pub fn function(self) -> &'static str {
        match self {
            Self::Fwd => "kgen_fwd",
            Self::Bwd => "kgen_bwd",
        }
    }
}

/// Workspace passed to the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workspace {
    /// The size that the library requests.
    CallOptions,
    /// NULL.
    None,
    /// Slightly less than requested.
    Short,
}

impl Workspace {
    const ALL: [Self; 3] = [Self::CallOptions, Self::None, Self::Short];

    fn word(self) -> &'static str {
        match self {
            Self::CallOptions => "",
            Self::None => "no-workspace",
            Self::Short => "short-workspace",
        }
    }
}

/// Merging of partial results of splits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Merging {
    /// The library's choice, without counters.
    Free,
    /// The library's choice, with counters for every row tile.
    Counted,
    /// The library's choice, with a single counter.
    OneCounter,
    /// `fwd_combine`, by `KGEN_FLAG_MERGE_BY_LAUNCH`, with unused counters.
    Launch,
    /// The last block of each row tile, by `KGEN_FLAG_MERGE_BY_LAST_BLOCK`, with counters.
    LastBlock,
}

impl Merging {
    const ALL: [Self; 5] = [Self::Free, Self::Counted, Self::OneCounter, Self::Launch, Self::LastBlock];

    fn word(self) -> &'static str {
        match self {
            Self::Free => "",
            Self::Counted => "arrivals",
            Self::OneCounter => "one-arrival",
            Self::Launch => "merge-by-launch",
            Self::LastBlock => "merge-by-last-block",
        }
    }

    /// `KGEN_FLAG_MERGE_*`.
    pub fn flags(self) -> u32 {
        match self {
            Self::Free | Self::Counted | Self::OneCounter => 0,
            Self::Launch => 0x4000,
            Self::LastBlock => 0x8000,
        }
    }
}

/// A call.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "switches of a call, each independent of the others")]
pub struct FuzzCase {
    /// The function.
    pub entry: Entry,
    /// Head dim of Q and K, and of V and O.
    pub head_dim: HeadDim,
    /// Element type of Q, K and V; with FP8 the problem has descales.
    pub dtype: Dtype,
    /// Causal mask.
    pub causal: bool,
    /// Shapes, layout and contents.
    pub problem: Problem,
    /// The workspace.
    pub workspace: Workspace,
    /// `num_splits`; 0: the library chooses. Forward only.
    pub splits: u32,
    /// Merging of partial results. Forward only.
    pub merging: Merging,
    /// True if the total rows of varlen tensors are passed (`total_q`, `total_k`).
    pub totals: bool,
    /// True if the deterministic flag is set. Backward only.
    pub deterministic: bool,
    /// True if dLSE is passed. Backward only.
    pub dlse: bool,
    /// Repeats the call, on the emulator with this order of threads, and compares the bits.
    pub again: Option<Order>,
    /// Seed of the inputs and of the emulator's thread order.
    pub seed: u64,
    /// Compute capability of the emulated device, `major * 10 + minor`; ignored on a GPU. The problem has the number of
    /// multiprocessors.
    pub capability: Option<u32>,
}

/// Maximum number of splits in `kgen.h`.
const MOST_SPLITS: u32 = 256;

/// Maximum rows over all sequences and heads of a case, limited by the memory of a test.
const MOST_ELEMENTS: usize = 1 << 30;

/// Maximum number of sequences of a case.
const MOST_SEQUENCES: usize = 1 << 16;

impl FuzzCase {
    /// True if a kernel can compute it, regardless of device and kind.
    pub fn is_served_by(&self, kernel: Point) -> bool {
        (kernel.head_dim, kernel.dtype) == (self.head_dim, self.dtype) && self.problem.options.is_served_by(self.causal, kernel)
    }

    /// The reason why the call is invalid, if it is.
    pub fn complaint(&self) -> Option<String> {
        let Self { entry, dtype, problem, splits, deterministic, .. } = self;
        let uniform = problem.sequences.windows(2).all(|pair| pair[0] == pair[1]);
        let largest_tensor = if *entry == Entry::Fwd { 4 } else { 8 };
        let has_tensor = |tensor| tensor < largest_tensor || (tensor == 8 && problem.options.qv);
        let of_no_tensor = matches!(problem.layout, Layout::UnalignedPart(tensor, _) if !has_tensor(tensor));
        let rows: usize = problem.sequences.iter().map(|&(q, k)| q.saturating_add(k)).fold(0, usize::saturating_add);
        let elements = rows.saturating_mul(problem.heads).saturating_mul(self.head_dim.wider() as usize);
        let checks = [
            (problem.sequences.is_empty(), "there is no sequence".to_owned()),
            (
                problem.heads_k == 0 || problem.heads == 0 || !problem.heads.is_multiple_of(problem.heads_k.max(1)),
                format!("{} query heads are no multiple of {} key heads", problem.heads, problem.heads_k),
            ),
            (problem.multiprocessors == Some(0), "a device has no multiprocessor".to_owned()),
            (elements > MOST_ELEMENTS, format!("{elements} elements are more than {MOST_ELEMENTS}")),
            (
                problem.lengths == Lengths::Uniform && !uniform,
                "sequences of unequal lengths need `cu_seqlens` or `seqused`".to_owned(),
            ),
            (of_no_tensor, format!("`{}` names a tensor that `{}` has not", problem.layout, entry.word())),
            (
                (*dtype == Dtype::Fp8 || problem.options.kv.is_some()) != problem.fp8.is_some(),
                "descales belong to fp8, or to K and V in it".to_owned(),
            ),
            (*dtype == Dtype::Fp8 && problem.options.kv.is_some(), "queries in fp8 have K and V of their own type".to_owned()),
            (*splits > MOST_SPLITS, format!("{splits} splits are more than {MOST_SPLITS}")),
            (*entry == Entry::Bwd && *splits > 0, "`bwd` has no splits".to_owned()),
            (*entry == Entry::Bwd && self.merging != Merging::Free, "`bwd` merges nothing".to_owned()),
            (*entry == Entry::Bwd && !problem.lse, "`bwd` needs the log-sum-exp".to_owned()),
            (*entry == Entry::Bwd && *dtype == Dtype::Fp8, "`bwd` has no fp8".to_owned()),
            (*entry == Entry::Fwd && *deterministic, "`deterministic` belongs to `bwd`".to_owned()),
            (*entry == Entry::Fwd && self.dlse, "`dlse` belongs to `bwd`".to_owned()),
        ];
        let head_dim = self.head_dim.checked().err().map(|error| error.to_string());
        let of_features = || FEATURES.iter().find_map(|room| room.complaint(self));
        head_dim.or_else(of_features).or_else(|| checks.into_iter().find_map(|(wrong, why)| wrong.then_some(why)))
    }
}

impl fmt::Display for FuzzCase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { entry, head_dim, dtype, causal, problem, .. } = self;
        write!(f, "{} hdim{head_dim} {dtype} {}", entry.word(), problem.name(*causal))?;
        if self.splits > 0 {
            write!(f, " splits{}", self.splits)?;
        }
        let flags = [
            (self.workspace != Workspace::CallOptions, self.workspace.word()),
            (self.merging != Merging::Free, self.merging.word()),
            (self.totals, "totals"),
            (self.deterministic, "deterministic"),
            (self.dlse, "dlse"),
        ];
        for (_, word) in flags.iter().filter(|(set, _)| *set) {
            write!(f, " {word}")?;
        }
        match self.again {
            None => {}
            Some(Order::Shuffled) => f.write_str(" twice")?,
            Some(Order::Priorities { depth }) => write!(f, " priorities:{depth}")?,
        }
        if let Some(capability) = self.capability {
            write!(f, " sm{capability}")?;
        }
        write!(f, " seed{}", self.seed)
    }
}

impl FromStr for FuzzCase {
    type Err = String;

    /// Parses a name. Words may be in any order, each at most once.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut words = Words(text.split_whitespace().collect());
        let entry = words.one_of("`fwd` or `bwd`", [Entry::Fwd, Entry::Bwd], |entry| entry.word().to_owned())?;
        let dtype = words.one_of("a dtype", [Dtype::Fp16, Dtype::Bf16, Dtype::Fp8], |dtype| dtype.to_string())?;
        let causal = words.one_of("`full` or `causal`", [false, true], |c| if c { "causal" } else { "full" }.to_owned())?;
        let head_dim = words.head_dim()?;
        let batch: usize = words.number("b")?.ok_or("no batch: say for example `b2`")?;
        let times = words.number("x")?.unwrap_or(1);
        let heads = words.rest_of("h", |rest| rest.contains('/')).ok_or("no heads: say for example `h8/2`")?;
        let (heads, heads_k) = heads
            .split_once('/')
            .and_then(|(q, k)| Some((q.parse().ok()?, k.parse().ok()?)))
            .ok_or_else(|| format!("`h{heads}` does not say query and key heads, as `h8/2` does"))?;
        let ways = [Lengths::Used, Lengths::Packed, Lengths::PackedQuery, Lengths::PackedKey, Lengths::PackedUsed];
        let lengths = words.optional(ways, |lengths| lengths.word().trim().to_owned());
        let lengths = lengths.unwrap_or(Lengths::Uniform);
        let (sequences, drawn) = match words.drawn_lengths()? {
            Some(drawn) => (drawn_sequences(batch, drawn)?, Some(drawn)),
            None => (sequences(batch, times, &words.lengths("sq")?, &words.lengths("sk")?, lengths)?, None),
        };
        let options = CallOptions::read(&mut words.0)?.placed(causal);
        let problem = Problem {
            sequences,
            times,
            drawn,
            multiprocessors: words.number("on")?,
            heads,
            heads_k,
            layout: words.optional(layouts(), ToString::to_string).unwrap_or(Layout::Bshd),
            lengths,
            inputs: words.optional(ALL_INPUTS, |inputs| inputs.word().to_owned()).unwrap_or(Inputs::Normal),
            scale: words.scale()?,
            lse: !words.flag("no-lse"),
            fp8: words.descales(dtype == Dtype::Fp8 || options.kv.is_some()),
            options,
        };
        let case = Self {
            entry,
            head_dim,
            dtype,
            causal,
            problem,
            workspace: words.optional(Workspace::ALL, |workspace| workspace.word().to_owned()).unwrap_or(Workspace::CallOptions),
            splits: words.number("splits")?.unwrap_or(0),
            merging: words.optional(Merging::ALL, |merging| merging.word().to_owned()).unwrap_or(Merging::Free),
            totals: words.flag("totals"),
            deterministic: words.flag("deterministic"),
            dlse: words.flag("dlse"),
            again: words.order()?,
            seed: words.number("seed")?.unwrap_or(0),
            capability: words.number("sm")?,
        };
        words.end(case, Self::complaint)
    }
}

impl FromStr for DrawnCall {
    type Err = String;

    /// Parses a name. Words may be in any order, each at most once.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut words = Words(text.split_whitespace().collect());
        let kinds = || Kind::ALL.iter().copied().filter(|kind| attention::Kind::of(*kind).is_none());
        let kind = words.one_of("a kind of kernel", kinds(), |kind| kind.name().to_owned())?;
        let dtype = words.one_of("a dtype", Dtype::ALL.iter().copied(), |dtype| dtype.to_string())?;
        let call = Self {
            kind,
            dtype,
            size: words.number("size")?.ok_or("no `size`: say for example `size8`")?,
            again: words.order()?,
            seed: words.number("seed")?.unwrap_or(0),
            capability: words.number("sm")?,
        };
        words.end(call, Self::complaint)
    }
}

/// Contents of tensors.
pub(super) const ALL_INPUTS: [Inputs; 11] = [
    Inputs::Normal,
    Inputs::OneHot,
    Inputs::Constant,
    Inputs::Widest,
    Inputs::Positive,
    Inputs::Large,
    Inputs::Rising,
    Inputs::Low,
    Inputs::Falling,
    Inputs::Crossing,
    Inputs::Overtaken,
];

/// Parts of a tensor's layout.
pub(super) const PARTS: [Part; 4] = [Part::Start, Part::Head, Part::Row, Part::Batch];

/// Every layout.
fn layouts() -> impl Iterator<Item = Layout> {
    let plain = [Layout::Bshd, Layout::Bhsd, Layout::Padded, Layout::Unaligned, Layout::Reversed];
    let parts = itertools::iproduct!(0..9, PARTS).map(|(tensor, part)| Layout::UnalignedPart(tensor, part));
    plain.into_iter().chain((0..9).map(Layout::ReversedTensor)).chain(parts)
}

/// Lengths per sequence; a single length stands for equal lengths, and a list can be repeated.
fn sequences(
    batch: usize,
    times: usize,
    queries: &[usize],
    keys: &[usize],
    lengths: Lengths,
) -> Result<Vec<(usize, usize)>, String> {
    if batch > MOST_SEQUENCES {
        return Err(format!("`b{batch}` is more than {MOST_SEQUENCES} sequences"));
    }
    if lengths == Lengths::Uniform && queries.len() == 1 && keys.len() == 1 && times > 0 && batch.is_multiple_of(times) {
        return Ok(vec![(queries[0], keys[0]); batch]);
    }
    if queries.len().checked_mul(times) != Some(batch) || queries.len() != keys.len() {
        return Err(format!("`b{batch}` has {} lengths in `sq` and {} in `sk`, {times} times", queries.len(), keys.len()));
    }
    Ok(queries.iter().copied().zip(keys.iter().copied()).collect::<Vec<_>>().repeat(times))
}

/// Lengths named by the style that drew them.
fn drawn_sequences(batch: usize, drawn: DrawnLengths) -> Result<Vec<(usize, usize)>, String> {
    let DrawnLengths { low, high, seed } = drawn;
    if batch > MOST_SEQUENCES || low > high || seed != batch as u64 {
        return Err(format!(
            "`s{low}..{high}#{seed}` draws no lengths for `b{batch}`: the number after `#` is that of the sequences"
        ));
    }
    Ok(Problem::encoder(batch, low, high, 1, 1).sequences)
}

/// Words not parsed yet.
struct Words<'a>(Vec<&'a str>);

impl<'a> Words<'a> {
    fn take(&mut self, wanted: impl Fn(&str) -> bool) -> Option<&'a str> {
        let at = self.0.iter().position(|word| wanted(word))?;
        Some(self.0.remove(at))
    }

    /// The parsed case, if no word is left and it is valid.
    fn end<T>(&self, case: T, complaint: impl Fn(&T) -> Option<String>) -> Result<T, String> {
        match (self.0.first(), complaint(&case)) {
            (Some(word), _) => Err(format!("`{word}` is no word of a case, or stands there twice")),
            (None, Some(complaint)) => Err(complaint),
            (None, None) => Ok(case),
        }
    }

    fn flag(&mut self, flag: &str) -> bool {
        self.take(|word| word == flag).is_some()
    }

    /// The value named by one of the words.
    fn optional<T>(&mut self, values: impl IntoIterator<Item = T>, name: impl Fn(&T) -> String) -> Option<T> {
        values.into_iter().find(|value| self.flag(&name(value)))
    }

    fn one_of<T>(&mut self, what: &str, values: impl IntoIterator<Item = T>, name: impl Fn(T) -> String) -> Result<T, String>
    where
        T: Copy,
    {
        self.optional(values, |value| name(*value)).ok_or_else(|| format!("a case needs {what}"))
    }

    /// The rest of a word after `prefix`, if the rest satisfies `wanted`.
    fn rest_of(&mut self, prefix: &str, wanted: impl Fn(&str) -> bool) -> Option<&'a str> {
        self.take(|word| word.strip_prefix(prefix).is_some_and(&wanted)).map(|word| &word[prefix.len()..])
    }

    /// `hdim64`, `hdim192_128`.
    fn head_dim(&mut self) -> Result<HeadDim, String> {
        let text = self.rest_of("hdim", |_| true).ok_or("no `hdim`: say for example `hdim64`")?;
        text.parse().map_err(|error: ReadHeadDimError| error.to_string())
    }

    /// The number that follows `prefix`.
    fn number<T: FromStr>(&mut self, prefix: &str) -> Result<Option<T>, String> {
        let word = self.take(|word| number_after::<T>(prefix, word).is_some());
        word.and_then(|word| number_after(prefix, word)).transpose()
    }

    /// `sq15+88`.
    fn lengths(&mut self, prefix: &str) -> Result<Vec<usize>, String> {
        let list = self.rest_of(prefix, |rest| rest.starts_with(|c: char| c.is_ascii_digit()));
        let list = list.ok_or_else(|| format!("no `{prefix}`: say for example `{prefix}15+88`"))?;
        let lengths = list.split('+').map(str::parse).collect::<Result<_, _>>();
        lengths.map_err(|_| format!("`{prefix}{list}` is no list of lengths, as `{prefix}15+88` is"))
    }

    /// `twice`, or `priorities:3`.
    fn order(&mut self) -> Result<Option<Order>, String> {
        match self.take(|word| word.starts_with("priorities")) {
            Some(order) => order.parse().map(Some),
            None => Ok(self.flag("twice").then_some(Order::Shuffled)),
        }
    }

    /// `s4..128#64`.
    fn drawn_lengths(&mut self) -> Result<Option<DrawnLengths>, String> {
        let Some(rest) = self.rest_of("s", |rest| rest.contains("..")) else { return Ok(None) };
        let parts = rest.split_once("..").and_then(|(low, rest)| Some((low, rest.split_once('#')?)));
        let drawn = parts.and_then(|(low, (high, seed))| {
            Some(DrawnLengths { low: low.parse().ok()?, high: high.parse().ok()?, seed: seed.parse().ok()? })
        });
        drawn.map(Some).ok_or_else(|| format!("`s{rest}` draws no lengths, as `s4..128#64` does"))
    }

    fn scale(&mut self) -> Result<Scale, String> {
        let plain = [Scale::Zero, Scale::Quarter, Scale::One];
        if let Some(scale) = self.optional(plain, |scale| scale.to_string().trim().to_owned()) {
            return Ok(scale);
        }
        let Some(number) = self.rest_of("scale", |_| true) else { return Ok(Scale::Usual) };
        let thousandths = number.strip_suffix("/1000").and_then(|digits| digits.parse().ok());
        thousandths
            .map(Scale::Thousandths)
            .ok_or_else(|| format!("`scale{number}` is none of `scale0`, `scale1/4`, `scale1`, `scale173/1000`"))
    }

    fn descales(&mut self, has_bytes: bool) -> Option<Descales> {
        let given = self.optional([Descales::Uniform, Descales::ByHead], |descales| descales.word().trim().to_owned());
        given.or(has_bytes.then_some(Descales::Absent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Features;
    use crate::{
        check::{Level, Subject},
        device::DeviceKind,
        family::attention::{self, Kind, cases::lists::forward_fp8_tma},
        kernel::Target,
        plan::Tiling,
    };

    #[test]
    fn the_issues_reproducer_is_read_whatever_the_order_of_its_words() {
        let case: FuzzCase =
            "fwd hdim208 bf16 b2 h3/3 sq15+88 sk5+15 causal cu_seqlens bshd normal seed0".parse().expect("it reads");
        assert_eq!(case.problem.sequences, [(15, 5), (88, 15)]);
        assert_eq!((case.head_dim, case.causal, case.capability), (HeadDim::equal(208), true, None));
        let short: FuzzCase = "cu_seqlens sk5+15 sq15+88 h3/3 b2 causal bf16 hdim208 fwd".parse().expect("it reads");
        assert_eq!(short, case);
    }

    #[test]
    fn names_of_the_fixed_cases_are_read_too() {
        let variant = attention::Point {
            kind: Kind::Fwd,
            head_dim: HeadDim::equal(64),
            dtype: Dtype::Fp8,
            causal: true,
            features: Features::NONE,
            target: Target::Sm90,
        };
        let tiling =
            Tiling { m: 192, n: 128, stages: 2, row_groups: 3, key_groups: 1, whole_tiles: true, cluster: 1, persistent: true };
        for device in [DeviceKind::Emulator, DeviceKind::Gpu] {
            let subject = Subject { variant, tiling, device };
            for problem in forward_fp8_tma(&subject, Level::Thorough) {
                let name = problem.name(true);
                let case: FuzzCase = format!("fwd hdim64 fp8 {name}").parse().expect("it reads");
                assert_eq!((case.problem.name(true), case.problem), (name, problem));
            }
        }
    }

    #[test]
    fn what_is_no_case_is_refused_with_the_word_that_is_wrong() {
        let says = |text: &str| text.parse::<FuzzCase>().expect_err(text);
        let plain = "fwd hdim64 bf16 full b1 h2/2 sq3 sk4";
        assert!(plain.parse::<FuzzCase>().is_ok());
        for (more, expected) in [
            ("whole", "`whole`"),
            ("full", "`full`"),
            ("on0", "no multiprocessor"),
            ("priorities:x", "`priorities:x`"),
            ("x2", "2 times"),
            ("scale3", "`scale3`"),
            ("splits1000", "1000 splits"),
            ("descale", "fp8"),
            ("deterministic", "`bwd`"),
            ("dlse", "`bwd`"),
            ("unaligned-dq-row", "`fwd` has not"),
            ("seed99999999999999999999", "`seed99999999999999999999`"),
        ] {
            let said = says(&format!("{plain} {more}"));
            assert!(said.contains(expected), "{more}: {said}");
        }
        for (text, expected) in [
            ("fwd hdim64 bf16 full b2 h2/2 sq3+4 sk4+4", "need `cu_seqlens`"),
            ("fwd hdim64 bf16 full b2 h2/2 sq3 sk4 cu_seqlens", "1 lengths in `sq`"),
            ("fwd hdim64 bf16 full b1 h3/2 sq3 sk4", "no multiple"),
            ("fwd hdim64 bf16 full b1 h0/0 sq3 sk4", "no multiple"),
            ("fwd hdim60 bf16 full b1 h2/2 sq3 sk4", "60"),
            ("fwd hdim64 bf16 full b0 h2/2 sq3 sk4", "no sequence"),
            ("fwd hdim64 bf16 full b999999999 h2/2 sq3 sk4", "65536 sequences"),
            ("fwd hdim64 bf16 full b1 h2/2 sq999999999 sk4", "elements are more"),
            ("bwd hdim64 bf16 full b1 h2/2 sq3 sk4 no-lse", "log-sum-exp"),
            ("fwd hdim64 full b1 h2/2 sq3 sk4", "a dtype"),
            ("", "`fwd` or `bwd`"),
        ] {
            let said = says(text);
            assert!(said.contains(expected), "{text}: {said}");
        }
    }
}
