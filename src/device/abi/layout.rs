//! Structures of `kgen.h`, parsed from the header itself, so that their fields are declared only once.

use super::{Field, Fields};
use std::iter;

/// One member of a structure as declared in C.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Declaration {
    /// Type of the member without `const` and `*`.
    pub(super) base: &'static str,
    /// True for a pointer.
    pub(super) is_pointer: bool,
    /// Name of the member.
    pub(super) name: &'static str,
    /// Number of elements, for an array.
    pub(super) count: Option<usize>,
    /// True if a later version than the structure's first added it.
    pub(super) is_later: bool,
}

/// One number or pointer of a structure: a member, an element of an array, or a member of a nested structure.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    /// `q`, `features.softcap`, `score.scalars[3]`.
    path: String,
    declaration: Declaration,
    offset: usize,
}

/// A structure's members after `struct_size` and `flags`, and their offsets in C.
#[derive(Debug, PartialEq, Eq)]
pub struct Layout {
    structure: &'static str,
    places: Vec<Place>,
    size: usize,
    first_version: usize,
}

impl Declaration {
    /// Size of one element in bytes; `None` for a nested structure.
    fn bytes(&self) -> Option<usize> {
        match self.base {
            _ if self.is_pointer || self.base.ends_with("_launcher") => Some(8),
            "int32_t" | "uint32_t" | "float" => Some(4),
            "int64_t" | "uint64_t" | "size_t" | "double" => Some(8),
            _ => None,
        }
    }
}

impl Layout {
    /// The layout of `structure`, declared in `header`. Nested structures are aligned to 8 bytes.
    ///
    /// # Panics
    /// If the header, which ships with kgen, does not declare it.
    pub fn of(header: &'static str, structure: &'static str) -> Self {
        let mut layout = Self { structure, places: Vec::new(), size: 8, first_version: 0 };
        let all = declarations(header, structure);
        layout.add(header, "", all.into_iter().filter(|one| !matches!(one.name, "struct_size" | "flags")).collect());
        layout.size = layout.size.next_multiple_of(8);
        let later = layout.places.iter().find(|place| place.declaration.is_later);
        layout.first_version = later.map_or(layout.size, |place| place.offset);
        layout
    }

    fn add(&mut self, header: &'static str, prefix: &str, declarations: Vec<Declaration>) {
        for declaration in declarations {
            let path = format!("{prefix}{}", declaration.name);
            let Some(bytes) = declaration.bytes() else {
                self.size = self.size.next_multiple_of(8);
                let is_later = declaration.is_later;
                let within = self::declarations(header, declaration.base).into_iter();
                self.add(header, &format!("{path}."), within.map(|one| Declaration { is_later, ..one }).collect());
                self.size = self.size.next_multiple_of(8);
                continue;
            };
            let elements = declaration.count.map_or(vec![path.clone()], |n| (0..n).map(|i| format!("{path}[{i}]")).collect());
            for path in elements {
                let offset = self.size.next_multiple_of(bytes);
                self.places.push(Place { path, declaration, offset });
                self.size = offset + bytes;
            }
        }
    }

    /// The structure with these values. A pointer without a value is the tensor of the same name, `workspace_bytes` is
    /// the size of the workspace, and reserved numbers are 0.
    ///
    /// # Panics
    /// If any other number has no value, or a value has no field.
    pub fn fill<'a>(&'static self, flags: u32, values: impl IntoIterator<Item = (impl Into<String>, Field)> + 'a) -> Fields {
        let value = |place: &Place| match place.declaration {
            Declaration { is_pointer: true, name, .. } => Some(Field::Tensor(name)),
            Declaration { name: "workspace_bytes", .. } => Some(Field::WorkspaceBytes),
            Declaration { name, .. } if name.starts_with("reserved") => Some(Field::I32(0)),
            _ => None,
        };
        let mut given: Vec<Option<Field>> = self.places.iter().map(value).collect();
        for (path, field) in values {
            let path = path.into();
            given[self.index(&path)] = Some(field);
        }
        let missing = |index: usize| panic!("`{}` has a field `{}` without a value", self.structure, self.places[index].path);
        let fields = given.into_iter().enumerate().map(|(index, field)| field.unwrap_or_else(|| missing(index))).collect();
        let fields = Fields { flags, layout: self, values: fields };
        for (place, field) in iter::zip(&self.places, &fields.values) {
            assert_eq!(place.declaration.bytes(), Some(field.bytes()), "bytes of `{}` of `{}`", place.path, self.structure);
        }
        fields
    }

    /// The index of the field at `path`.
    ///
    /// # Panics
    /// If there is none.
    pub(super) fn index(&self, path: &str) -> usize {
        let found = self.places.iter().position(|place| place.path == path);
        found.unwrap_or_else(|| panic!("`{}` has no field `{path}`", self.structure))
    }

    /// Offsets of the fields, in bytes.
    pub(super) fn offsets(&self) -> impl Iterator<Item = usize> {
        self.places.iter().map(|place| place.offset)
    }

    /// Size of the structure in bytes.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Size of its first version in bytes.
    pub(super) fn first_version(&self) -> usize {
        self.first_version
    }

    /// Paths and offsets of members with the same name in C; for an array, its first element.
    #[cfg(test)]
    pub(super) fn named(&self) -> Vec<(String, usize)> {
        let first = |place: &&Place| !place.path.ends_with(']') || place.path.ends_with("[0]");
        let named = |place: &Place| (place.path.trim_end_matches("[0]").to_owned(), place.offset);
        [("struct_size".to_owned(), 0), ("flags".to_owned(), 4)]
            .into_iter()
            .chain(self.places.iter().filter(first).map(named))
            .collect()
    }
}

