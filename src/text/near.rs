//! The word that a person probably meant, and lists of words for messages.

/// ``did you mean `hdim`?`` if one of `known` is close enough to `word`.
pub fn suggestion(word: &str, known: &[&str]) -> Option<String> {
    let word = word.to_ascii_lowercase();
    // The first letter is rarely wrong: among equally close candidates, those with the same first letter come first.
    let begins_alike = |candidate: &str| candidate.chars().next() == word.chars().next();
    let near = known.iter().map(|candidate| (edits(&word, candidate), candidate));
    let near = near.min_by_key(|(distance, candidate)| (*distance, !begins_alike(candidate)));
    let (distance, candidate) = near?;
    // At most a third of the letters may differ: beyond that, the suggestion is a guess.
    let worth_saying = distance * 3 <= candidate.chars().count().max(word.chars().count());
    worth_saying.then(|| format!("did you mean `{candidate}`?"))
}

/// Names in back-ticks, separated by commas.
pub(crate) fn ticked<S: AsRef<str>>(names: &[S]) -> String {
    names.iter().map(|name| format!("`{}`", name.as_ref())).collect::<Vec<_>>().join(", ")
}

/// Number of insertions, deletions, replacements and swaps of neighbours that turn `a` into `b` (optimal string
/// alignment).
fn edits(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    // distances[i][j] is the distance from the first i characters of `a` to the first j of `b`.
    let mut distances = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            distances[i][j] = if i == 0 || j == 0 {
                i + j
            } else {
                let one_off = distances[i - 1][j].min(distances[i][j - 1]) + 1;
                let replaced = distances[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
                let swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
                let swapped = if swapped { distances[i - 2][j - 2] + 1 } else { usize::MAX };
                one_off.min(replaced).min(swapped)
            };
        }
    }
    distances[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_distance_counts_single_character_edits() {
        assert_eq!(edits("", ""), 0);
        assert_eq!(edits("hdim", "hdim"), 0);
        assert_eq!(edits("hdm", "hdim"), 1);
        assert_eq!(edits("kitten", "sitting"), 3);
        assert_eq!(edits("", "abc"), 3);
        assert_eq!(edits("bf61", "bf16"), 1);
        assert_eq!(edits("sm_08", "sm80"), 2);
    }

    #[test]
    fn a_near_word_is_suggested_and_a_far_one_is_not() {
        assert_eq!(suggestion("hoper", &["hopper", "h100"]).as_deref(), Some("did you mean `hopper`?"));
        assert_eq!(suggestion("volta", &["hopper", "h100"]), None);
        assert_eq!(suggestion("x", &[]), None);
    }

    #[test]
    fn of_words_equally_near_the_one_that_begins_alike_is_suggested() {
        let dtypes = ["fp16", "half", "f16", "bf16", "bfloat16"];
        assert_eq!(suggestion("b16", &dtypes).as_deref(), Some("did you mean `bf16`?"), "`f16` is one edit away too");
    }
}
