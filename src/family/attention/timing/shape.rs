//! The sizes at which variants are timed: the user's, with defaults that follow from the head dim.

use crate::{
    bench::{Size, Wanted},
    family::attention::{Kind, Point},
    kernel::Feature,
};
use itertools::iproduct;
use std::fmt;

/// Default tokens of a batch (batch × the longer sequence).
pub const TOKENS: u32 = 16_384;

/// Default elements of a token's queries (heads × head dim).
pub const WIDTH: u32 = 2048;

/// Default sequence lengths.
pub const SEQLENS: [u32; 6] = [512, 1024, 2048, 4096, 8192, 16_384];

/// Default minimum of query heads per key head in decoding, as in most models.
const DECODING_GROUP: u32 = 4;

/// Default rows per page, as in vLLM.
pub const PAGE_SIZE: u32 = 16;

/// Query heads of MLA decoding and rows per page: the heads of DeepSeek-V3, the pages of vLLM.
pub const LATENT_HEADS: u32 = 128;
/// See [`LATENT_HEADS`].
pub const LATENT_PAGE_SIZE: u32 = 64;

/// Sizes of one attention call with equal sequences.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Sequences.
    pub batch: u32,
    /// Query heads; a multiple of `heads_k`.
    pub heads: u32,
    /// Key heads.
    pub heads_k: u32,
    /// Queries per sequence.
    pub seqlen_q: u32,
    /// Keys per sequence.
    pub seqlen_k: u32,
    /// Rows per page of K and V; 0: not paged.
    pub page_size: u32,
}

impl Shape {
    /// Pages per sequence; 0 if not paged.
    pub fn pages_per_sequence(&self) -> u32 {
        if self.page_size == 0 { 0 } else { self.seqlen_k.div_ceil(self.page_size) }
    }

    /// The shape that the named numbers of a size describe; `None` if one is missing.
    pub fn of(size: &Size) -> Option<Self> {
        let number = |name| size.get(name).and_then(|number| u32::try_from(number).ok());
        Some(Self {
            batch: number("batch")?,
            heads: number("heads")?,
            heads_k: number("heads_k")?,
            seqlen_q: number("seqlen_q")?,
            seqlen_k: number("seqlen_k")?,
            page_size: size.get("page_size").map_or(Some(0), |_| number("page_size"))?,
        })
    }
}

impl From<Shape> for Size {
    fn from(shape: Shape) -> Self {
        let Shape { batch, heads, heads_k, seqlen_q, seqlen_k, page_size } = shape;
        let sizes = [("batch", batch), ("heads", heads), ("heads_k", heads_k), ("seqlen_q", seqlen_q), ("seqlen_k", seqlen_k)];
        let pages = (page_size > 0).then_some(("page_size", page_size));
        Self::new(sizes.into_iter().chain(pages).map(|(name, number)| (name, number.into())))
    }
}

impl fmt::Display for Shape {
    /// `b8 h16 s2048`; unequal values are listed: `b8 h16/4 sq1 sk2048 p16`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { batch, heads, heads_k, seqlen_q, seqlen_k, page_size } = self;
        write!(f, "b{batch} h{heads}")?;
        if heads_k != heads {
            write!(f, "/{heads_k}")?;
        }
        if seqlen_q == seqlen_k {
            write!(f, " s{seqlen_q}")?;
        } else {
            write!(f, " sq{seqlen_q} sk{seqlen_k}")?;
        }
        if *page_size > 0 { write!(f, " p{page_size}") } else { Ok(()) }
    }
}

/// Every combination for a variant, except those whose query heads are not a multiple of the key heads.
///
/// Defaults: as many heads as give [`WIDTH`] elements, as many sequences as give [`TOKENS`] tokens, as many key heads
/// as query heads, equal lengths. Decoding (`fwd_split`) has one query per sequence and at least four query heads per
/// key head; MLA decoding has [`LATENT_HEADS`] query heads and one key head. Pages have [`PAGE_SIZE`] rows, for MLA
/// [`LATENT_PAGE_SIZE`].
pub fn shapes(wanted: &Wanted, variant: Point) -> Vec<Shape> {
    let (kind, latent) = (variant.kind, variant.has_latent_queries());
    let usual_heads = if latent { LATENT_HEADS } else { (WIDTH / variant.head_dim.qk).max(1) };
    let usual_pages = if latent { LATENT_PAGE_SIZE } else { PAGE_SIZE };
    let pages = |or_usual: &[u32]| if or_usual.is_empty() { vec![usual_pages] } else { or_usual.to_vec() };
    let pages = if variant.features.has(Feature::Paged) { pages(&list(wanted, "page_size")) } else { vec![0] };
    let key_heads = |heads| match kind {
        _ if latent => 1,
        Kind::FwdSplit => shared_heads(heads),
        _ => heads,
    };
    let or = |list: &[u32], rule: u32| if list.is_empty() { vec![rule] } else { list.to_vec() };
    let mut shapes = Vec::new();
    for (seqlen_q, seqlen_k) in lengths(wanted, kind) {
        let batches = or(&list(wanted, "batch"), (TOKENS / seqlen_q.max(seqlen_k)).max(1));
        for (batch, heads) in iproduct!(batches, or(&list(wanted, "heads"), usual_heads)) {
            let divides = |(heads_k, _): &(u32, u32)| heads.is_multiple_of(*heads_k);
            let shape = |(heads_k, page_size)| Shape { batch, heads, heads_k, seqlen_q, seqlen_k, page_size };
            let combined = iproduct!(or(&list(wanted, "heads_k"), key_heads(heads)), pages.iter().copied());
            shapes.extend(combined.filter(divides).map(shape));
        }
    }
    shapes
}

