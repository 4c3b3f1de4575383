//! How much there is to do, so that a time becomes a rate.

use super::Shape;
use crate::family::attention::{Kind, Mask, Point};

/// Floating-point operations of one launch: two products of matrices forward (4 · B · H · Sq · Sk · D) and five
/// backward (10 · …), with the true head dim. A causal mask halves them where both sides are equally long; elsewhere
/// the pairs that it leaves are counted.
pub fn flops(variant: &Point, shape: &Shape) -> f64 {
    let products = if variant.kind == Kind::Bwd { 5.0 } else { 2.0 };
    let mask = Mask::new(variant.causal, shape.seqlen_q as usize, shape.seqlen_k as usize);
    let pairs = mask.pairs() * f64::from(shape.batch) * f64::from(shape.heads);
    2.0 * products * pairs * f64::from(variant.head_dim)
}

/// Bytes of K and V, once: what decoding cannot do without reading.
pub fn key_value_bytes(variant: &Point, shape: &Shape) -> f64 {
    let rows = f64::from(shape.batch) * f64::from(shape.seqlen_k) * f64::from(shape.heads_k);
    2.0 * rows * f64::from(variant.head_dim * variant.dtype.bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grid::{Dtype, Features, Target};

    fn variant(kind: Kind, causal: bool) -> Point {
        Point { kind, head_dim: 72, dtype: Dtype::Bf16, causal, features: Features::NONE, target: Target::Sm80 }
    }

    const SQUARE: Shape = Shape { batch: 2, heads: 6, heads_k: 3, seqlen_q: 100, seqlen_k: 100 };

    #[test]
    fn flops_count_the_true_head_dim_half_under_a_causal_mask_and_two_and_a_half_times_backward() {
        let forward = 4.0 * 2.0 * 6.0 * 100.0 * 100.0 * 72.0;
        assert_eq!(flops(&variant(Kind::Fwd, false), &SQUARE), forward);
        assert_eq!(flops(&variant(Kind::Fwd, true), &SQUARE), forward / 2.0);
        assert_eq!(flops(&variant(Kind::Bwd, false), &SQUARE), forward * 2.5);
    }

    #[test]
    fn decoding_reads_keys_and_values_of_every_key_head_once() {
        assert_eq!(key_value_bytes(&variant(Kind::FwdSplit, false), &SQUARE), 2.0 * 2.0 * 100.0 * 3.0 * 72.0 * 2.0);
    }
}
