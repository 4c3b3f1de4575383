//! The JSON document of one `kgen bench` run.

use super::{Measurement, ceiling::Ceiling, turns::PeerMeasurement};
use crate::device::{CardState, GpuFacts, TimingPlan};
use serde::Serialize;
use std::time::{SystemTime, UNIX_EPOCH};

/// Version of the document; raised when a field changes its meaning or is removed.
pub const FORMAT: u32 = 1;

/// The document.
#[derive(Debug, Serialize)]
pub struct Report {
    /// [`FORMAT`].
    pub format: u32,
    /// kgen's version.
    pub kgen: &'static str,
    /// Start of the run, UTC: `2026-11-21T16:43:05Z`.
    pub date: String,
    /// Path of the kernel library, as passed by the user.
    pub library: String,
    /// The card.
    pub gpu: GpuFacts,
    /// Version of the GPU driver, from NVML.
    pub driver: Option<String>,
    /// Rates that no measurement may exceed.
    pub ceiling: Ceiling,
    /// State of the card before the first measurement.
    pub card_before: CardState,
    /// State of the card after the last measurement.
    pub card_after: CardState,
    /// The timing plan of all measurements.
    pub plan: TimingPlan,
    /// Seed of the inputs.
    pub seed: u64,
    /// Name of the suite.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suite: Option<String>,
    /// What the suite asks for and is not measured, each with the reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// The measurements, in selection order; the shapes of a variant are adjacent.
    pub measurements: Vec<Measurement>,
    /// The peers that took turns with them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<PeerMeasurement>,
}

/// The current time in UTC, to the second.
pub fn now() -> String {
    // If the clock is set before 1970, the date shows it.
    utc(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()))
}

/// The UTC day of a Unix time in seconds, such as `2026-11-27`.
pub fn day(seconds: u64) -> String {
    let mut date = utc(seconds);
    date.truncate("2026-11-27".len());
    date
}

/// The date and time (UTC) of a Unix time in seconds.
fn utc(seconds: u64) -> String {
    let (mut days, time) = (seconds / 86_400, seconds % 86_400);
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let mut year = 1970;
    loop {
        let length = if leap(year) { 366 } else { 365 };
        if days < length {
            break;
        }
        days -= length;
        year += 1;
    }
    let february = if leap(year) { 29 } else { 28 };
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    let (hour, minute, second) = (time / 3600, time / 60 % 60, time % 60);
    format!("{year}-{month:02}-{:02}T{hour:02}:{minute:02}:{second:02}Z", days + 1)
}

#[cfg(test)]
mod tests {
    use super::utc;

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(utc(0), "1970-01-01T00:00:00Z");
        assert_eq!(utc(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(utc(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(utc(1_000_000_000), "2001-09-09T01:46:40Z");
        assert_eq!(utc(4_107_542_399), "2100-02-28T23:59:59Z");
        assert_eq!(utc(4_107_542_400), "2100-03-01T00:00:00Z");
    }
}