/// Pairs of query and key lengths.
fn lengths(wanted: &Wanted, kind: Kind) -> Vec<(u32, u32)> {
    let [both, queries, keys] = ["seqlen", "seqlen_q", "seqlen_k"].map(|name| list(wanted, name));
    let keys = if keys.is_empty() { both } else { keys };
    let or_usual = if keys.is_empty() { SEQLENS.as_slice() } else { &keys };
    match (queries.as_slice(), kind == Kind::FwdSplit) {
        ([], false) => or_usual.iter().map(|&s| (s, s)).collect(),
        ([], true) => or_usual.iter().map(|&s| (1, s)).collect(),
        (queries, false) if keys.is_empty() => queries.iter().map(|&s| (s, s)).collect(),
        (queries, _) => iproduct!(queries, or_usual).map(|(&sq, &sk)| (sq, sk)).collect(),
    }
}

/// The user's numbers with this name.
///
/// # Panics
/// If one does not fit into 32 bits; the command line rejects those.
fn list(wanted: &Wanted, name: &str) -> Vec<u32> {
    let narrow = |number: &u64| u32::try_from(*number).unwrap_or_else(|_| panic!("{name} {number} is beyond 32 bits"));
    wanted.of(name).iter().map(narrow).collect()
}

/// The maximum number of key heads with at least four of `heads` query heads each, or one.
fn shared_heads(heads: u32) -> u32 {
    (1..=heads / DECODING_GROUP).rev().find(|heads_k| heads.is_multiple_of(*heads_k)).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::{Dtype, HeadDim, Target};

    fn names_of(wanted: &Wanted, kind: Kind, head_dim: HeadDim, features: &[Feature]) -> Vec<String> {
        let (dtype, target, features) = (Dtype::Bf16, Target::Sm90, features.iter().copied().collect());
        let variant = Point { kind, head_dim, dtype, causal: true, features, target };
        shapes(wanted, variant).iter().map(Shape::to_string).collect()
    }

    fn names(wanted: &Wanted, kind: Kind, head_dim: u32) -> Vec<String> {
        names_of(wanted, kind, HeadDim::equal(head_dim), &[])
    }

    #[test]
    fn kernels_that_read_pages_have_pages_and_others_none() {
        let wanted = Wanted::new([("seqlen", vec![8192]), ("page_size", vec![16, 256])]);
        let paged = names_of(&wanted, Kind::FwdSplit, HeadDim::equal(128), &[Feature::Paged]);
        assert_eq!(paged, ["b2 h16/4 sq1 sk8192 p16", "b2 h16/4 sq1 sk8192 p256"]);
        assert_eq!(names(&wanted, Kind::FwdSplit, 128), ["b2 h16/4 sq1 sk8192"]);
        let usual = Wanted::new([("seqlen", vec![8192])]);
        assert_eq!(names_of(&usual, Kind::Fwd, HeadDim::equal(64), &[Feature::Paged]), ["b2 h32 s8192 p16"]);
        let latent = names_of(&usual, Kind::FwdSplit, HeadDim::LATENT, &[Feature::Paged, Feature::Qv]);
        assert_eq!(latent, ["b2 h128/1 sq1 sk8192 p64"]);
    }

    #[test]
    fn by_default_tokens_and_width_are_constant_rounded_down() {
        let expected = ["b32 h16 s512", "b16 h16 s1024", "b8 h16 s2048", "b4 h16 s4096", "b2 h16 s8192", "b1 h16 s16384"];
        assert_eq!(names(&Wanted::default(), Kind::Fwd, 128), expected);
        assert_eq!(names(&Wanted::new([("seqlen", vec![3000])]), Kind::Bwd, 96), ["b5 h21 s3000"]);
        assert_eq!(names(&Wanted::new([("seqlen", vec![65_536])]), Kind::Fwd, 64), ["b1 h32 s65536"]);
    }

    #[test]
    fn decoding_has_one_query_and_shares_key_heads() {
        let wanted = Wanted::new([("seqlen", vec![8192])]);
        let at = |head_dim| names(&wanted, Kind::FwdSplit, head_dim).concat();
        assert_eq!([at(128), at(96), at(224)], ["b2 h16/4 sq1 sk8192", "b2 h21/3 sq1 sk8192", "b2 h9/1 sq1 sk8192"]);
        let chunk = Wanted::new([("seqlen_q", vec![16]), ("seqlen", vec![8192])]);
        assert_eq!(names(&chunk, Kind::FwdSplit, 128), ["b2 h16/4 sq16 sk8192"]);
        assert_eq!(names(&chunk, Kind::Fwd, 128), ["b2 h16 sq16 sk8192"]);
    }

    #[test]
    fn lists_are_combined_and_heads_that_do_not_divide_left_out() {
        let wanted = Wanted::new([
            ("batch", vec![1, 2]),
            ("heads", vec![8]),
            ("heads_k", vec![2, 3]),
            ("seqlen_q", vec![64]),
            ("seqlen_k", vec![64, 128]),
        ]);
        assert_eq!(names(&wanted, Kind::Fwd, 64), ["b1 h8/2 s64", "b2 h8/2 s64", "b1 h8/2 sq64 sk128", "b2 h8/2 sq64 sk128"]);
    }
}
