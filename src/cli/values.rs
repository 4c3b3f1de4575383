//! Parsers of numbers and sizes.

use std::{num::NonZeroUsize, ops::RangeInclusive, str::FromStr};

/// A size as written on the command line: `8G`, `500M`, `1.5GiB`, a bare number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ByteSize(pub u64);

impl FromStr for ByteSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not a size; write for example `8G`, `500M` or `2GiB`");
        let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let number: f64 = number.parse().map_err(|_| wrong())?;
        let factor = match unit.trim().to_ascii_lowercase().as_str() {
            "" | "b" => 1.0,
            "k" | "kb" => 1e3,
            "m" | "mb" => 1e6,
            "g" | "gb" => 1e9,
            "t" | "tb" => 1e12,
            "ki" | "kib" => 1024.0,
            "mi" | "mib" => 1024.0 * 1024.0,
            "gi" | "gib" => 1024.0 * 1024.0 * 1024.0,
            _ => return Err(wrong()),
        };
        let bytes = number * factor;
        if bytes < 1.0 { Err(format!("`{text}` is no memory at all")) } else { Ok(Self(bytes as u64)) }
    }
}

/// Parses a degree of parallelism from the command line.
///
/// # Errors
/// The expectation, if the text is not a whole number of at least 1.
pub(super) fn at_least_one(text: &str) -> Result<NonZeroUsize, String> {
    text.parse().map_err(|_| "expected a whole number from 1 on".to_owned())
}

/// Parser of a whole number in a range. clap's own says of a negative one only that its first digit is none.
pub(super) fn whole<T: TryFrom<u64>>(range: RangeInclusive<u64>) -> impl Fn(&str) -> Result<T, String> + Clone {
    move |text| {
        let number: i128 = text.parse().map_err(|error: std::num::ParseIntError| error.to_string())?;
        let within = u64::try_from(number).ok().filter(|number| range.contains(number));
        within.and_then(|number| T::try_from(number).ok()).ok_or_else(|| match range.end() {
            &u64::MAX => format!("{number} is not a whole number from {} on", range.start()),
            most => format!("{number} is not in {}..={most}", range.start()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_out_of_range_are_answered_with_the_range() {
        let (some, any) = (whole::<u64>(1..=9), whole::<usize>(0..=u64::MAX));
        assert_eq!((some("9"), any("0")), (Ok(9), Ok(0)));
        for text in ["0", "10", "-3", "99999999999999999999"] {
            assert_eq!(some(text), Err(format!("{text} is not in 1..=9")));
        }
        assert_eq!(any("-1"), Err("-1 is not a whole number from 0 on".to_owned()));
        assert!(some("x").is_err_and(|error| error.contains("digit")));
    }

    #[test]
    fn sizes_are_read_with_and_without_units() {
        for (text, bytes) in
            [("8G", 8_000_000_000), ("500M", 500_000_000), ("1.5GiB", 1_610_612_736), ("1024", 1024), ("2k", 2000)]
        {
            assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text}");
        }
        for text in ["", "G", "8X", "-1G", "0", "1.2.3M"] {
            assert!(text.parse::<ByteSize>().is_err(), "`{text}` was taken");
        }
    }
}
