//! Cached values that are trusted only while they are unchanged.
//!
//! A sealed file is two lines of JSON: the value, and the hash of that line and of the data it is bound to. The seal
//! detects damage and edits, but gives no protection against anyone who can compute the hash.

use super::FieldHasher;
use serde::{Serialize, de::DeserializeOwned};

/// The text of a sealed file for `value`. `bound` is the data it belongs to: its key, or the bytes it describes.
///
/// # Errors
/// The errors of [`serde_json::to_vec`].
pub fn seal(value: &impl Serialize, bound: &[&[u8]]) -> serde_json::Result<Vec<u8>> {
    let mut text = serde_json::to_vec(value)?;
    let hash = hash(&text, bound);
    text.extend(format!("\n\"{hash}\"\n").bytes());
    Ok(text)
}

/// The value of a sealed file; `None` if the file or the `bound` data has changed.
pub fn unseal<T: DeserializeOwned>(text: &[u8], bound: &[&[u8]]) -> Option<T> {
    let mut lines = text.split(|byte| *byte == b'\n');
    let (value, sealed, end) = (lines.next()?, lines.next()?, lines.next()?);
    let whole = sealed == format!("\"{}\"", hash(value, bound)).as_bytes() && end.is_empty() && lines.next().is_none();
    if whole { serde_json::from_slice(value).ok() } else { None }
}

fn hash(value: &[u8], bound: &[&[u8]]) -> String {
    let mut hasher = FieldHasher::default();
    hasher.field("value", value);
    for bytes in bound {
        hasher.field("bound", bytes);
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_edit_of_a_sealed_value_breaks_its_seal() {
        let text = seal(&("a value", 1.5), &[b"key", b"log"]).expect("it serialises");
        assert_eq!(unseal(&text, &[b"key", b"log"]), Some(("a value".to_owned(), 1.5)));
        for at in 0..text.len() {
            let mut edited = text.clone();
            edited[at] ^= 1;
            assert_eq!(unseal::<(String, f64)>(&edited, &[b"key", b"log"]), None, "byte {at}");
        }
        for other in [&[&b"key"[..], b"loh"][..], &[b"other", b"log"], &[b"key"], &[b"keyl", b"og"]] {
            assert_eq!(unseal::<(String, f64)>(&text, other), None, "{other:?}");
        }
        for other in [&text[..text.len() - 1], &[&text[..], b"\n"].concat(), b"", b"\n", b"\"a\"\n"] {
            assert_eq!(unseal::<(String, f64)>(other, &[b"key", b"log"]), None);
        }
    }
}
