//! The structures and functions of `kgen.h`, as Rust sees them.

mod bwd;
mod fields;
mod fwd;

pub use bwd::BwdParams;
pub use fields::{Field, Fields};
pub use fwd::FwdParams;

use std::ffi::{c_char, c_void};

/// `KGEN_FLAG_CAUSAL`.
const FLAG_CAUSAL: u32 = 1;

/// `KGEN_FLAG_DETERMINISTIC`.
const FLAG_DETERMINISTIC: u32 = 2;

/// `KGEN_DTYPE_FP16`.
pub const DTYPE_FP16: i32 = 0;

/// `KGEN_DTYPE_BF16`.
pub const DTYPE_BF16: i32 = 1;

/// `KGEN_DTYPE_FP8_E4M3`.
pub const DTYPE_FP8_E4M3: i32 = 2;

/// `KGEN_DTYPE_FP32`.
pub const DTYPE_FP32: i32 = 3;

/// Element strides of one tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Strides {
    /// From one batch entry to the next; not read where `cu_seqlens` is given.
    pub batch: i64,
    /// From one token to the next.
    pub row: i64,
    /// From one head to the next.
    pub head: i64,
}

/// What a launcher is told besides tensors; which of these depends on the family of the kernel.
#[derive(Debug, Clone, PartialEq)]
pub enum Params {
    /// `kgen_fwd_params`.
    Fwd(FwdParams),
    /// `kgen_bwd_params`.
    Bwd(BwdParams),
    /// The structure of another family, field by field.
    Fields(Fields),
    /// Any of them, as a caller passes it that does not keep to `kgen.h`, or that knows another version of it.
    Headed {
        /// What is different.
        header: Header,
        /// The rest.
        params: Box<Params>,
    },
}

/// How a structure begins, if not as this version's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Header {
    /// The pointer to it is NULL.
    Null,
    /// `struct_size` is a byte less than the first version's.
    TooShort,
    /// `struct_size` is the first version's; what later ones have besides holds garbage.
    FirstVersion,
    /// `struct_size` is a later version's, which this one does not know.
    LaterVersion,
    /// More `flags`.
    Flags(u32),
}

/// Bytes that a later version of a structure has besides.
const LATER_BYTES: u32 = 64;

impl Header {
    /// `struct_size` and `flags` of a structure, given what they would be and the first version's size.
    fn of(self, size: u32, first_version: u32, flags: u32) -> (u32, u32) {
        match self {
            Self::Null => (size, flags),
            Self::TooShort => (first_version - 1, flags),
            Self::FirstVersion => (first_version, flags),
            Self::LaterVersion => (size + LATER_BYTES, flags),
            Self::Flags(more) => (size, flags | more),
        }
    }
}

