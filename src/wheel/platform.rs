//! The Linux systems that a library runs on: the tag that pip compares with the system's C library.
//!
//! `manylinux_2_N` promises that nothing newer than glibc 2.N is needed, nor a C++ library newer than that of systems
//! with that glibc. A library's requirements are its symbol versions; linked on an older system, it requires less.

use object::{
    Endianness,
    elf::{DT_NEEDED, EM_AARCH64, EM_X86_64},
    read::elf::{Dyn, ElfFile64, FileHeader},
};
use std::collections::BTreeSet;

/// Libraries that every system with glibc has.
const PRESENT: [&str; 9] = [
    "ld-linux-aarch64.so.1",
    "ld-linux-x86-64.so.2",
    "libc.so.6",
    "libdl.so.2",
    "libgcc_s.so.1",
    "libm.so.6",
    "libpthread.so.0",
    "librt.so.1",
    "libstdc++.so.6",
];

/// The newest symbols of the C++ library on systems with glibc 2.N: N, then n of `GLIBCXX_3.4.n` and of `CXXABI_1.3.n`
/// (from auditwheel's manylinux policies).
const CXX: [(u32, u32, u32); 7] =
    [(17, 19, 7), (24, 22, 10), (27, 24, 11), (31, 28, 12), (34, 29, 13), (35, 30, 13), (39, 33, 15)];

/// The oldest glibc that a tag names; pip has no numbered tag for older ones.
const OLDEST: u32 = 17;

/// The tag of a library, for example `manylinux_2_28_x86_64`.
///
/// # Errors
/// A clause: it is for another machine, or needs a library that systems do not have in general.
pub(super) fn tag(library: &[u8]) -> Result<String, String> {
    let needs = Needs::of(library).map_err(|error| format!("its ELF file cannot be read: {error}"))?;
    Ok(format!("manylinux_2_{}_{}", needs.glibc()?, needs.machine))
}

/// A library's requirements of the system.
struct Needs {
    machine: &'static str,
    libraries: BTreeSet<String>,
    /// Versions of symbols, such as `GLIBC_2.34`.
    versions: BTreeSet<String>,
}

impl Needs {
    fn of(library: &[u8]) -> object::read::Result<Self> {
        let file = ElfFile64::<Endianness>::parse(library)?;
        let (endian, sections) = (file.endian(), file.elf_section_table());
        let machine = match file.elf_header().e_machine(endian) {
            EM_X86_64 => "x86_64",
            EM_AARCH64 => "aarch64",
            _ => "",
        };
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let mut needs = Self { machine, libraries: BTreeSet::new(), versions: BTreeSet::new() };
        if let Some((entries, names)) = sections.dynamic(endian, library)? {
            let names = sections.strings(endian, library, names)?;
            for entry in entries.iter().filter(|entry| entry.d_tag(endian) == DT_NEEDED) {
                needs.libraries.insert(text(entry.string(endian, names)?));
            }
        }
        if let Some((mut libraries, names)) = sections.gnu_verneed(endian, library)? {
            let names = sections.strings(endian, library, names)?;
            while let Some((_, mut versions)) = libraries.next()? {
                while let Some(version) = versions.next()? {
                    needs.versions.insert(text(version.name(endian, names)?));
                }
            }
        }
        Ok(needs)
    }

    /// N of the oldest glibc 2.N that satisfies all of them.
    fn glibc(&self) -> Result<u32, String> {
        if self.machine.is_empty() {
            return Err("it is for neither x86_64 nor aarch64".to_owned());
        }
        if let Some(other) = self.libraries.iter().find(|library| !PRESENT.contains(&library.as_str())) {
            return Err(format!("it needs `{other}`, which not every system has; link it statically"));
        }
        let newest = |prefix: &str| {
            let numbers = self.versions.iter().filter_map(|version| version.strip_prefix(prefix));
            numbers.filter_map(|rest| rest.split('.').next()?.parse::<u32>().ok()).max().unwrap_or(0)
        };
        let (cxx, abi) = (newest("GLIBCXX_3.4."), newest("CXXABI_1.3."));
        let of_cxx = CXX.iter().find(|(_, has_cxx, has_abi)| cxx <= *has_cxx && abi <= *has_abi);
        let (of_cxx, _, _) = of_cxx.ok_or_else(|| {
            format!(
                "it needs GLIBCXX_3.4.{cxx} and CXXABI_1.3.{abi}, newer than any system is known to have; use an older compiler"
            )
        })?;
        Ok(newest("GLIBC_2.").max(*of_cxx).max(OLDEST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needing(libraries: &[&str], versions: &[&str]) -> Result<u32, String> {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Needs { machine: "x86_64", libraries: set(libraries), versions: set(versions) }.glibc()
    }

    #[test]
    fn the_newest_symbol_decides() {
        assert_eq!(needing(&[], &[]), Ok(17));
        assert_eq!(needing(&["libc.so.6"], &["GLIBC_2.2.5", "GLIBC_2.28", "GLIBC_2.3.4"]), Ok(28));
        assert_eq!(needing(&["libstdc++.so.6"], &["GLIBC_2.28", "GLIBCXX_3.4.29", "CXXABI_1.3"]), Ok(34));
        assert_eq!(needing(&["libstdc++.so.6"], &["GLIBC_2.28", "GLIBCXX_3.4.24", "CXXABI_1.3.11"]), Ok(28));
        assert_eq!(needing(&["libstdc++.so.6"], &["CXXABI_1.3.13"]), Ok(34));
    }

    #[test]
    fn what_systems_lack_is_refused_by_name() {
        let refused = needing(&["libc.so.6", "libcudart.so.13"], &[]).expect_err("a library of CUDA");
        assert!(refused.contains("`libcudart.so.13`"), "{refused}");
        let refused = needing(&["libstdc++.so.6"], &["GLIBCXX_3.4.99"]).expect_err("a compiler of tomorrow");
        assert!(refused.contains("GLIBCXX_3.4.99"), "{refused}");
    }

    #[test]
    fn needs_are_read_from_the_file() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (source, library) = (folder.path().join("f.cpp"), folder.path().join("f.so"));
        std::fs::write(&source, "#include <stdlib.h>\nextern \"C\" void* f() { return malloc(1); }\n").expect("written");
        let mut compile = std::process::Command::new("c++");
        compile.args(["-shared", "-fPIC"]).arg(&source).arg("-o").arg(&library);
        assert!(compile.status().expect("c++ runs").success());
        let needs = Needs::of(&std::fs::read(&library).expect("it is there")).expect("an ELF file");
        assert!(needs.libraries.contains("libc.so.6"), "{:?}", needs.libraries);
        assert!(needs.versions.iter().any(|version| version.starts_with("GLIBC_2.")), "{:?}", needs.versions);
    }
}
