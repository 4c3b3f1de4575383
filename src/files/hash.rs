//! Names for content: BLAKE3 in hexadecimal.

/// Hash of `content`: 64 hexadecimal digits.
pub fn content_hash(content: impl AsRef<[u8]>) -> String {
    blake3::hash(content.as_ref()).to_hex().to_string()
}

/// A hash of named fields, for cache keys. Names and values are preceded by their lengths, so that different lists of
/// fields never give the same bytes.
#[derive(Clone, Debug, Default)]
pub struct FieldHasher(blake3::Hasher);

impl FieldHasher {
    /// Adds a field.
    pub fn field(&mut self, name: &str, value: impl AsRef<[u8]>) {
        for part in [name.as_bytes(), value.as_ref()] {
            self.0.update(&(part.len() as u64).to_le_bytes());
            self.0.update(part);
        }
    }

    /// The hash of the fields so far: 64 hexadecimal digits.
    pub fn finish(&self) -> String {
        self.0.finalize().to_hex().to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_a_field_ends_is_part_of_the_hash() {
        let hash = |fields: &[(&str, &str)]| {
            let mut hasher = FieldHasher::default();
            for (name, value) in fields {
                hasher.field(name, value);
            }
            hasher.finish()
        };
        let hashes = [hash(&[("a", "bc")]), hash(&[("ab", "c")]), hash(&[("a", "b"), ("c", "")]), hash(&[("a", "bc"), ("", "")])];
        assert_eq!(hashes.iter().collect::<std::collections::HashSet<_>>().len(), hashes.len());
    }
}
