//! How much there is to do, so that a time becomes a rate.

use super::Shape;
use crate::family::attention::{Kind, Point};

/// Floating-point operations of one launch: two products of matrices forward (4 · B · H · Sq · Sk · D) and five backward
/// (10 · …), with the true head dim. A causal mask halves them where both sides are equally long; elsewhere the pairs
/// that it leaves are counted.
pub fn flops(variant: &Point, shape: &Shape) -> f64 {
    let products = if variant.kind == Kind::Bwd { 5.0 } else { 2.0 };
    let pairs = pairs(shape, variant.causal) * f64::from(shape.batch) * f64::from(shape.heads);
    2.0 * products * pairs * f64::from(variant.head_dim)
}

/// Bytes of K and V, once: what decoding cannot do without reading.
pub fn key_value_bytes(variant: &Point, shape: &Shape) -> f64 {
    let rows = f64::from(shape.batch) * f64::from(shape.seqlen_k) * f64::from(shape.heads_k);
    2.0 * rows * f64::from(variant.head_dim * variant.dtype.bytes())
}

/// Pairs of a query and a key of one head and sequence that count as work.
fn pairs(shape: &Shape, causal: bool) -> f64 {
    let (queries, keys) = (f64::from(shape.seqlen_q), f64::from(shape.seqlen_k));
    if !causal {
        return queries * keys;
    }
    if shape.seqlen_q == shape.seqlen_k {
        return queries * keys / 2.0;
    }
    // Row i of the last min(q, k) rows sees k - q + i + 1 keys, the rows before them none.
    let rows = queries.min(keys);
    rows * (keys + (keys - rows + 1.0)) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grid::{Dtype, Target};

    fn variant(kind: Kind, causal: bool) -> Point {
        Point { kind, head_dim: 72, dtype: Dtype::Bf16, causal, target: Target::Sm80 }
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
    fn under_a_causal_mask_unequal_sides_count_the_pairs_there_are() {
        let pairs = |seqlen_q, seqlen_k| pairs(&Shape { seqlen_q, seqlen_k, ..SQUARE }, true);
        assert_eq!(pairs(1, 50), 50.0, "one query sees all keys");
        assert_eq!(pairs(2, 5), 4.0 + 5.0);
        assert_eq!(pairs(5, 2), 1.0 + 2.0);
    }

    #[test]
    fn decoding_reads_keys_and_values_of_every_key_head_once() {
        assert_eq!(key_value_bytes(&variant(Kind::FwdSplit, false), &SQUARE), 2.0 * 2.0 * 100.0 * 3.0 * 72.0 * 2.0);
    }
}
