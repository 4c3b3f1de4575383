//! Tile choice: the defaults per target and head dim, and overrides on top of them.

use super::PlanError;
use crate::grid::{Dtype, Kind, Target, TileOverride, Variant, check_head_dim};
use serde::Serialize;

/// Tile sizes and pipeline choices of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Tile {
    /// Queries a block.
    pub m: u32,
    /// Keys a step.
    pub n: u32,
    /// Warps of a block; each owns `m / warps` query rows (16 or 32).
    pub warps: u32,
    /// Buffers each for K and V.
    pub kv_stages: u32,
    /// Q fragments live in registers across the key loop.
    pub q_in_registers: bool,
    /// Second argument of `__launch_bounds__`.
    pub min_blocks_per_sm: u32,
    /// Powers of two a row maximum may grow before O is rescaled.
    pub rescale_threshold: u32,
}

/// A row of a table of defaults: the widest head dim it serves, and its tile without and with a causal mask.
struct DefaultTiles {
    widest: u32,
    full: Tile,
    causal: Tile,
}

/// Default tiles of forward attention on sm80: the first row whose head dim is not below the variant's.
///
/// Four warps split the queries only; the wider O gets, the fewer query rows and keys a warp can hold beside it in
/// 255 registers. The winners of sweeps on an H100 and an H200 (docs/results/sm80-forward-tiles.md) among the tiles
/// that ptxas compiles without spills; where two were equal, the one that leaves two blocks on an A100's SM.
const FWD_SM80: &[DefaultTiles] = &[
    // Little O to hold: three blocks of 168 registers hide the exponentials, which outweigh the MMAs here.
    DefaultTiles::same(32, Tile { m: 128, n: 64, kv_stages: 2, min_blocks_per_sm: 3, ..BASE }),
    // 64 registers of O leave room for 128 scores; causal wants the smaller key tile at its diagonal, and Q kept.
    DefaultTiles {
        widest: 64,
        full: Tile { m: 128, n: 128, min_blocks_per_sm: 2, ..BASE },
        causal: Tile { m: 128, n: 64, kv_stages: 2, q_in_registers: true, min_blocks_per_sm: 2, ..BASE },
    },
    DefaultTiles::same(80, Tile { m: 128, n: 80, min_blocks_per_sm: 2, ..BASE }),
    // 80 keys spill two registers at 88 and none at 96, whose rows are whole panels.
    DefaultTiles::same(88, Tile { m: 128, n: 64, min_blocks_per_sm: 2, ..BASE }),
    DefaultTiles {
        widest: 96,
        full: Tile { m: 128, n: 80, min_blocks_per_sm: 2, ..BASE },
        causal: Tile { m: 128, n: 64, min_blocks_per_sm: 2, ..BASE },
    },
    // Rows of three panel widths need more addresses than 128: 64 keys would spill a register or two.
    DefaultTiles::same(120, Tile { m: 128, n: 48, min_blocks_per_sm: 2, ..BASE }),
    // 128 registers of O and 64 of scores; 64 KB, so two blocks hide each other's waits.
    DefaultTiles::same(128, Tile { m: 128, n: 64, min_blocks_per_sm: 2, ..BASE }),
    // 32 query rows a warp no longer fit: 16 rows, and registers enough to keep Q.
    DefaultTiles::same(192, Tile { m: 64, n: 64, q_in_registers: true, min_blocks_per_sm: 2, ..BASE }),
    // Q, K and V take more than half of an A100's shared memory: one block there, two on a Hopper SM.
    DefaultTiles {
        widest: 224,
        full: Tile { m: 64, n: 80, min_blocks_per_sm: 1, ..BASE },
        causal: Tile { m: 64, n: 64, min_blocks_per_sm: 1, ..BASE },
    },
    DefaultTiles::same(256, Tile { m: 64, n: 64, min_blocks_per_sm: 1, ..BASE }),
];

impl DefaultTiles {
    const fn same(widest: u32, tile: Tile) -> Self {
        Self { widest, full: tile, causal: tile }
    }
}

