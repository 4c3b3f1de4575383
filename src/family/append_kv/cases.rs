//! Cases of an append: lengths at every border of pages, sequences and the cache, every way to specify the destination
//! of rows and their positions, both rotations, every type of cache, and tensors with different memory layouts.

use super::{
    abi,
    case::{AppendCase, Cache, Descales, Queries, Sequence, Starts},
    memory::Crooked,
    refusals,
};
use crate::check::{Case, Level, Number, STRUCTURE, Subject, changed};
use crate::family::rotary::Rotary;
use std::rc::Rc;

const fn sequence(cached: i32, new: usize, queries: usize) -> Sequence {
    Sequence { cached, new, queries }
}

/// Cached and new rows at the borders of pages of 16, sequences with neither, and fewer or more queries than keys.
const UNEQUAL: &[Sequence] = &[
    sequence(0, 17, 17),
    sequence(15, 1, 1),
    sequence(16, 1, 1),
    sequence(20, 0, 0),
    sequence(0, 0, 2),
    sequence(17, 31, 3),
    sequence(31, 2, 0),
    sequence(1, 15, 4),
];

/// The cases of a variant.
pub(super) fn cases(subject: &Subject, level: Level) -> Vec<Box<dyn Case>> {
    let number = Number::of(subject.variant.element());
    let cases = ordinary(number).into_iter().chain(lying(number));
    let cases = cases.chain(if level == Level::Thorough { thorough(number) } else { Vec::new() });
    let paged: Rc<dyn Case> = Rc::new(base(number));
    let dense = AppendCase { cache: Cache::Dense { rows: 48, named: false }, packed: false, ..base(number) };
    let dense: Rc<dyn Case> = Rc::new(AppendCase { sequences: vec![sequence(3, 2, 2); 3], queries: Queries::InPlace, ..dense });
    let cases = cases.map(|case| Box::new(case) as Box<dyn Case>);
    cases.chain(changed(&paged, &[STRUCTURE, refusals::CHANGES])).chain(changed(&dense, &[refusals::OF_DENSE])).collect()
}

/// Pages of 16, unequal lengths, rotated.
fn base(number: Number) -> AppendCase {
    AppendCase {
        number,
        stored: number,
        heads: 6,
        heads_k: 3,
        head_dims: [32, 32],
        sequences: UNEQUAL.to_vec(),
        packed: true,
        spare: 0,
        cache: Cache::Paged { page: 16, pages: 4, holes: false },
        one_cache: false,
        rotary: Some(Rotary { dim: 32, interleaved: false, rows: 64 }),
        queries: Queries::Apart,
        starts: Starts::Cached,
        mask: abi::CAUSAL,
        descales: Descales::None,
        pad: 0,
        crooked: None,
    }
}

#[expect(clippy::unnecessary_wraps, reason = "as a case has it")]
fn rotary(dim: usize, interleaved: bool) -> Option<Rotary> {
    Some(Rotary { dim, interleaved, rows: 64 })
}

/// The case without rotary embedding.
fn plain(case: AppendCase) -> AppendCase {
    AppendCase { rotary: None, queries: Queries::None, ..case }
}

