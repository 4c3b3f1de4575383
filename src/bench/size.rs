//! The size at which a kernel is timed: numbers named by its family, in display order.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser::SerializeMap};
use std::{borrow::Cow, fmt};

/// Named numbers, such as `rows` 4096 and `columns` 1024. An object in JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Size(Vec<(Cow<'static, str>, u64)>);

impl Size {
    /// A size with these numbers.
    pub fn new(numbers: impl IntoIterator<Item = (&'static str, u64)>) -> Self {
        Self(numbers.into_iter().map(|(name, number)| (name.into(), number)).collect())
    }

    /// The number called `name`, if the size has one.
    pub fn get(&self, name: &str) -> Option<u64> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, number)| *number)
    }
}

impl fmt::Display for Size {
    /// Writes the numbers with their names: `rows=4096 columns=1024`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (name, number)) in self.0.iter().enumerate() {
            write!(f, "{}{name}={number}", if place == 0 { "" } else { " " })?;
        }
        Ok(())
    }
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, number) in &self.0 {
            map.serialize_entry(name, number)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Numbers;
        impl<'de> de::Visitor<'de> for Numbers {
            type Value = Size;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of numbers")
            }

            fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<Size, A::Error> {
                let mut numbers = Vec::new();
                while let Some((name, number)) = map.next_entry::<String, u64>()? {
                    numbers.push((name.into(), number));
                }
                Ok(Size(numbers))
            }
        }
        deserializer.deserialize_map(Numbers)
    }
}

/// A row-major matrix; a vector is one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Matrix {
    /// Rows.
    pub rows: u64,
    /// Elements of a row.
    pub columns: u64,
}

impl Matrix {
    /// The matrix of a size with `rows` and `columns`.
    pub fn of(size: &Size) -> Option<Self> {
        Some(Self { rows: size.get("rows")?, columns: size.get("columns")? })
    }

    /// Number of elements.
    pub fn elements(&self) -> u64 {
        self.rows * self.columns
    }
}

impl From<Matrix> for Size {
    fn from(Matrix { rows, columns }: Matrix) -> Self {
        Self::new([("rows", rows), ("columns", columns)])
    }
}

impl fmt::Display for Matrix {
    /// `4096x1024`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.rows, self.columns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_an_object_in_its_own_order_and_is_read_back() {
        let size = Size::from(Matrix { rows: 4096, columns: 1 << 36 });
        let text = serde_json::to_string(&size).expect("JSON");
        assert_eq!(text, r#"{"rows":4096,"columns":68719476736}"#);
        assert_eq!(serde_json::from_str::<Size>(&text).expect("a size"), size);
        assert_eq!(size.to_string(), "rows=4096 columns=68719476736");
        assert_eq!(Matrix::of(&Size::new([("rows", 1)])), None);
    }
}