/// What the rows of the table share. A threshold of 8 lets P grow to 2^8, far inside fp16's range.
const BASE: Tile = Tile { m: 0, n: 0, warps: 4, kv_stages: 1, q_in_registers: false, min_blocks_per_sm: 1, rescale_threshold: 8 };

impl Tile {
    /// The tile for `variant`: the default of its target and head dim, changed by `tile_override`.
    ///
    /// # Errors
    /// [`PlanError::Unsupported`] where no default exists, [`PlanError::BadTile`] where an override breaks a rule of
    /// the kernel.
    pub fn choose(variant: &Variant, tile_override: Option<&TileOverride>) -> Result<Self, PlanError> {
        let mut tile = default_tile(*variant).map_err(|reason| PlanError::Unsupported { variant: variant.name(), reason })?;
        if let Some(change) = tile_override {
            tile.apply(change);
        }
        match tile.broken_rule(variant.dtype) {
            Some(reason) => Err(PlanError::BadTile { variant: variant.name(), reason }),
            None => Ok(tile),
        }
    }

    fn apply(&mut self, change: &TileOverride) {
        let TileOverride { m, n, warps, kv_stages, q_in_registers, min_blocks_per_sm, rescale_threshold } = *change;
        *self = Self {
            m: m.unwrap_or(self.m),
            n: n.unwrap_or(self.n),
            warps: warps.unwrap_or(self.warps),
            kv_stages: kv_stages.unwrap_or(self.kv_stages),
            q_in_registers: q_in_registers.unwrap_or(self.q_in_registers),
            min_blocks_per_sm: min_blocks_per_sm.unwrap_or(self.min_blocks_per_sm),
            rescale_threshold: rescale_threshold.unwrap_or(self.rescale_threshold),
        };
    }

    /// The first rule of the sm80 kernel this tile breaks, in words.
    fn broken_rule(&self, dtype: Dtype) -> Option<String> {
        let Self { m, n, warps, kv_stages, min_blocks_per_sm, rescale_threshold, .. } = *self;
        // A copy pass of all threads moves threads / 8 rows of 128 bytes, and must keep the swizzle's phase of 8 rows.
        if !matches!(warps, 2 | 4 | 8) {
            return Some(format!("`warps` is {warps}; it must be 2, 4 or 8"));
        }
        // One or two 16-row MMA tiles a warp.
        if m != 16 * warps && m != 32 * warps {
            let (low, high) = (16 * warps, 32 * warps);
            return Some(format!("`m` is {m}; {warps} warps of 16 or 32 rows each make it {low} or {high}"));
        }
        // P V consumes keys 16 at a time, the K of the MMA.
        if n == 0 || !n.is_multiple_of(16) || n > 256 {
            return Some(format!("`n` is {n}; it must be a multiple of 16 from 16 to 256"));
        }
        if !matches!(kv_stages, 1 | 2) {
            return Some(format!("`kv_stages` is {kv_stages}; it must be 1 or 2"));
        }
        if min_blocks_per_sm == 0 {
            return Some("`min_blocks_per_sm` is 0; it must be at least 1".to_owned());
        }
        // P reaches 2^threshold: fp16 ends at 65504, and fp32 sums of bf16's P stay exact enough up to 2^64.
        let most = if dtype == Dtype::Fp16 { 14 } else { 64 };
        if rescale_threshold > most {
            return Some(format!("`rescale_threshold` is {rescale_threshold}; {dtype} allows at most {most}"));
        }
        None
    }
}

