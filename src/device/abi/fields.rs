//! A structure of `kgen.h` and its values, with C's memory layout.

use super::{Address, FOREIGN, Header, LARGEST, Layout};
use std::ffi::c_void;

/// The value of one field.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Field {
    /// A pointer to element (0, 0, 0) of the named tensor; NULL if the call has none.
    Tensor(&'static str),
    /// The pointer of [`Self::Tensor`], plus this many bytes.
    TensorAt(&'static str, isize),
    /// `size_t`: size of the workspace in bytes.
    WorkspaceBytes,
    /// `uint64_t`.
    U64(u64),
    /// `int64_t`.
    I64(i64),
    /// `int32_t`.
    I32(i32),
    /// `float`.
    F32(f32),
}

/// A structure's values, as [`Layout::fill`] creates them.
#[derive(Debug, Clone, PartialEq)]
pub struct Fields {
    /// `KGEN_FLAG_*`.
    pub(super) flags: u32,
    pub(super) layout: &'static Layout,
    /// Values in the order of the C structure, after `struct_size` and `flags`, with which every structure begins.
    pub(super) values: Vec<Field>,
}

/// The structure, with C's alignment, and the memory after it.
#[derive(Debug)]
pub(in crate::device) struct Structure {
    words: Vec<u64>,
    /// Size of its first version in bytes.
    first_version: u32,
}

/// Bytes that an older caller leaves in fields of later versions: not a plausible size, stride, count or address.
const GARBAGE: u64 = 0x7fa5_7fa5_7fa5_7fa5;

impl Field {
    /// Size of the field in bytes.
    pub(super) fn bytes(self) -> usize {
        if matches!(self, Self::I32(_) | Self::F32(_)) { 4 } else { 8 }
    }

    fn value(self, address: Address<'_>, workspace_bytes: usize) -> u64 {
        match self {
            Self::Tensor(name) => address(name).addr() as u64,
            Self::TensorAt(name, bytes) => address(name).addr().wrapping_add_signed(bytes) as u64,
            Self::WorkspaceBytes => workspace_bytes as u64,
            Self::U64(value) => value,
            Self::I64(value) => value.cast_unsigned(),
            Self::I32(value) => u64::from(value.cast_unsigned()),
            Self::F32(value) => value.to_bits().into(),
        }
    }
}

impl Fields {
    /// The field at `path`: `q`, `features.softcap`, `score.scalars[3]`.
    ///
    /// # Panics
    /// If the structure has no such field.
    pub fn at(&mut self, path: &str) -> &mut Field {
        &mut self.values[self.layout.index(path)]
    }

    /// The structure to pass to a launcher.
    pub(super) fn structure(&self, address: Address<'_>, workspace_bytes: usize) -> Structure {
        let size = self.layout.size();
        let mut words = vec![0; size / 8];
        let mut put = |offset: usize, value: u64| words[offset / 8] |= value << (offset % 8 * 8);
        put(0, size as u64);
        put(4, self.flags.into());
        for (field, offset) in self.values.iter().zip(self.layout.offsets()) {
            put(offset, field.value(address, workspace_bytes));
        }
        words.extend([FOREIGN; LARGEST as usize / 8]);
        Structure { words, first_version: self.layout.first_version() as u32 }
    }
}

impl Structure {
    /// These fields with another header; if it is the first version's, the fields of later versions hold garbage.
    pub(super) fn headed(mut self, header: Header) -> Self {
        let (size, flags) = (self.words[0] as u32, (self.words[0] >> 32) as u32);
        let size_of_structure = size as usize / 8;
        let (size, flags) = header.of(size, self.first_version, flags);
        self.words[0] = u64::from(flags) << 32 | u64::from(size);
        self.words.truncate(size_of_structure);
        if header == Header::FirstVersion {
            self.words[self.first_version as usize / 8..].fill(GARBAGE);
        }
        self.words.extend(header.tail(8 * self.words.len()));
        self
    }

    pub(super) fn as_ptr(&self) -> *const c_void {
        self.words.as_ptr().cast()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr;

    fn layout(members: &str) -> &'static Layout {
        let members = format!("uint32_t struct_size; uint32_t flags; {members}");
        Box::leak(Box::new(Layout::of(format!("typedef struct s {{{members}}} s;").leak(), "s")))
    }

    #[test]
    fn numbers_and_pointers_are_put_at_their_offsets() {
        let layout = layout("const void* a; int32_t b; uint64_t c; int32_t d; int32_t e;");
        let values = [("b", Field::I32(-1)), ("c", Field::U64(7)), ("d", Field::I32(3)), ("e", Field::I32(4))];
        let structure = layout.fill(5, values).structure(&|_| ptr::without_provenance_mut(0x100), 0);
        assert_eq!(structure.words[..5], [0x5_0000_0028, 0x100, 0xffff_ffff, 7, 0x4_0000_0003]);
        assert!(structure.words[5..].len() == LARGEST as usize / 8 && structure.words[5..].iter().all(|word| *word == FOREIGN));
    }

    #[test]
    fn an_older_caller_leaves_garbage_in_what_it_does_not_know() {
        let layout = layout("float a; int32_t b; /* From version 2 on. */ int32_t c; int32_t d;");
        let values = [("a", Field::F32(1.5)), ("b", Field::I32(1)), ("c", Field::I32(2)), ("d", Field::I32(3))];
        let structure = layout.fill(0, values).structure(&|_| ptr::null_mut(), 0);
        let first = 1 << 32 | u64::from(1.5_f32.to_bits());
        assert_eq!(structure.words[..3], [24, first, 0x3_0000_0002]);
        assert_eq!(structure.headed(Header::FirstVersion).words[..3], [16, first, GARBAGE]);
    }

    #[test]
    fn a_pointer_into_a_tensor_and_the_size_of_the_workspace_are_passed() {
        let mut fields = layout("const void* a; size_t workspace_bytes;").fill(0, [("a", Field::Tensor("b"))]);
        *fields.at("a") = Field::TensorAt("a", -16);
        let structure = fields.structure(&|_| ptr::without_provenance_mut(0x100), 99);
        assert_eq!(structure.words[1..3], [0xf0, 99]);
    }
}
