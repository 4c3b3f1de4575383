//! Shell-style patterns for variant names: `*` matches any run of characters, `?` any single one.

/// True if `pattern` matches all of `name`.
pub(super) fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut p, mut n) = (0, 0);
    // After a mismatch the last `*` matches one more character; earlier stars never need to be extended.
    let mut last_star = None;
    while n < name.len() {
        match pattern.get(p) {
            Some('*') => {
                last_star = Some((p, n));
                p += 1;
            }
            Some(c) if *c == '?' || *c == name[n] => {
                p += 1;
                n += 1;
            }
            _ => {
                let Some((star, taken)) = last_star else { return false };
                last_star = Some((star, taken + 1));
                p = star + 1;
                n = taken + 1;
            }
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn a_pattern_has_to_fit_the_whole_name() {
        assert!(matches("flash_fwd", "flash_fwd"));
        assert!(!matches("flash", "flash_fwd"));
        assert!(!matches("fwd", "flash_fwd"));
        assert!(!matches("flash_fwd_", "flash_fwd"));
    }

    #[test]
    fn stars_take_any_run_and_question_marks_one_character() {
        assert!(matches("*", ""));
        assert!(matches("flash_*_bf16*", "flash_fwd_hdim64_bf16_sm80"));
        assert!(matches("*_hdim??_*", "flash_fwd_hdim64_bf16_sm80"));
        assert!(!matches("*_hdim??_*", "flash_fwd_hdim128_bf16_sm80"));
        assert!(!matches("?", ""));
        assert!(!matches("", "a"));
    }

    #[test]
    fn a_star_gives_back_what_a_later_part_needs() {
        assert!(matches("*ab*abc", "ababab_ababc"));
        assert!(matches("a*a*a*b", "aaaaaaab"));
        assert!(!matches("a*a*a*b", "aaaaaaac"));
    }
}
