//! The row of a profile: counts of accesses and counters instead of times.

use super::row::{self, Row, Run};
use crate::{
    bench::{Made, Size, Status},
    kernel::Variant,
};
use serde_json::{Map, Value};

/// A profile of one kernel at one size.
#[derive(Debug)]
pub struct Profiled<'a> {
    /// The variant.
    pub variant: Variant,
    /// Its tile and text.
    pub made: &'a Made,
    /// The library's manifest entry for it, empty if there is none.
    pub built: &'a Map<String, Value>,
    /// The size.
    pub shape: &'a Size,
    /// The outcome.
    pub status: Status,
    /// The reason for missing numbers.
    pub message: &'a str,
    /// Counts and counters.
    pub numbers: Value,
    /// What else is known of the kernel.
    pub details: Value,
}

impl Row {
    /// The row of a profile: `numbers` are its counts. `circumstances` are those of the run.
    pub fn of_profile(profiled: &Profiled<'_>, run: &Run, circumstances: &Value) -> Self {
        let Profiled { variant, made, built, shape, status, message, numbers, details } = profiled;
        let name = variant.name();
        let mut sizes = row::object(shape);
        sizes.extend(row::of_variant(variant));
        Self {
            format: row::FORMAT,
            bench: row::PROFILE.to_owned(),
            case: format!("{name} {shape}"),
            contender: row::contender(made).to_owned(),
            own: made.edited.is_none(),
            shape: sizes,
            dtype: variant.dtype().map(|dtype| dtype.to_string()),
            layout: None,
            status: (*status).into(),
            message: (*message).to_owned(),
            numbers: (*status == Status::Ok).then(|| row::object(numbers)),
            card: Map::new(),
            kernel: Some(row::kernel(&name, *variant, made, built)),
            details: row::object(details),
            run: run.with(circumstances),
            foreign: None,
        }
    }
}
