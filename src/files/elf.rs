//! Checks of an object or a library before it is linked or loaded: it is a complete ELF file with the expected
//! functions.

use object::{
    Endianness, Object, ObjectKind, ObjectSection, ObjectSymbol, ReadCache,
    elf::{FileHeader64, PT_LOAD},
    read::elf::{ElfFile64, FileHeader, ProgramHeader},
};
use std::{collections::HashSet, fs::File, io, path::Path};

/// Section of host objects that holds device code.
const DEVICE_CODE: &str = ".nv_fatbin";

/// The reason why `bytes` are not an object file that defines the function `name`, if given, and contains device code,
/// if `device_code`; as the rest of a sentence that begins with `it`.
pub fn object_flaw(bytes: &[u8], name: Option<&str>, device_code: bool) -> Option<String> {
    flaw(bytes, ObjectKind::Relocatable, name.as_slice(), device_code)
}

/// The reason why `bytes` are not a shared library that exports the functions `names`; in the same form.
pub fn library_flaw(bytes: &[u8], names: &[&str]) -> Option<String> {
    flaw(bytes, ObjectKind::Dynamic, names, false)
}

fn flaw(bytes: &[u8], kind: ObjectKind, names: &[&str], device_code: bool) -> Option<String> {
    if bytes.is_empty() {
        return Some("is empty".into());
    }
    let file = match ElfFile64::<Endianness>::parse(bytes) {
        Ok(file) if file.kind() == kind => file,
        Ok(_) => return Some("is of another kind of ELF file".into()),
        Err(error) => return Some(format!("is no ELF file: {error}")),
    };
    let defined: HashSet<&str> = match kind {
        ObjectKind::Dynamic => file.dynamic_symbols().filter(ObjectSymbol::is_definition).filter_map(|s| s.name().ok()).collect(),
        _ => file.symbols().filter(|s| s.is_definition() && s.is_global()).filter_map(|s| s.name().ok()).collect(),
    };
    if let Some(name) = names.iter().find(|name| !defined.contains(*name)) {
        return Some(format!("does not define `{name}`"));
    }
    let code = || file.section_by_name(DEVICE_CODE).and_then(|section| section.data().ok()).is_some_and(|data| !data.is_empty());
    (device_code && !code()).then(|| "holds no device code".into())
}

/// True if the ELF file at `path` ends before the contents that its program headers describe. The loader would map such
/// a file, and an access would kill the process with SIGBUS. False for a file that is not ELF, which the loader
/// reports.
///
/// # Errors
/// The system's reason why the file cannot be opened.
pub fn is_cut_off(path: &Path) -> io::Result<bool> {
    let file = File::open(path)?;
    let length = file.metadata()?.len();
    let cache = ReadCache::new(file);
    let Ok(header) = FileHeader64::<Endianness>::parse(&cache) else { return Ok(false) };
    let Ok(endian) = header.endian() else { return Ok(false) };
    let Ok(segments) = header.program_headers(endian, &cache) else { return Ok(true) };
    let ends =
        segments.iter().filter(|s| s.p_type(endian) == PT_LOAD).map(|s| s.p_offset(endian).saturating_add(s.p_filesz(endian)));
    Ok(ends.max().unwrap_or(0) > length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, process::Command};

    /// An ELF file of a function `f`, compiled with these flags.
    fn compiled(folder: &Path, text: &str, flags: &[&str]) -> Vec<u8> {
        let (source, made) = (folder.join("f.cpp"), folder.join("made"));
        fs::write(&source, text).unwrap();
        let done = Command::new("c++").args(flags).arg(&source).arg("-o").arg(&made).status().unwrap();
        assert!(done.success());
        fs::read(made).unwrap()
    }

    #[test]
    fn garbage_and_halves_of_objects_are_told_from_objects() {
        let folder = tempfile::tempdir().unwrap();
        let text = "extern \"C\" int f() { return 1; } __attribute__((section(\".nv_fatbin\"))) int code = 1;";
        let object = compiled(folder.path(), text, &["-c"]);
        assert_eq!(object_flaw(&object, Some("f"), true), None);
        assert_eq!(object_flaw(&object, None, false), None);
        assert_eq!(object_flaw(b"", Some("f"), true).unwrap(), "is empty");
        assert!(object_flaw(b"garbage", Some("f"), true).unwrap().starts_with("is no ELF file"));
        assert!(object_flaw(&object[..object.len() / 2], Some("f"), true).is_some());
        assert_eq!(object_flaw(&object, Some("g"), true).unwrap(), "does not define `g`");
        assert!(library_flaw(&object, &["f"]).unwrap().contains("another kind"));
        let plain = compiled(folder.path(), "extern \"C\" int f() { return 1; }", &["-c"]);
        assert_eq!(object_flaw(&plain, Some("f"), true).unwrap(), "holds no device code");
    }

    #[test]
    fn a_library_that_is_cut_off_is_known_before_it_is_loaded() {
        let folder = tempfile::tempdir().unwrap();
        let text = "extern \"C\" int f() { return 1; }";
        let library = compiled(folder.path(), text, &["-shared", "-fPIC"]);
        assert_eq!(library_flaw(&library, &["f"]), None);
        assert_eq!(library_flaw(&library, &["f", "g"]).unwrap(), "does not define `g`");
        let path = folder.path().join("library.so");
        for (length, cut_off) in [(library.len(), false), (library.len() / 2, true), (100, true), (0, false)] {
            fs::write(&path, &library[..length]).unwrap();
            assert_eq!(is_cut_off(&path).unwrap(), cut_off, "{length} bytes");
        }
    }
}
