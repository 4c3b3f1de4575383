//! Intervals compared with every pair of a query and a key in a box.

use super::{Interval, Trend};
use crate::expression::{
    At, Expr, Goal,
    testing::{self, Values, expression},
};

#[track_caller]
fn interval(text: &str) -> Option<Interval> {
    expression(Goal::Mask, text).interval()
}

#[test]
fn masks_of_models_are_intervals() {
    for (text, low, high, exact) in [
        ("k <= q", "0", "q + 1", true),
        ("k < q", "0", "q", true),
        ("k <= q and q - k < 4096", "q - 4095", "q + 1", true),
        ("q - k < n and k <= q", "q - n + 1", "q + 1", true),
        ("abs(q - k) <= 3", "q - 3", "q + 4", true),
        ("q - n <= k and k <= q + m", "q - n", "q + m + 1", true),
        ("k < n", "0", "n", true),
        ("k <= q or k < n", "0", "max(q + 1, n)", true),
        ("q // 64 == k // 64", "q // 64 * 64", "q // 64 * 64 + 64", true),
        ("q // n == k // n and k <= q", "q // n * n", "min(q // n * n + n, q + 1)", true),
        ("k * 16 <= q", "0", "q // 16 + 1", true),
        ("k == q", "q", "q + 1", true),
        ("h < 4 and k <= q", "0", "select(h < 4, q + 1, 0)", true),
        ("k <= q and (h < 4 or q - k < n)", "select(h < 4, 0, q - n + 1)", "q + 1", true),
        ("select(h < 4, k <= q, q - k < n and k <= q)", "select(h < 4, 0, q - n + 1)", "q + 1", true),
        ("not k > q", "0", "q + 1", true),
        ("true", "0", "seqlen_k", true),
        ("false", "0", "0", true),
        ("k <= q and (q - k < 4096 or k < n)", "0", "q + 1", false),
        ("k <= q and k % 2 == 0", "0", "q + 1", false),
        ("k <= q and k != 5", "0", "q + 1", false),
        ("k <= q and (q - k) // m < n", "0", "q + 1", false),
        ("k <= q and real(k) < a", "0", "q + 1", false),
    ] {
        let found = interval(text).unwrap_or_else(|| panic!("`{text}` has no interval"));
        let shown = (found.low.to_string(), found.high.to_string(), found.exact);
        assert_eq!(shown, (low.to_owned(), high.to_owned(), exact), "`{text}`");
    }
}

#[test]
fn masks_of_which_nothing_is_known_have_none() {
    for text in ["k % 2 == 0", "k != q", "k + k // 2 <= q", "k < 4 or k > q", "abs(q - k) >= 3", "real(k) < a", "k * n < q"] {
        assert_eq!(interval(text), None, "`{text}`");
    }
}

#[test]
fn a_mask_that_would_take_for_ever_ends_with_what_is_known() {
    let deep = (1..40).fold("k".to_owned(), |inner, index| format!("abs({inner} - {index})"));
    let _ = interval(&format!("{deep} < 9"));
    let wide = (0..50).map(|index| format!("k<{index}")).collect::<Vec<_>>().join(" and ");
    assert!(interval(&wide).is_some());
}

/// True if a mask's interval contains all visible keys of every row in a box, and no others if it is exact.
#[track_caller]
fn compare(mask: &Expr, found: &Interval, values: &Values) {
    let at = values.at();
    for q in -12..24 {
        let keys = found.keys(&At { q, ..at });
        for k in 0..i64::try_from(at.seqlen_k).unwrap() {
            let visible = mask.holds(&At { q, k, ..at });
            let inside = keys.contains(&k);
            let context = || format!("`{mask}`: q {q}, k {k} in {keys:?}\n[{}, {})\n{at:?}", found.low, found.high);
            assert!(inside || !visible, "a visible key is left out: {}", context());
            assert!(visible || !inside || !found.exact, "a hidden key is let in: {}", context());
        }
    }
}

#[test]
fn intervals_hold_what_random_masks_show() {
    let mut random = testing::random(21);
    let (mut exact, mut enclosing) = (0, 0);
    for _ in 0..3000 {
        let mask = testing::random_mask(&mut random, 4);
        let Some(found) = mask.interval() else { continue };
        if mask.uses(crate::expression::Variable::K) {
            *(if found.exact { &mut exact } else { &mut enclosing }) += 1;
        }
        let mut values = Values::random(&mut random);
        values.seqlen_k = 24;
        compare(&mask, &found, &values);
    }
    assert!(exact > 200 && enclosing > 200, "{exact} exact and {enclosing} enclosing intervals are too few");
}

#[test]
fn trends_are_those_of_the_bounds() {
    let mut random = testing::random(22);
    let mut known = 0;
    for _ in 0..4000 {
        let mask = testing::random_mask(&mut random, 3);
        let Some(found) = mask.interval() else { continue };
        let (low, high) = found.trends();
        let values = Values::random(&mut random);
        for (bound, trend) in [(&found.low, low), (&found.high, high)] {
            known += u32::from(matches!(trend, Trend::Rising | Trend::Falling));
            let at = |q| bound.whole(&At { q, ..values.at() });
            for q in -12..24 {
                let (here, next) = (at(q), at(q + 1));
                let holds = match trend {
                    Trend::Constant => here == next,
                    Trend::Rising => here <= next,
                    Trend::Falling => here >= next,
                    Trend::Mixed => true,
                };
                assert!(holds, "`{bound}` is not {trend:?}: {here} at {q}, then {next}");
            }
        }
    }
    assert!(known > 100, "only {known} bounds have a trend");
}
