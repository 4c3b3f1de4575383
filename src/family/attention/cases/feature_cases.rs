//! Cases of the features of a forward kernel: each alone, all pairs, and all together.

use super::declared;
use crate::{
    check::{Level, Subject},
    family::attention::{
        CallOptions, Point,
        features::{Borders, FeatureRoom, SPLITS, counts, decode, rooms, together, unlike},
        oracle::{
            problem::{Layout, Problem},
            split::{Listed, SPLIT_KEYS},
        },
    },
    kernel::Feature,
};
use itertools::Itertools;

/// The cases of a kernel's features; empty for a plain kernel.
pub fn cases(subject: &Subject<Point>, level: Level) -> Vec<Problem> {
    let borders = Borders::forward(subject, level);
    let Borders { features, m, n, .. } = borders;
    let mut cases: Vec<Problem> = rooms(features).flat_map(|room| room.forward(&borders)).collect();
    let all: Vec<Feature> = features.iter().collect();
    let pairs = all.iter().copied().array_combinations::<2>();
    cases.extend(pairs.map(|pair| borders.batch().asking(together(&pair, n))));
    if all.len() > 2 {
        cases.push(borders.batch().asking(together(&all, n)));
        cases.push(borders.long().layout(Layout::Padded).asking(together(&all, n)));
        cases.push(Problem::new(&[(70, 113)], 5, 1).layout(Layout::Unaligned).asking(together(&all, n)));
        cases.push(Problem::new(&[(1, 3 * n + 7); 3], 8, 2).asking(together(&all, n)));
    }
    cases.extend(features.score().into_iter().flat_map(|score| declared::forward(score, m, n)));
    cases
}

/// The cases of a split-KV kernel's features. Windows and chunks leave a whole number of units of keys for the splits,
/// and one key more or fewer; some splits get no key.
pub fn splits(variant: Point) -> Vec<Listed> {
    let mut cases: Vec<Listed> = rooms(variant.served_features()).flat_map(FeatureRoom::splits).collect();
    let all: Vec<Feature> = variant.features.iter().collect();
    let pairs = all.iter().copied().array_combinations::<2>();
    cases.extend(pairs.map(|pair| (unlike().asking(together(&pair, 40)), 4, Some(counts()))));
    if all.len() > 2 {
        cases.push((unlike().layout(Layout::Padded).asking(together(&all, 40)), 4, Some(counts())));
        cases.push((Problem::new(&[(7, 113)], 8, 1).layout(Layout::Unaligned).asking(together(&all, 30)), SPLITS, None));
        cases.push((Problem::new(&[(1, 331); 3], 8, 2).asking(together(&all, 100)), 5, None));
    }
    if let Some(score) = variant.features.score() {
        for call in declared::calls(score, SPLIT_KEYS, 3 * SPLIT_KEYS) {
            let options = CallOptions { declared: Some(call), ..CallOptions::default() };
            cases.push((decode(8, 2).asking(options), SPLITS, None));
            cases.push((unlike().asking(options), 4, Some(counts())));
        }
    }
    cases
}

/// Additional cases of a thorough check.
pub fn splits_thoroughly(variant: Point) -> impl Iterator<Item = Listed> {
    rooms(variant.served_features()).flat_map(FeatureRoom::splits_thoroughly)
}
