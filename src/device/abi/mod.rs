//! Rust's view of the structures and functions of `kgen.h`.

mod choice;
mod fields;
mod layout;
mod parameters;
#[cfg(test)]
mod python;

pub(super) use choice::Explain;
pub use choice::{PATH_PACKED, PATH_SHORT, PATH_SPLIT, Paths};
pub use fields::{Field, Fields};
pub use layout::Layout;
pub use parameters::{Parameters, Params};

use std::ffi::{c_char, c_void};

/// `KGEN_DTYPE_FP16`.
pub const DTYPE_FP16: i32 = 0;

/// `KGEN_DTYPE_BF16`.
pub const DTYPE_BF16: i32 = 1;

/// `KGEN_DTYPE_FP8_E4M3`.
pub const DTYPE_FP8_E4M3: i32 = 2;

/// `KGEN_DTYPE_FP32`.
pub const DTYPE_FP32: i32 = 3;

/// `KGEN_DTYPE_FP8_E5M2`.
pub const DTYPE_FP8_E5M2: i32 = 4;

/// Header of a structure, if it differs from this version's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Header {
    /// The pointer to the structure is NULL.
    Null,
    /// `struct_size` is one byte less than that of the first version.
    TooShort,
    /// `struct_size` is one byte larger than that of any version, present or future.
    TooLong,
    /// `struct_size` is the first version's; the fields of later versions hold garbage.
    FirstVersion,
    /// `struct_size` is the largest of any version; the fields unknown to this version are zero.
    LaterVersion,
    /// Like [`Self::LaterVersion`], with a nonzero last byte.
    LaterUse,
    /// Additional `flags`.
    Flags(u32),
}

/// Maximum size of a structure in any version, in bytes: `LARGEST_PARAMS` in `kgen/params.cuh`.
const LARGEST: u32 = 4096;

/// The additional fields of a later version of a structure, in 8-byte numbers.
type Tail = [u64; LARGEST as usize / 8];

const NO_TAIL: Tail = [0; LARGEST as usize / 8];

impl Header {
    /// `struct_size` and `flags` of a structure, given their usual values and the first version's size.
    fn of(self, size: u32, first_version: u32, flags: u32) -> (u32, u32) {
        match self {
            Self::Null => (size, flags),
            Self::TooShort => (first_version - 1, flags),
            Self::TooLong => (LARGEST + 1, flags),
            Self::FirstVersion => (first_version, flags),
            Self::LaterVersion | Self::LaterUse => (LARGEST, flags),
            Self::Flags(more) => (size, flags | more),
        }
    }

    /// The memory after a structure of `size` bytes.
    fn tail(self, size: usize) -> Tail {
        let mut tail = NO_TAIL;
        if self == Self::LaterUse {
            tail[(LARGEST as usize - size) / 8 - 1] = 1 << 56;
        }
        tail
    }
}