/// The default, or why there is none and what to ask for instead.
fn default_tile(variant: Variant) -> Result<Tile, String> {
    let Variant { kind, head_dim, dtype, causal, target } = variant;
    if kind != Kind::Fwd {
        return Err(format!("kind `{kind}` has no template yet; available: `{}`", Kind::Fwd));
    }
    if target != Target::Sm80 {
        return Err(if target < Target::Sm80 {
            format!("target `{target}` has no template yet; available: `sm80` (compute capability 8.0 and newer)")
        } else {
            format!("target `{target}` has no template yet; available: `sm80`, whose kernels run on `{target}` too")
        });
    }
    if dtype == Dtype::Fp8 {
        return Err("sm80 has no FP8 tensor-core instruction; FP8 needs sm89 or newer; available: `fp16`, `bf16`".to_owned());
    }
    check_head_dim(head_dim.into()).map_err(|error| error.to_string())?;
    FWD_SM80
        .iter()
        .find(|row| head_dim <= row.widest)
        .map(|row| if causal { row.causal } else { row.full })
        .ok_or_else(|| format!("no default tile reaches head dim {head_dim}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const D128: Variant = Variant { kind: Kind::Fwd, head_dim: 128, dtype: Dtype::Fp16, causal: false, target: Target::Sm80 };

    fn reason(variant: Variant, change: &TileOverride) -> String {
        Tile::choose(&variant, Some(change)).expect_err("the tile breaks a rule").to_string()
    }

    #[test]
    fn every_head_dim_from_16_to_256_has_a_default() {
        for head_dim in (16..=256).step_by(8) {
            assert!(Tile::choose(&Variant { head_dim, ..D128 }, None).is_ok(), "{head_dim}");
        }
    }

    #[test]
    fn a_head_dim_outside_the_range_is_refused_with_the_range() {
        for head_dim in [0, 8, 20, 100, 264] {
            let error = Tile::choose(&Variant { head_dim, ..D128 }, None).expect_err("impossible").to_string();
            assert!(
                error.contains(&format!("impossible head dim `{head_dim}`: head dims are multiples of 8 from 16 to 256")),
                "{error}"
            );
        }
    }

    #[test]
    fn what_has_no_template_names_what_has() {
        let error = |variant| Tile::choose(&variant, None).expect_err("unsupported").to_string();
        assert!(error(Variant { kind: Kind::Bwd, ..D128 }).contains("`bwd` has no template yet; available: `fwd`"));
        assert!(error(Variant { target: Target::Sm90, ..D128 }).contains("`sm80`, whose kernels run on `sm90` too"));
        assert!(error(Variant { target: Target::Sm75, ..D128 }).contains("compute capability 8.0 and newer"));
        let fp8 = error(Variant { dtype: Dtype::Fp8, ..D128 });
        assert!(fp8.contains("sm80 has no FP8 tensor-core instruction; FP8 needs sm89 or newer"), "{fp8}");
    }

    #[test]
    fn an_override_changes_what_it_names_and_nothing_else() {
        let default = Tile::choose(&D128, None).expect("has a default");
        let change = TileOverride { n: Some(32), kv_stages: Some(2), ..TileOverride::default() };
        assert_eq!(Tile::choose(&D128, Some(&change)), Ok(Tile { n: 32, kv_stages: 2, ..default }));
    }

    #[test]
    fn a_broken_rule_is_named_with_its_number() {
        let none = TileOverride::default();
        assert!(reason(D128, &TileOverride { warps: Some(3), ..none.clone() }).contains("`warps` is 3"));
        assert!(reason(D128, &TileOverride { m: Some(192), ..none.clone() }).contains("make it 64 or 128"));
        assert!(reason(D128, &TileOverride { n: Some(40), ..none.clone() }).contains("`n` is 40"));
        assert!(reason(D128, &TileOverride { n: Some(0), ..none.clone() }).contains("`n` is 0"));
        assert!(reason(D128, &TileOverride { kv_stages: Some(3), ..none.clone() }).contains("`kv_stages` is 3"));
        assert!(reason(D128, &TileOverride { min_blocks_per_sm: Some(0), ..none.clone() }).contains("at least 1"));
    }

    #[test]
    fn p_stays_finite_in_fp16_under_every_accepted_threshold() {
        let threshold =
            |rescale_threshold| TileOverride { rescale_threshold: Some(rescale_threshold), ..TileOverride::default() };
        assert!(Tile::choose(&D128, Some(&threshold(14))).is_ok());
        assert!(reason(D128, &threshold(15)).contains("fp16 allows at most 14"));
        let bf16 = Variant { dtype: Dtype::Bf16, ..D128 };
        assert!(Tile::choose(&bf16, Some(&threshold(64))).is_ok());
        assert!(reason(bf16, &threshold(65)).contains("bf16 allows at most 64"));
    }
}
