//! Work of a call, to convert a time into a rate.

use super::{Shape, declared};
use crate::{
    family::attention::{Kind, KvFormat, Mask, Point},
    kernel::HeadDim,
};

/// Floating-point operations of one launch, 2 · B · H · Sq · Sk per column of its matrix products: forward those of Q
/// Kᵀ and P V (with `qv` also QV Vᵀ), backward three over the head dim of Q and K (Q Kᵀ, dQ, dK) and two over that of
/// V. A causal mask halves them for equal lengths; otherwise the visible pairs are counted. A declared score adds its
/// own operations per pair, and pairs hidden by a declared mask do not count.
pub fn flops(variant: &Point, shape: &Shape) -> f64 {
    let HeadDim { qk, v } = variant.head_dim;
    let columns = match variant.kind {
        Kind::Bwd => 3 * qk + 2 * v,
        _ if variant.has_latent_queries() => qk + 2 * v,
        _ => qk + v,
    };
    let pairs = if variant.features.score().is_some_and(|score| score.mask.is_some()) {
        declared::pairs(variant, shape)
    } else {
        let mask = Mask::new(variant.causal, shape.seqlen_q as usize, shape.seqlen_k as usize);
        mask.pairs() * f64::from(shape.batch) * f64::from(shape.heads)
    };
    pairs * (2.0 * f64::from(columns) + f64::from(declared::flops_per_pair(variant)))
}

/// Bytes of K and V, read once: the minimum traffic of decoding.
pub fn key_value_bytes(variant: &Point, shape: &Shape) -> f64 {
    let rows = f64::from(shape.batch) * f64::from(shape.seqlen_k) * f64::from(shape.heads_k);
    let bytes = if KvFormat::of(variant.features).is_some() { 1 } else { variant.dtype.bytes() };
    rows * f64::from((variant.head_dim.qk + variant.head_dim.v) * bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::{Dtype, Feature, Features, Target};

    fn variant(kind: Kind, causal: bool) -> Point {
        Point { kind, head_dim: HeadDim::equal(72), dtype: Dtype::Bf16, causal, features: Features::NONE, target: Target::Sm80 }
    }

    const SQUARE: Shape = Shape { batch: 2, heads: 6, heads_k: 3, seqlen_q: 100, seqlen_k: 100, page_size: 0 };

    #[test]
    fn flops_count_the_true_head_dim_half_under_a_causal_mask_and_two_and_a_half_times_backward() {
        let forward = 4.0 * 2.0 * 6.0 * 100.0 * 100.0 * 72.0;
        assert_eq!(flops(&variant(Kind::Fwd, false), &SQUARE), forward);
        assert_eq!(flops(&variant(Kind::Fwd, true), &SQUARE), forward / 2.0);
        assert_eq!(flops(&variant(Kind::Bwd, false), &SQUARE), forward * 2.5);
    }

    #[test]
    fn each_product_counts_the_head_dim_that_it_has() {
        let of = |kind| Point { head_dim: HeadDim { qk: 192, v: 128 }, ..variant(kind, false) };
        let pairs = 2.0 * 6.0 * 100.0 * 100.0;
        assert_eq!(flops(&of(Kind::Fwd), &SQUARE), 2.0 * pairs * (192.0 + 128.0));
        assert_eq!(flops(&of(Kind::Bwd), &SQUARE), 2.0 * pairs * (3.0 * 192.0 + 2.0 * 128.0));
        assert_eq!(key_value_bytes(&of(Kind::FwdSplit), &SQUARE), 2.0 * 100.0 * 3.0 * (192.0 + 128.0) * 2.0);
    }

    #[test]
    fn queries_of_two_parts_are_multiplied_with_keys_and_values() {
        let features = Features::from_iter([Feature::Qv]);
        let latent = Point { head_dim: HeadDim::LATENT, features, ..variant(Kind::FwdSplit, false) };
        assert_eq!(flops(&latent, &SQUARE), 2.0 * 2.0 * 6.0 * 100.0 * 100.0 * (64.0 + 512.0 + 512.0));
    }

    #[test]
    fn a_cache_in_fp8_has_a_byte_an_element() {
        let features = Features::from_iter([Feature::Paged, Feature::KvE4m3]);
        let kv = Point { features, ..variant(Kind::FwdSplit, true) };
        assert_eq!(2.0 * key_value_bytes(&kv, &SQUARE), key_value_bytes(&variant(Kind::FwdSplit, true), &SQUARE));
    }

    #[test]
    fn decoding_reads_keys_and_values_of_every_key_head_once() {
        assert_eq!(key_value_bytes(&variant(Kind::FwdSplit, false), &SQUARE), 2.0 * 2.0 * 100.0 * 3.0 * 72.0 * 2.0);
    }
}
