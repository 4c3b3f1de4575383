//! A structure of `kgen.h` that a family writes down field by field, laid out as C lays it out.

use super::{Address, FOREIGN, Header, LARGEST};
use std::ffi::c_void;

/// One field, in the order of the structure in C.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Field {
    /// A pointer to element (0, 0, 0) of the tensor of that name; NULL where the call has none.
    Tensor(&'static str),
    /// The same, so many bytes further on.
    TensorAt(&'static str, isize),
    /// `size_t`: the bytes of the workspace.
    WorkspaceBytes,
    /// `uint64_t`.
    U64(u64),
    /// `int64_t`.
    I64(i64),
    /// `int32_t`.
    I32(i32),
    /// `float`.
    F32(f32),
    /// No field: a structure within begins, which is aligned to 8 bytes.
    Aligned,
}

/// The fields after `struct_size` and `flags`, which every structure begins with.
#[derive(Debug, Clone, PartialEq)]
pub struct Fields {
    /// `KGEN_FLAG_*`.
    pub flags: u32,
    /// In the order of the structure in C.
    pub fields: Vec<Field>,
    /// How many of them came with a later version than the structure's first.
    pub later: usize,
}

/// The structure, aligned as its widest fields are, and what follows it in memory.
#[derive(Debug)]
pub(in crate::device) struct Structure {
    words: Vec<u64>,
    /// Bytes of its first version.
    first_version: u32,
}

/// Bytes of an older caller in fields that it does not know: no sensible size, stride, count or address.
const GARBAGE: u64 = 0x7fa5_7fa5_7fa5_7fa5;

impl Field {
    /// Bytes in the structure.
    fn bytes(self) -> usize {
        match self {
            Self::I32(_) | Self::F32(_) => 4,
            Self::Aligned => 0,
            _ => 8,
        }
    }

    /// Alignment in bytes.
    fn alignment(self) -> usize {
        if self.bytes() == 4 { 4 } else { 8 }
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
            Self::Aligned => 0,
        }
    }
}

impl Fields {
    /// Offset of each field, and the size of the structure.
    pub fn layout(&self) -> (Vec<usize>, usize) {
        let mut end: usize = 8;
        let place = |field: &Field| {
            let offset = end.next_multiple_of(field.alignment());
            end = offset + field.bytes();
            offset
        };
        let offsets = self.fields.iter().map(place).collect();
        (offsets, end.next_multiple_of(8))
    }

    /// The structure to pass.
    pub(super) fn structure(&self, address: Address<'_>, workspace_bytes: usize) -> Structure {
        let (offsets, size) = self.layout();
        let first_version = self.fields.len().checked_sub(self.later).and_then(|first| offsets.get(first));
        let first_version = first_version.map_or(size, |offset| *offset) as u32;
        let mut words = vec![0; size / 8];
        let mut put = |offset: usize, value: u64| words[offset / 8] |= value << (offset % 8 * 8);
        put(0, size as u64);
        put(4, self.flags.into());
        for (field, offset) in self.fields.iter().zip(offsets).filter(|(field, _)| field.bytes() > 0) {
            put(offset, field.value(address, workspace_bytes));
        }
        words.extend([FOREIGN; LARGEST as usize / 8]);
        Structure { words, first_version }
    }
}

impl Structure {
    /// The same with another beginning; where that is the first version's, what it does not have is garbage.
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

    #[test]
    fn fields_are_where_c_puts_them() {
        let fields = vec![Field::Tensor("a"), Field::I32(-1), Field::U64(7), Field::I32(3), Field::I32(4)];
        let fields = Fields { flags: 5, fields, later: 0 };
        assert_eq!(fields.layout(), (vec![8, 16, 24, 32, 36], 40));
        let structure = fields.structure(&|_| ptr::without_provenance_mut(0x100), 0);
        assert_eq!(structure.words[..5], [0x5_0000_0028, 0x100, 0xffff_ffff, 7, 0x4_0000_0003]);
        assert!(structure.words[5..].len() == LARGEST as usize / 8 && structure.words[5..].iter().all(|word| *word == FOREIGN));
    }

    #[test]
    fn a_structure_within_is_aligned_and_an_older_caller_leaves_garbage_in_what_it_does_not_know() {
        let fields = vec![Field::F32(1.5), Field::Aligned, Field::I32(2), Field::I32(3)];
        let fields = Fields { flags: 0, fields, later: 3 };
        assert_eq!(fields.layout(), (vec![8, 16, 16, 20], 24));
        let structure = fields.structure(&|_| ptr::null_mut(), 0);
        assert_eq!(structure.words[..3], [24, 1.5_f32.to_bits().into(), 0x3_0000_0002]);
        let first = structure.headed(Header::FirstVersion);
        assert_eq!(first.words[..3], [16, 1.5_f32.to_bits().into(), GARBAGE]);
    }

    #[test]
    fn a_pointer_into_a_tensor_and_the_size_of_the_workspace_are_passed() {
        let fields = Fields { flags: 0, fields: vec![Field::TensorAt("a", -16), Field::WorkspaceBytes], later: 0 };
        let structure = fields.structure(&|_| ptr::without_provenance_mut(0x100), 99);
        assert_eq!(structure.words[1..3], [0xf0, 99]);
    }
}
