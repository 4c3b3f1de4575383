//! Numbers and sizes in sentences.

/// `1 variant`, `2 variants`.
pub(crate) fn count(number: usize, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}

/// A size for people: `512 B`, `12 kB`, `190 MB`, `1.2 GB` (powers of ten).
pub(crate) fn size(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{} kB", bytes / 1_000),
        1_000_000..1_000_000_000 => format!("{} MB", bytes / 1_000_000),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_shown_in_its_own_unit() {
        assert_eq!([999, 1_000, 190_500_000, 1_240_000_000].map(size), ["999 B", "1 kB", "190 MB", "1.2 GB"]);
    }
}
