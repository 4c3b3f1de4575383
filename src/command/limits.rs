//! Ranges of the numbers in requests. The command line uses the same ranges.

use super::CommandError;
use std::ops::RangeInclusive;

/// Time limits, in seconds: up to a year, which overflows no clock arithmetic.
pub(crate) const SECONDS: RangeInclusive<u64> = 1..=365 * 24 * 3600;

/// Rounds of a timing.
pub(crate) const ROUNDS: RangeInclusive<u64> = 1..=10_000;

/// Repetitions of a timing in new processes.
pub(crate) const PROCESSES: RangeInclusive<u64> = 1..=100;

/// Tiles of a search.
pub(crate) const CANDIDATES: RangeInclusive<u64> = 2..=10_000;

/// Warm-up of a timing, in milliseconds.
pub(crate) const WARM_UP_MS: RangeInclusive<u64> = 0..=60_000;

/// Total duration of a timing's rounds, in milliseconds.
pub(crate) const MEASURE_MS: RangeInclusive<u64> = 1..=600_000;

/// Exact numbers of calls of a timing.
pub(crate) const CALLS: RangeInclusive<u64> = 1..=100_000;

/// Sizes of a call: a kernel takes 31 bits, and a GPU's memory holds far less.
pub(crate) const SIZE: RangeInclusive<u64> = 1..=1 << 24;

/// Sides of a matrix: a vector may have more elements than 32 bits count.
pub(crate) const MATRIX_SIDE: RangeInclusive<u64> = 1..=1 << 36;

/// Ages of entries of the cache, in days.
pub(crate) const DAYS: RangeInclusive<u64> = 0..=36_500;

/// Refuses a number of a request that is out of range.
///
/// # Errors
/// [`CommandError::Usage`] with the name of the field.
pub(super) fn within(field: &str, value: u64, range: &RangeInclusive<u64>) -> Result<(), CommandError> {
    if range.contains(&value) {
        return Ok(());
    }
    let (least, most) = (range.start(), range.end());
    Err(CommandError::Usage(format!("`{field}` is {value}; give a number from {least} to {most}")))
}
