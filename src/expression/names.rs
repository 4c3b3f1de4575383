//! The names that an expression may use: those of the language and the declared ones.

use super::tree::{List, Named, Variable};
use std::sync::Arc;

/// Maximum number of scalars, and of integers, per expression.
pub const MOST_SCALARS: usize = 8;

/// Maximum number of tables per expression.
pub const MOST_TABLES: usize = 4;

/// Longest name (bytes).
const LONGEST: usize = 32;

/// The functions and their numbers of arguments; `None` for two or more.
pub(super) const FUNCTIONS: [(&str, Option<usize>); 8] = [
    ("min", None),
    ("max", None),
    ("abs", Some(1)),
    ("exp", Some(1)),
    ("tanh", Some(1)),
    ("log", Some(1)),
    ("real", Some(1)),
    ("select", Some(3)),
];

/// Operators and literals that are words.
pub(super) const KEYWORDS: [&str; 5] = ["and", "or", "not", "true", "false"];

/// Names from C++, CUDA and their headers whose meaning would differ from the expression's.
#[rustfmt::skip]
const C_NAMES: [&str; 118] = [
    "alignas", "alignof", "asm", "atan", "auto", "bitand", "bitor", "bool", "break", "case", "catch", "char", "class",
    "compl", "concept", "const", "constexpr", "continue", "cos", "co_await", "co_return", "co_yield", "decltype", "default",
    "delete", "do", "double", "dynamic_cast", "else", "enum", "explicit", "export", "extern", "fabsf", "float", "floor",
    "fmaf", "fmaxf", "fminf", "for", "friend", "goto", "if", "inline", "int", "int16_t", "int32_t", "int64_t", "int8_t",
    "blockDim", "blockIdx", "gridDim", "threadIdx", "warpSize", "dim3", "long", "main", "mutable", "namespace", "new",
    "noexcept", "nullptr", "operator", "pow", "private", "protected", "public", "register", "reinterpret_cast", "requires",
    "return", "short", "signed", "sin", "size_t", "sizeof", "sqrt", "static", "static_assert", "static_cast", "const_cast",
    "struct", "switch", "tan", "template", "this", "thread_local", "throw", "try", "typedef", "typeid", "typename",
    "uint16_t", "uint32_t", "uint64_t", "uint8_t", "union", "unsigned", "using", "virtual", "void", "volatile", "wchar_t",
    "while", "xor", "logf", "expf", "tanhf", "std",
    // Lower-case macros of various systems; `is_like_a_macro` covers the others.
    "errno", "linux", "stderr", "stdin", "stdout", "unix", "i386",
    "math_errhandling", "sched_priority",
];

/// Names that kgen generates for parts of an expression, followed by digits.
const LOCAL: [&str; 4] = ["block", "row", "column", "element"];

/// The declared names of an expression.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Declared {
    scalars: Vec<Arc<str>>,
    integers: Vec<Arc<str>>,
    tables: Vec<Arc<str>>,
}

/// The reason why a name cannot be declared: the problem and the remedy.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{title}; {help}")]
pub struct NameError {
    /// The problem.
    pub title: String,
    /// The remedy.
    pub help: String,
}

impl Declared {
    /// The names of a kind, in the order in which their values are passed.
    pub fn names(&self, list: List) -> &[Arc<str>] {
        match list {
            List::Scalars => &self.scalars,
            List::Integers => &self.integers,
            List::Tables => &self.tables,
        }
    }

    /// Declares one more name.
    ///
    /// # Errors
    /// [`NameError`] for a name that is not an identifier, has another meaning, or exceeds the limit.
    pub fn declare(&mut self, list: List, name: &str) -> Result<(), NameError> {
        check_identifier(name)?;
        let refused = |title: String, help: &str| Err(NameError { title, help: help.to_owned() });
        if self.find(name).is_some() {
            return refused(format!("`{name}` is declared twice"), "keep one of the two");
        }
        let most = if list == List::Tables { MOST_TABLES } else { MOST_SCALARS };
        let names = match list {
            List::Scalars => &mut self.scalars,
            List::Integers => &mut self.integers,
            List::Tables => &mut self.tables,
        };
        if names.len() == most {
            return refused(format!("more than {most} `{}`", list.key()), "put constants into the text itself");
        }
        names.push(name.into());
        Ok(())
    }

    /// The meaning of a name.
    pub(super) fn find(&self, name: &str) -> Option<Named> {
        [List::Scalars, List::Integers, List::Tables].into_iter().find_map(|list| {
            let index = self.names(list).iter().position(|known| **known == *name)?;
            Some(Named { list, index, name: Arc::clone(&self.names(list)[index]) })
        })
    }

    /// Every name that may occur in an expression.
    pub(super) fn known(&self) -> Vec<&str> {
        let own = self.scalars.iter().chain(&self.integers).chain(&self.tables).map(|name| &**name);
        own.chain(Variable::ALL.map(Variable::name)).chain(FUNCTIONS.map(|(name, _)| name)).chain(KEYWORDS).collect()
    }
}

