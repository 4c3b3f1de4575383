//! Selections on a small grid of three families.

use super::*;
use crate::{family::attention, kernel::Feature};

const GRID: &str = r#"
version = 1
[targets.sm80]
description = "Ampere"
[targets.sm90]
description = "Hopper"
[targets.sm120]
description = "Blackwell"
[[family]]
kind = ["fwd"]
head_dim = [64, 128, 160]
dtype = ["fp16", "bf16"]
mask = ["full", "causal"]
target = ["sm80", "sm90"]
[[family]]
kind = ["bwd"]
head_dim = [64, 80, 128]
dtype = ["bf16"]
mask = ["full"]
target = ["sm80"]
[[family]]
kind = ["fwd_combine"]
target = ["sm80"]
[[exclude]]
when = "hdim > 128 and target == sm90"
reason = "too wide for now"
[[exclude]]
when = "kind == bwd and hdim > 64 and hdim < 96"
reason = "no tile fits"
[sets.slim]
description = "small ones"
filter = "hdim <= 64 or kind == fwd_combine"
"#;

fn grid() -> Grid {
    Grid::parse(GRID, "test.toml").unwrap_or_else(|error| panic!("{error}"))
}

#[track_caller]
fn names(selection: &Selection) -> Vec<String> {
    let selected = grid().select(selection).unwrap_or_else(|error| panic!("{error}"));
    assert!(selected.is_sorted_by(|a, b| a < b), "sorted, no duplicates");
    selected.iter().map(Variant::name).collect()
}

#[track_caller]
fn refusal(selection: &Selection) -> String {
    grid().select(selection).expect_err("nothing is selected").to_string()
}

#[test]
fn an_empty_selection_is_the_whole_grid() {
    assert_eq!(grid().select(&Selection::default()).as_deref(), Ok(grid().variants()));
}

#[test]
fn flags_intersect() {
    let selection = Selection {
        head_dims: vec![HeadDim::equal(128), HeadDim::equal(64), HeadDim::equal(64)],
        dtypes: vec![Dtype::Bf16],
        causal: Some(false),
        targets: vec![Target::Sm80],
        ..Selection::default()
    };
    let expected = [
        "flash_fwd_hdim64_bf16_sm80",
        "flash_fwd_hdim128_bf16_sm80",
        "flash_bwd_hdim64_bf16_sm80",
        "flash_bwd_hdim128_bf16_sm80",
    ];
    assert_eq!(names(&selection), expected);
    assert_eq!(names(&Selection { set: Some("slim".into()), ..selection.clone() }), [expected[0], expected[2]]);
    assert_eq!(names(&Selection { filter: "kind == fwd and hdim > 64".parse().ok(), ..selection }), [expected[1]]);
}

#[test]
fn a_head_dim_outside_the_grid_extends_the_selected_families() {
    let selection = Selection {
        kinds: vec![attention::Kind::Fwd.into()],
        head_dims: vec![HeadDim::equal(72)],
        dtypes: vec![Dtype::Fp16],
        targets: vec![Target::Sm80],
        ..Selection::default()
    };
    assert_eq!(names(&selection), ["flash_fwd_hdim72_fp16_sm80", "flash_fwd_hdim72_fp16_causal_sm80"]);
}

#[test]
fn a_head_dim_in_the_grid_is_not_made_for_families_that_lack_it() {
    assert!(
        names(&Selection { head_dims: vec![HeadDim::equal(160)], ..Selection::default() })
            .iter()
            .all(|name| name.contains("_fwd_"))
    );
}

#[test]
fn a_head_dim_the_selected_family_lacks_is_made_for_it() {
    let selection = Selection {
        kinds: vec![attention::Kind::Bwd.into()],
        head_dims: vec![HeadDim::equal(128), HeadDim::equal(160)],
        ..Selection::default()
    };
    assert_eq!(names(&selection), ["flash_bwd_hdim128_bf16_sm80", "flash_bwd_hdim160_bf16_sm80"]);
}

#[test]
fn excludes_hold_outside_the_grid_too() {
    let all = names(&Selection { head_dims: vec![HeadDim::equal(72)], ..Selection::default() });
    assert!(!all.is_empty() && all.iter().all(|name| !name.contains("bwd")));
    let message = refusal(&Selection {
        kinds: vec![attention::Kind::Bwd.into()],
        head_dims: vec![HeadDim::equal(72)],
        ..Selection::default()
    });
    assert!(message.contains("`flash_bwd_hdim72_bf16_sm80`: no tile fits"), "{message}");
}

#[test]
fn a_selection_of_excluded_variants_names_them_and_the_reason() {
    let message =
        refusal(&Selection { head_dims: vec![HeadDim::equal(160)], targets: vec![Target::Sm90], ..Selection::default() });
    assert!(message.contains("`flash_fwd_hdim160_fp16_sm90`") && message.contains("and 1 more: too wide for now"), "{message}");
}

