//! Forward kernels on Hopper whose warpgroups share the keys of items with few rows, and the maximum of these rows
//! (`templates/hopper/shared_keys_mainloop.tera`).

use super::{KvFormat, Point, Tile, Turns, hopper::WARPGROUP_ROWS};
use crate::kernel::Feature;

/// [`super::Hopper::part_rows`] of a tile: 0 unless all warpgroups advance their Q slots alike.
pub(super) fn of(variant: Point, tile: &Tile, q_slots: u32) -> u32 {
    let shares = may_share(variant, tile) && q_slots.is_multiple_of(tile.m / WARPGROUP_ROWS);
    if shares { part_rows(variant) } else { 0 }
}

/// True if the warpgroups may share keys, before the check of the slots, whose number depends on the space for sums.
/// Within an item each stage belongs to one warpgroup, so the number of stages is a multiple of the warpgroups. A slot
/// starts with 64 columns, which hold partial O.
pub(super) fn may_share(variant: Point, tile: &Tile) -> bool {
    let consumers = tile.m / WARPGROUP_ROWS;
    variant.features.has(Feature::PackGqa)
        && variant.features.has(Feature::Paged)
        && KvFormat::of(variant.features).is_none()
        && consumers > 1
        && tile.stages.is_multiple_of(consumers)
        && tile.turns != Turns::Exponentials
        && variant.head_dim.qk >= 64
        && variant.head_dim.v <= 192 // wider ones leave no registers for it
}

/// Rows of O in fp32 that fit into the first 64 columns of a Q slot, at most those of the last warpgroup.
pub(super) fn part_rows(variant: Point) -> u32 {
    (WARPGROUP_ROWS * 32 / variant.head_dim.v).min(WARPGROUP_ROWS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        family::attention::Kind,
        kernel::{Dtype, HeadDim, Target},
        plan::Plan,
    };

    fn rows(head_dim: HeadDim, features: &[Feature]) -> u32 {
        let variant = Point {
            kind: Kind::Fwd,
            head_dim,
            dtype: Dtype::Bf16,
            causal: true,
            features: features.iter().copied().collect(),
            target: Target::Sm90,
        };
        Plan::new(variant, None).expect("a default fits").attention().hopper.as_ref().expect("it has `wgmma`").part_rows
    }

    #[test]
    fn parts_fit_into_the_first_64_columns_of_a_slot_and_others_share_nothing() {
        let both = [Feature::PackGqa, Feature::Paged];
        let of = [48, 64, 80, 96, 128, 192, 256].map(|head_dim| rows(HeadDim::equal(head_dim), &both));
        assert_eq!(of, [0, 32, 25, 21, 16, 10, 0]);
        let d64 = HeadDim::equal(64);
        assert_eq!((rows(d64, &[Feature::PackGqa]), rows(d64, &[Feature::Paged])), (0, 0));
        assert_eq!(rows(HeadDim::equal(128), &[Feature::PackGqa, Feature::Paged, Feature::KvE4m3]), 0, "widened");
    }

    #[test]
    fn items_of_more_rows_than_a_warpgroup_has_are_not_shared_however_narrow_v_is() {
        let of = [16, 24, 32, 40].map(|v| rows(HeadDim { qk: 64, v }, &[Feature::PackGqa, Feature::Paged]));
        assert_eq!(of, [64, 64, 64, 51]);
    }
}