/// Members of `structure`, in order.
///
/// # Panics
/// If `header` does not declare it.
pub(super) fn declarations(header: &'static str, structure: &str) -> Vec<Declaration> {
    let (begin, end) = (format!("typedef struct {structure} {{"), format!("}} {structure};"));
    let body = header.split_once(&begin).and_then(|(_, rest)| rest.split_once(&end));
    let mut rest = body.unwrap_or_else(|| panic!("the header declares no `{structure}`")).0;
    let (mut found, mut is_later) = (Vec::new(), false);
    loop {
        rest = rest.trim_start();
        if let Some(comment) = rest.strip_prefix("/*") {
            is_later |= comment.starts_with(" From version");
            rest = comment.split_once("*/").map_or("", |(_, rest)| rest);
        } else if let Some((statement, after)) = rest.split_once(';') {
            found.extend(members(statement, is_later));
            rest = after;
        } else {
            return found;
        }
    }
}

/// The members that a C declaration declares, such as `const float* tables[4]` or `int64_t a, b`.
fn members(statement: &'static str, is_later: bool) -> impl Iterator<Item = Declaration> {
    let (base, names) = statement.trim_start_matches("const ").split_once([' ', '*']).unwrap_or((statement, ""));
    let is_pointer = statement.contains('*');
    names.split(',').map(move |name| {
        let name = name.trim_matches([' ', '*']);
        let (name, count) = name.split_once('[').map_or((name, None), |(name, count)| (name, Some(count.trim_end_matches(']'))));
        Declaration { base, is_pointer, name, count: count.and_then(|count| count.parse().ok()), is_later }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "/* One. */
typedef struct inner {
    float x;
    const float* slopes; /* may be NULL */
} inner;
typedef struct outer {
    uint32_t struct_size;
    uint32_t flags; /* 0 */
    const void* q;
    int32_t rows, columns;
    int32_t last;

    /* From version 2 on. */
    inner within;
    uint64_t id;
    int32_t integers[2]; /* two */
    size_t workspace_bytes;
    int32_t reserved; /* 0 */
} outer;
";

    #[test]
    fn members_are_where_c_puts_them() {
        let layout = Layout::of(HEADER, "outer");
        let named: Vec<(String, usize)> = layout.named();
        let expected = [
            ("struct_size", 0),
            ("flags", 4),
            ("q", 8),
            ("rows", 16),
            ("columns", 20),
            ("last", 24),
            ("within.x", 32),
            ("within.slopes", 40),
            ("id", 48),
            ("integers", 56),
            ("workspace_bytes", 64),
            ("reserved", 72),
        ];
        assert_eq!(named, expected.map(|(name, offset)| (name.to_owned(), offset)));
        assert_eq!((layout.size(), layout.first_version()), (80, 32));
    }

    fn outer() -> &'static Layout {
        Box::leak(Box::new(Layout::of(HEADER, "outer")))
    }

    #[test]
    fn values_are_put_by_name_and_pointers_are_to_the_tensors_of_their_names() {
        let values = [
            ("columns", Field::I32(2)),
            ("rows", Field::I32(1)),
            ("last", Field::I32(3)),
            ("within.x", Field::F32(4.0)),
            ("id", Field::U64(5)),
            ("integers[1]", Field::I32(7)),
            ("integers[0]", Field::I32(6)),
        ];
        let fields = outer().fill(9, values).values;
        let expected = [
            Field::Tensor("q"),
            Field::I32(1),
            Field::I32(2),
            Field::I32(3),
            Field::F32(4.0),
            Field::Tensor("slopes"),
            Field::U64(5),
            Field::I32(6),
            Field::I32(7),
            Field::WorkspaceBytes,
            Field::I32(0),
        ];
        assert_eq!(fields, expected);
    }

    #[test]
    #[should_panic(expected = "`outer` has a field `rows` without a value")]
    fn a_number_without_a_value_is_refused() {
        outer().fill(0, [("columns", Field::I32(2))]);
    }

    #[test]
    #[should_panic(expected = "`outer` has no field `colums`")]
    fn a_value_without_a_place_is_refused() {
        outer().fill(0, [("colums", Field::I32(2))]);
    }
}