/// Returns the pointer to element (0, 0, 0) of the named tensor; NULL for an absent one.
type Address<'a> = &'a dyn Fn(&'static str) -> *mut c_void;

/// Content of the memory after the end of a structure, which a launcher must not read.
const FOREIGN: u64 = u64::MAX;

/// A structure of `kgen.h`, ready to be passed; `None` becomes NULL.
pub(super) struct Structure(Option<fields::Structure>);

impl Structure {
    /// The pointer that a launcher takes.
    pub(super) fn as_ptr(&self) -> *const c_void {
        self.0.as_ref().map_or(std::ptr::null(), fields::Structure::as_ptr)
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

/// `KGEN_ERROR_MISMATCH`: the kernel was built for other parameters.
pub const ERROR_MISMATCH: i32 = 2;

/// `KGEN_ERROR_UNSUPPORTED`: the kernel cannot read tensors with this memory layout.
pub const ERROR_UNSUPPORTED: i32 = 5;

/// Meaning of a launcher's code.
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

/// Asserts that constants of `kgen.h` have these values.
#[cfg(test)]
pub(crate) fn assert_constants_are_those_of_c(constants: &[(&str, usize)]) {
    let assertion = |(what, value): &(&str, usize)| format!("_Static_assert({what} == {value}, \"{what}\");\n");
    tests::compile(&constants.iter().map(assertion).collect::<String>());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::Templates;
    use std::{path::Path, process::Command};

    /// Names and offsets of fields that have the same names in Rust and in C.
    macro_rules! each {
        ($structure:ident: $($field:ident),+) => { vec![$((stringify!($field).to_owned(), offset_of!($structure, $field))),+] };
    }
    pub(super) use each;

    /// C assertions that a structure has these fields at these offsets, this size, and nothing in between or beyond.
    pub(super) fn layout_of(structure: &str, mut fields: Vec<(String, usize)>, size: usize) -> String {
        fields.sort_by_key(|(_, offset)| *offset);
        let holds = |what: String| format!("_Static_assert({what}, \"{}\");\n", what.replace('"', ""));
        let end = |field: &str| format!("offsetof({structure}, {field}) + sizeof((({structure}*)0)->{field})");
        let mut text: String =
            fields.iter().map(|(field, offset)| holds(format!("offsetof({structure}, {field}) == {offset}"))).collect();
        text.extend(fields.windows(2).map(|pair| {
            let (end, next) = (end(&pair[0].0), &pair[1].0);
            // The first field of a nested structure has that structure's alignment.
            let within = next.split_once('.').map(|(within, _)| within).filter(|within| !pair[0].0.starts_with(within));
            let aligned = within.unwrap_or(next);
            holds(format!("offsetof({structure}, {next}) - ({end}) < __alignof__((({structure}*)0)->{aligned})"))
        }));
        let last = fields.last().expect("it has fields");
        text + &holds(format!("sizeof({structure}) - ({}) < __alignof__({structure})", end(&last.0)))
            + &holds(format!("sizeof({structure}) == {size}"))
    }

    /// Compiles a C file that includes the real header.
    pub(super) fn compile(assertions: &str) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("layout.c");
        std::fs::write(&file, format!("#include \"kgen.h\"\n{assertions}")).expect("the folder is writable");
        std::fs::write(folder.path().join("kgen.h"), header()).expect("the folder is writable");
        let output =
            Command::new("cc").arg("-fsyntax-only").arg("-I").arg(folder.path()).arg(&file).output().expect("a C compiler");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    #[test]
    fn structures_and_constants_are_those_of_the_c_header() {
        let mut facts: Vec<(&str, usize)> = (0..=5).map(|code| (code_word(code), code as usize)).collect();
        facts.extend([
            ("KGEN_DTYPE_FP16", DTYPE_FP16 as usize),
            ("KGEN_DTYPE_BF16", DTYPE_BF16 as usize),
            ("KGEN_DTYPE_FP8_E4M3", DTYPE_FP8_E4M3 as usize),
            ("KGEN_DTYPE_FP8_E5M2", DTYPE_FP8_E5M2 as usize),
            ("KGEN_DTYPE_FP32", DTYPE_FP32 as usize),
            ("KGEN_PATH_SHORT", PATH_SHORT as usize),
            ("KGEN_PATH_SPLIT", PATH_SPLIT as usize),
            ("KGEN_PATH_PACKED", PATH_PACKED as usize),
        ]);
        assert_constants_are_those_of_c(&facts);
        compile(&choice::layouts().map(|(structure, fields, size)| layout_of(structure, fields, size)).concat());
    }

    /// The header as kgen writes it, including the additions of each family.
    fn header() -> &'static str {
        let templates = Templates::embedded();
        templates.include_files().find(|(path, _)| *path == "kgen.h").expect("a header").1.to_owned().leak()
    }

    #[test]
    fn layouts_read_from_the_header_are_those_of_the_c_compiler() {
        let params: Vec<&str> = python::structures(header()).filter(|name| name.ends_with("_params")).collect();
        assert_eq!(params.len(), 7, "{params:?}");
        let layout = |name: &&'static str| {
            let layout = Layout::of(header(), name);
            layout_of(name, layout.named(), layout.size())
        };
        compile(&params.iter().map(layout).collect::<String>());
    }

    #[test]
    fn the_module_of_python_is_what_the_header_gives() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/kgen_attn/abi.py");
        let rendered = python::module(header());
        if std::env::var_os("KGEN_UPDATE_ABI").is_some() {
            std::fs::write(&file, &rendered).expect("written");
        }
        assert!(std::fs::read_to_string(&file).expect("readable") == rendered, "KGEN_UPDATE_ABI=1 cargo test --lib abi");
    }

    #[test]
    fn python_lays_structures_out_as_c_does() {
        type Structures = std::collections::BTreeMap<String, (Vec<(String, usize)>, usize)>;
        let project = Path::new(env!("CARGO_MANIFEST_DIR"));
        let program = "import ctypes, json, abi\n\
            layout = lambda s: [[(f[0], getattr(s, f[0]).offset) for f in s._fields_], ctypes.sizeof(s)]\n\
            classes = [c for c in vars(abi).values() if isinstance(c, type) and issubclass(c, ctypes.Structure)]\n\
            print(json.dumps({c.__doc__.strip('`.'): layout(c) for c in classes}))";
        let mut python = Command::new("python3");
        python.args(["-c", program]).env("PYTHONPATH", project.join("python/kgen_attn")).env("PYTHONDONTWRITEBYTECODE", "1");
        let output = match python.output() {
            Ok(output) => output,
            Err(error) => return eprintln!("skipped: `python3` cannot be run ({error})"),
        };
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let structures: Structures = serde_json::from_slice(&output.stdout).expect("what the program prints");
        assert_eq!(structures.len(), python::structures(header()).count(), "none is left out");
        compile(&structures.into_iter().map(|(name, (fields, size))| layout_of(&name, fields, size)).collect::<String>());
    }
}