fn ordinary(number: Number) -> Vec<AppendCase> {
    let paged = base(number);
    // One token each: the last row of an entry, the first one beyond it, no length, an empty cache.
    let token = |cached| sequence(cached, 1, 1);
    let tokens = AppendCase {
        sequences: [15, 16, -1, 0, i32::MAX, 7].map(token).to_vec(),
        packed: false,
        cache: Cache::Dense { rows: 16, named: false },
        queries: Queries::InPlace,
        ..paged.clone()
    };
    let dense = AppendCase { sequences: [13, 0, 5, -2, 9].map(|cached| sequence(cached, 4, 3)).to_vec(), ..tokens.clone() };
    let in_one = AppendCase { one_cache: true, head_dims: [64, 64], rotary: rotary(64, false), ..paged.clone() };
    let partial = AppendCase {
        head_dims: [72, 40],
        rotary: rotary(32, true),
        queries: Queries::InPlace,
        mask: abi::WINDOW,
        ..paged.clone()
    };
    let fp8 = |stored| AppendCase { stored, descales: Descales::BySequence, ..paged.clone() };
    let holes = Cache::Paged { page: 16, pages: 3, holes: true };
    let slots = AppendCase { cache: Cache::Slots { page: 16 }, ..paged.clone() };
    vec![
        paged.clone(),
        AppendCase { sequences: Vec::new(), ..dense.clone() },
        AppendCase { sequences: Vec::new(), ..paged.clone() },
        AppendCase { sequences: vec![sequence(3, 0, 0); 2], ..dense.clone() },
        AppendCase { sequences: vec![sequence(3, 0, 2); 2], ..dense.clone() },
        AppendCase { sequences: vec![sequence(3, 2, 0); 2], ..dense.clone() },
        tokens.clone(),
        dense.clone(),
        AppendCase { cache: Cache::Dense { rows: 12, named: true }, mask: 0, ..dense.clone() },
        plain(dense.clone()),
        // All queries at the cached length.
        AppendCase { mask: 0, ..paged.clone() },
        AppendCase { rotary: rotary(32, true), ..paged.clone() },
        AppendCase { rotary: rotary(16, false), head_dims: [40, 64], ..paged.clone() },
        // The copied part is an odd number of pieces, and V is wider or narrower than K.
        AppendCase { rotary: rotary(16, false), head_dims: [40, 8], heads: 5, heads_k: 1, ..paged.clone() },
        AppendCase { rotary: rotary(16, true), head_dims: [24, 56], ..paged.clone() },
        partial.clone(),
        AppendCase { spare: 3, ..partial },
        AppendCase { spare: 2, ..paged.clone() },
        in_one.clone(),
        AppendCase { rotary: rotary(128, false), head_dims: [256, 128], sequences: UNEQUAL[..3].to_vec(), ..paged.clone() },
        // Rows beyond the table, and entries that name no page.
        AppendCase { cache: Cache::Paged { page: 16, pages: 2, holes: false }, ..paged.clone() },
        AppendCase { cache: holes, ..paged.clone() },
        AppendCase { cache: Cache::Paged { page: 1, pages: 40, holes: false }, ..paged.clone() },
        AppendCase { cache: Cache::Paged { page: 5, pages: 8, holes: false }, ..plain(paged.clone()) },
        // Positions outside the tables.
        AppendCase { rotary: Some(Rotary { dim: 32, interleaved: false, rows: 18 }), ..paged.clone() },
        AppendCase { rotary: Some(Rotary { dim: 32, interleaved: true, rows: 17 }), queries: Queries::InPlace, ..paged.clone() },
        AppendCase { starts: Starts::Given, ..paged.clone() },
        AppendCase { starts: Starts::Given, mask: 0, ..dense.clone() },
        fp8(Number::E4m3),
        fp8(Number::E5m2),
        // Threads that handle the last pieces of K have none of V.
        AppendCase { head_dims: [40, 8], rotary: rotary(16, false), sequences: UNEQUAL[..3].to_vec(), ..fp8(Number::E4m3) },
        AppendCase { descales: Descales::None, ..plain(fp8(Number::E4m3)) },
        AppendCase { stored: Number::E4m3, descales: Descales::BySequence, ..in_one },
        slots.clone(),
        AppendCase { descales: Descales::ByPage, ..fp8(Number::E4m3) },
        AppendCase { descales: Descales::ByPage, cache: holes, ..fp8(Number::E5m2) },
        AppendCase { descales: Descales::ByPage, stored: Number::E4m3, ..slots.clone() },
        AppendCase { starts: Starts::EachRow, sequences: vec![sequence(0, 9, 9), sequence(0, 4, 4)], ..slots.clone() },
        AppendCase { starts: Starts::Given, stored: Number::E5m2, descales: Descales::BySequence, ..slots.clone() },
        AppendCase { packed: false, sequences: vec![sequence(0, 6, 2); 3], cache: Cache::Slots { page: 3 }, ..plain(slots) },
    ]
}

/// Tensors whose rows, or another part of the layout, are not multiples of 16 bytes.
fn lying(number: Number) -> Vec<AppendCase> {
    let short = AppendCase { sequences: vec![sequence(3, 2, 2), sequence(15, 3, 1)], ..base(number) };
    let dense = AppendCase {
        packed: false,
        sequences: vec![sequence(3, 2, 2); 2],
        cache: Cache::Dense { rows: 8, named: false },
        ..short.clone()
    };
    let mut cases = vec![
        AppendCase { pad: 8, ..base(number) },
        AppendCase { pad: 3, ..base(number) },
        AppendCase { pad: 3, rotary: rotary(16, true), queries: Queries::InPlace, ..base(number) },
        AppendCase { pad: 3, stored: Number::E4m3, descales: Descales::BySequence, ..base(number) },
        AppendCase { pad: 5, stored: Number::E5m2, ..base(number) },
        AppendCase { pad: 8, stored: Number::E4m3, ..short.clone() },
    ];
    for name in ["k", "v", "k_cache", "v_cache", "q", "q_out"] {
        for what in [Crooked::Origin, Crooked::Batch, Crooked::Row, Crooked::Head] {
            cases.push(AppendCase { crooked: Some((name, what)), ..dense.clone() });
        }
    }
    for name in ["rotary_cos", "rotary_sin"] {
        cases.push(AppendCase { crooked: Some((name, Crooked::Origin)), ..dense.clone() });
    }
    for name in ["k_cache", "v_cache"] {
        cases.push(AppendCase { crooked: Some((name, Crooked::Row)), stored: Number::E4m3, ..short.clone() });
    }
    cases
}

fn thorough(number: Number) -> Vec<AppendCase> {
    let mut cases = Vec::new();
    for dim in [16, 48, 80, 96, 128, 192, 256] {
        for interleaved in [false, true] {
            let rotary = Some(Rotary { dim: dim / 32 * 16 + 16, interleaved, rows: 64 }).filter(|r| r.dim <= dim);
            cases.push(AppendCase { head_dims: [dim, 264 - dim], rotary, ..base(number) });
        }
    }
    for page in [2, 3, 15, 17, 64, 256] {
        let cache = Cache::Paged { page, pages: 48_usize.div_ceil(page), holes: page % 2 == 1 };
        cases.push(AppendCase { cache, ..base(number) });
    }
    // More sequences than a binary search covers in a few steps, most of them empty.
    let sequences = (0..300).map(|i| sequence(i % 40, usize::from(i % 7 == 0), usize::from(i % 5 == 0))).collect();
    cases.push(AppendCase { sequences, ..base(number) });
    // Several blocks for each part.
    cases.push(AppendCase {
        sequences: vec![sequence(7, 100, 90), sequence(0, 33, 60)],
        cache: Cache::Dense { rows: 128, named: false },
        ..base(number)
    });
    cases
}