/// Gives the pointer to element (0, 0, 0) of the tensor of that name, NULL for one that is absent.
type Address<'a> = &'a dyn Fn(&'static str) -> *mut c_void;

/// A structure of `kgen.h`, ready to be passed.
pub(super) enum Structure {
    Fwd(fwd::Structure),
    Bwd(bwd::Structure),
    Fields(fields::Structure),
    /// NULL.
    None,
}

impl Params {
    /// The structure to pass, with `address` in place of tensors.
    pub(super) fn structure(&self, address: Address<'_>, workspace_bytes: usize) -> Structure {
        match self {
            Self::Fwd(params) => Structure::Fwd(params.structure(address, workspace_bytes)),
            Self::Bwd(params) => Structure::Bwd(params.structure(address, workspace_bytes)),
            Self::Fields(fields) => Structure::Fields(fields.structure(address, workspace_bytes)),
            Self::Headed { header: Header::Null, .. } => Structure::None,
            Self::Headed { header, params } => params.structure(address, workspace_bytes).headed(*header),
        }
    }
}

impl Structure {
    fn headed(self, header: Header) -> Self {
        match self {
            Self::Fwd(structure) => Self::Fwd(structure.headed(header)),
            Self::Bwd(structure) => Self::Bwd(structure.headed(header)),
            Self::Fields(structure) => Self::Fields(structure.headed(header)),
            Self::None => Self::None,
        }
    }

    /// What a launcher takes.
    pub(super) fn as_ptr(&self) -> *const c_void {
        match self {
            Self::Fwd(structure) => std::ptr::from_ref(structure).cast(),
            Self::Bwd(structure) => std::ptr::from_ref(structure).cast(),
            Self::Fields(structure) => structure.as_ptr(),
            Self::None => std::ptr::null(),
        }
    }
}

/// `kgen_fwd_launcher` or `kgen_bwd_launcher`: parameters and stream in, `KGEN_*` code out.
pub(super) type Launcher = unsafe extern "C" fn(*const c_void, *mut c_void) -> i32;

/// `<name>_workspace`: parameters in, bytes out.
pub(super) type Workspace = unsafe extern "C" fn(*const c_void) -> usize;

/// `kgen_last_error`.
pub(super) type LastError = unsafe extern "C" fn() -> *const c_char;

/// `KGEN_ERROR_INVALID_VALUE`: a parameter is outside its documented range.
pub const ERROR_INVALID_VALUE: i32 = 1;

/// `KGEN_ERROR_MISMATCH`: the kernel was built for something else.
pub const ERROR_MISMATCH: i32 = 2;

/// `KGEN_ERROR_UNSUPPORTED`: the kernel cannot read tensors that lie so in memory.
pub const ERROR_UNSUPPORTED: i32 = 5;

/// What a launcher's code means.
pub(crate) fn code_word(code: i32) -> &'static str {
    match code {
        0 => "KGEN_SUCCESS",
        ERROR_INVALID_VALUE => "KGEN_ERROR_INVALID_VALUE",
        ERROR_MISMATCH => "KGEN_ERROR_MISMATCH",
        3 => "KGEN_ERROR_NO_VARIANT",
        4 => "KGEN_ERROR_LAUNCH",
        ERROR_UNSUPPORTED => "KGEN_ERROR_UNSUPPORTED",
        _ => "no code of kgen.h",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{path::Path, process::Command};

    /// Compiles a C file that includes the real header and asserts our offsets and numbers: the two can never drift apart.
    #[test]
    fn structures_and_constants_are_those_of_the_c_header() {
        let mut facts: Vec<(String, usize)> = (0..=5).map(|code| (code_word(code).to_owned(), code as usize)).collect();
        for (name, value) in [
            ("KGEN_FLAG_CAUSAL", FLAG_CAUSAL as usize),
            ("KGEN_FLAG_DETERMINISTIC", FLAG_DETERMINISTIC as usize),
            ("KGEN_DTYPE_FP16", DTYPE_FP16 as usize),
            ("KGEN_DTYPE_BF16", DTYPE_BF16 as usize),
            ("KGEN_DTYPE_FP8_E4M3", DTYPE_FP8_E4M3 as usize),
            ("KGEN_DTYPE_FP32", DTYPE_FP32 as usize),
        ] {
            facts.push((name.to_owned(), value));
        }
        for (structure, (fields, size)) in [("kgen_fwd_params", fwd::layout()), ("kgen_bwd_params", bwd::layout())] {
            facts.push((format!("sizeof({structure})"), size));
            facts.extend(fields.into_iter().map(|(field, offset)| (format!("offsetof({structure}, {field})"), offset)));
        }
        let asserts = facts.iter().map(|(what, value)| format!("_Static_assert({what} == {value}, \"{what}\");\n"));
        let text = format!("#include \"kgen.h\"\n{}", asserts.collect::<String>());
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("layout.c");
        std::fs::write(&file, text).expect("the folder is writable");
        let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("templates/include");
        let output = Command::new("cc").arg("-fsyntax-only").arg("-I").arg(include).arg(&file).output().expect("a C compiler");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}