/// Checks that a name is valid in C, CUDA and file names, and has no meaning yet.
pub(super) fn check_identifier(name: &str) -> Result<(), NameError> {
    let refused = |title: String, help: String| Err(NameError { title, help });
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if !name.starts_with(|c: char| c.is_ascii_alphabetic()) || !name.chars().all(plain) || name.contains("__") {
        let help = "begin with a letter; letters, digits and single underscores may follow";
        return refused(format!("`{}` is no name", name.escape_debug()), help.to_owned());
    }
    if name.len() > LONGEST {
        return refused(format!("`{name}` is too long"), format!("use at most {LONGEST} characters"));
    }
    let of_language = FUNCTIONS.iter().any(|(function, _)| *function == name)
        || KEYWORDS.contains(&name)
        || Variable::ALL.iter().any(|variable| variable.name() == name);
    let owner = if of_language {
        "of the expression language"
    } else if C_NAMES.contains(&name) || is_like_a_macro(name) {
        "of C++ and CUDA"
    } else if LOCAL.iter().any(|own| name.strip_prefix(own).is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_digit()))) {
        "that kgen gives to parts of an expression"
    } else {
        return Ok(());
    };
    refused(format!("`{name}` is a name {owner}"), format!("choose another, for example `my_{name}`"))
}

/// True for names that look like macros, of which C's and CUDA's headers have hundreds (`NAN`, `EOF`, `M_PI`, `M_PIf`)
/// and may add more: a capital letter first and no small letter after it; or like names of CUDA's interfaces
/// (`cudaStreamLegacy`, `cuMemAlloc`).
fn is_like_a_macro(name: &str) -> bool {
    let of_cuda = |prefix| name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase()));
    if of_cuda("cuda") || of_cuda("cu") {
        return true;
    }
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_uppercase())
        && bytes.next().is_some_and(|second| !second.is_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{path::Path, process::Command};

    /// All names in angle brackets after `#include` in the kernels, headers and twins of a folder; `.cpp` files are
    /// compiled separately.
    fn system_headers(folder: &Path, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                system_headers(&entry, found);
                continue;
            }
            if entry.extension().is_some_and(|extension| extension == "cpp") {
                continue;
            }
            let text = std::fs::read_to_string(&entry).unwrap();
            let names = text.lines().filter_map(|line| line.strip_prefix("#include <")?.split_once('>')).map(|(name, _)| name);
            found.extend(names.filter(|name| !name.starts_with("torch/") && *name != "Python.h").map(str::to_owned));
        }
    }

    #[test]
    fn no_name_is_a_macro_of_a_header_that_a_kernel_or_its_twin_includes() {
        let mut headers = Vec::new();
        system_headers(&Path::new(env!("CARGO_MANIFEST_DIR")).join("templates"), &mut headers);
        headers.sort();
        headers.dedup();
        // CUDA's own headers, which are not searched here, have macros like those at the end.
        let include = |name: &String| format!("#if __has_include(<{name}>)\n#include <{name}>\n#endif\n");
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("headers.cpp");
        std::fs::write(&source, headers.iter().map(include).collect::<String>()).unwrap();
        let output = Command::new("c++").args(["-std=gnu++17", "-dM", "-E"]).arg(&source).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let macros: Vec<&str> =
            text.lines().filter_map(|line| line.strip_prefix("#define ")?.split_whitespace().next()).collect();
        assert!(macros.len() > 500, "{}", String::from_utf8_lossy(&output.stderr));
        // A macro with arguments takes effect only before a bracket, which never follows a variable.
        for name in macros.iter().filter(|name| !name.contains('(')) {
            assert!(check_identifier(name).is_err(), "{name}");
        }
        for name in ["NAN", "EOF", "M_PI", "HUGE_VAL", "INFINITY", "NULL", "CUDART_INF_F", "cudaStreamLegacy", "cuMemAlloc"] {
            assert!(check_identifier(name).is_err(), "{name}");
        }
    }

    #[test]
    fn a_name_has_one_meaning_that_c_allows() {
        for name in ["decay", "window_left", "n2", "S", "Decay", "sNAN", "cut", "cuda", "rowwise", "blocks"] {
            assert_eq!(check_identifier(name), Ok(()), "{name}");
        }
        for name in
            ["", "2n", "_x", "a-b", "a__b", "é", "a b", "s", "and", "tanh", "seqlen_k", "float", "threadIdx", "row0", "row"]
        {
            assert!(check_identifier(name).is_err(), "{name}");
        }
        assert!(check_identifier(&"x".repeat(33)).is_err() && check_identifier(&"x".repeat(32)).is_ok());
    }

    #[test]
    fn names_are_declared_once_and_not_without_end() {
        let mut declared = Declared::default();
        declared.declare(List::Scalars, "a").unwrap();
        assert!(declared.declare(List::Tables, "a").unwrap_err().title.contains("twice"));
        for name in ["t", "u", "v", "w"] {
            declared.declare(List::Tables, name).unwrap();
        }
        assert!(declared.declare(List::Tables, "x").unwrap_err().title.contains("more than 4"));
        assert_eq!(declared.find("v").map(|named| (named.list, named.index)), Some((List::Tables, 2)));
    }
}