#[test]
fn a_value_no_family_has_is_refused_with_those_there_are() {
    let message = refusal(&Selection { targets: vec![Target::Sm80, Target::Sm120], ..Selection::default() });
    assert!(message.starts_with("no family in the grid has target `sm120`; the grid has: `sm80`, `sm90`\n"), "{message}");
    assert!(message.ends_with("kernels for `sm80` carry PTX and run on `sm120` too: select `--target sm80`"), "{message}");
    let message = refusal(&Selection { targets: vec![Target::Sm75], ..Selection::default() });
    assert!(message.ends_with("add a `[[family]]` with it to the grid, or select one it has"), "nothing older: {message}");
    let message = refusal(&Selection { dtypes: vec![Dtype::Fp8], ..Selection::default() });
    assert!(message.contains("dtype `fp8`; the grid has: `fp16`, `bf16`"), "{message}");
    let message = refusal(&Selection { kinds: vec![attention::Kind::FwdSplit.into()], ..Selection::default() });
    assert!(message.contains("kind `fwd_split`; the grid has: `fwd`, `fwd_combine`, `bwd`"), "{message}");
    let message = refusal(&Selection { set: Some("slin".into()), ..Selection::default() });
    assert!(message.contains("no set `slin`") && message.contains("did you mean `slim`?"), "{message}");
}

#[test]
fn the_flag_that_emptied_a_selection_is_named() {
    let bwd = Selection { kinds: vec![attention::Kind::Bwd.into()], ..Selection::default() };
    let cases = [
        (
            Selection { targets: vec![Target::Sm90], ..bwd.clone() },
            "`--target sm90` leaves none of the 2 variants with `--kind bwd`",
        ),
        (
            Selection { dtypes: vec![Dtype::Fp16], ..bwd.clone() },
            "`--dtype fp16` leaves none of the 2 variants with `--kind bwd`",
        ),
        (Selection { causal: Some(true), ..bwd }, "`--causal` leaves none of"),
        (
            Selection {
                set: Some("slim".into()),
                head_dims: vec![HeadDim::equal(160)],
                dtypes: vec![Dtype::Fp16],
                ..Selection::default()
            },
            "`--set slim` leaves none of the 2 variants with `--head-dim 160`, `--dtype fp16`",
        ),
        (
            Selection { filter: "hdim == 72".parse().ok(), ..Selection::default() },
            "`--filter 'hdim == 72'` leaves none of the 23 variants of the grid",
        ),
        (
            Selection {
                kinds: vec![attention::Kind::FwdCombine.into()],
                head_dims: vec![HeadDim::equal(64)],
                ..Selection::default()
            },
            "`--kind fwd_combine` leaves none",
        ),
    ];
    for (selection, expected) in cases {
        let message = refusal(&selection);
        assert!(message.contains(expected), "{expected}\n{message}");
    }
}

#[test]
fn a_helper_kernel_is_selected_by_kind_target_and_set_only() {
    assert_eq!(
        names(&Selection { kinds: vec![attention::Kind::FwdCombine.into()], ..Selection::default() }),
        ["flash_fwd_combine_sm80"]
    );
    assert!(
        names(&Selection { set: Some("slim".into()), ..Selection::default() }).contains(&"flash_fwd_combine_sm80".to_owned())
    );
    for selection in [
        Selection { dtypes: vec![Dtype::Fp16], ..Selection::default() },
        Selection { causal: Some(false), ..Selection::default() },
        Selection { head_dims: vec![HeadDim::equal(64)], ..Selection::default() },
    ] {
        assert!(names(&selection).iter().all(|name| !name.contains("combine")), "{selection:?}");
    }
}

#[test]
fn an_impossible_head_dim_is_refused() {
    let message = refusal(&Selection { head_dims: vec![HeadDim::equal(64), HeadDim::equal(264)], ..Selection::default() });
    assert!(message.contains("impossible head dim `264`") && message.contains("16 to 256"), "{message}");
}

/// A head dim extends families that do not declare it, except those whose features have head dims of their own.
#[test]
fn features_with_their_own_head_dims_have_no_others_unless_they_are_named() {
    let kernels = |feature, head_dim, features| {
        let selection = Selection { head_dims: vec![head_dim], features, ..Selection::default() };
        let found = Grid::builtin().select(&selection).expect("there are some");
        found.into_iter().filter(|variant| variant.coordinates().features.is_some_and(|set| set.has(feature))).count()
    };
    assert_eq!([HeadDim::equal(64), HeadDim::LATENT].map(|head_dim| kernels(Feature::Qv, head_dim, None)), [0, 2]);
    assert_eq!([64, 72].map(|head_dim| kernels(Feature::Long, HeadDim::equal(head_dim), None)), [2, 0]);
    let named = Some(Features::from_iter([Feature::Long]));
    assert!(kernels(Feature::Long, HeadDim::equal(48), named) > 0);
    assert_eq!([64, 72, 128].map(|head_dim| kernels(Feature::M128, HeadDim::equal(head_dim), None)), [4, 0, 2]);
}
