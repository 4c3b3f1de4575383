//! Cache keys: a hash of everything that determines an object, and nothing else. No times, no absolute paths.

use super::{BuildError, Unit};
use crate::{
    files::{self, FieldHasher},
    toolchain::{HostCompiler, Nvcc},
};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Raised when the same inputs would give different objects (other hidden flags, another entry format).
const SCHEME: &str = "kgen-object-3";

/// Environment variables from which nvcc reads flags; they change objects as flags do.
const FLAG_VARIABLES: [&str; 2] = ["NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS"];

/// Hash of everything the objects of one build share; each unit and the link add their own inputs.
#[derive(Clone)]
pub(super) struct KeyHasher(FieldHasher);

impl KeyHasher {
    /// Starts with the inputs of every key: the compilers, and the processor their host code is for, which is in
    /// neither version string and may differ between machines that share a home folder.
    pub fn new(nvcc: &Nvcc, host: &HostCompiler) -> Self {
        let mut hasher = Self(FieldHasher::default());
        hasher.field("scheme", SCHEME);
        hasher.field("processor", std::env::consts::ARCH);
        hasher.field("nvcc", &nvcc.build_id);
        hasher.field("host", &host.version);
        for name in FLAG_VARIABLES {
            hasher.field(name, std::env::var_os(name).unwrap_or_default().as_encoded_bytes());
        }
        hasher
    }

    /// Adds a field.
    pub fn field(&mut self, name: &str, value: impl AsRef<[u8]>) {
        self.0.field(name, value);
    }

    /// Adds every file below `include`, by relative name and content.
    ///
    /// # Errors
    /// [`BuildError::Generated`] if a file cannot be read; a missing folder counts as empty.
    pub fn headers(&mut self, include: &Path) -> Result<(), BuildError> {
        let mut files = Vec::new();
        if include.exists() {
            collect(include, &mut files)?;
        }
        files.sort();
        for file in files {
            let name = file.strip_prefix(include).unwrap_or(&file).as_os_str();
            let text = files::read(&file).map_err(|source| BuildError::Generated { path: file.clone(), source })?;
            self.field("header", name.as_encoded_bytes());
            self.field("text", text);
        }
        Ok(())
    }

    /// The key of a unit. The file name is included because symbols are derived from it.
    pub fn unit(&self, unit: &Unit) -> String {
        let mut hasher = self.clone();
        hasher.field("file", unit.path.file_name().unwrap_or_default().as_encoded_bytes());
        hasher.field("source", &unit.text);
        for flag in &unit.flags {
            hasher.field("flag", flag);
        }
        hasher.finish()
    }

    /// The key, in hexadecimal.
    pub fn finish(&self) -> String {
        self.0.finish()
    }
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), BuildError> {
    let error = |source| BuildError::Generated { path: folder.to_owned(), source };
    for entry in fs::read_dir(folder).map_err(error)? {
        let path = entry.map_err(error)?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        family::attention::{Kind, Point},
        kernel::{Dtype, Features, HeadDim, Target},
        plan::Plan,
        toolchain::NvccOrigin,
    };

    fn nvcc(path: &str, build: &str) -> Nvcc {
        let (path, library_dir) = (PathBuf::from(path), PathBuf::from(path));
        Nvcc { path, version: "13.0.88".into(), build_id: build.into(), origin: NvccOrigin::Path, library_dir }
    }

    fn host(version: &str) -> HostCompiler {
        HostCompiler { path: "g++".into(), version: version.into(), flags: Vec::new() }
    }

    fn unit(text: &str, ptx: bool) -> Unit {
        let variant = Point {
            kind: Kind::Fwd,
            head_dim: HeadDim::equal(64),
            dtype: Dtype::Fp16,
            causal: false,
            features: Features::NONE,
            target: Target::Sm80,
        };
        Unit::kernel(&Plan::new(variant, None).unwrap(), Path::new("a.cu"), text, String::new(), ptx)
    }

    #[test]
    fn everything_an_object_depends_on_changes_its_key() {
        let include = tempfile::tempdir().unwrap();
        let with_header = |name: &str, text: &str| {
            fs::remove_dir_all(include.path()).unwrap();
            fs::create_dir_all(include.path().join("kgen")).unwrap();
            fs::write(include.path().join(name), text).unwrap();
            let mut hasher = KeyHasher::new(&nvcc("/a/nvcc", "build"), &host("g++ 12"));
            hasher.headers(include.path()).unwrap();
            hasher.unit(&unit("text", true))
        };
        let plain = |nvcc: &Nvcc, host: &HostCompiler, unit: &Unit| KeyHasher::new(nvcc, host).unit(unit);
        let (n, h) = (nvcc("/a/nvcc", "build"), host("g++ 12"));
        let keys = [
            with_header("kgen/mma.cuh", "one"),
            with_header("kgen/mma.cuh", "two"),
            with_header("kgen/tile.cuh", "one"),
            plain(&n, &h, &unit("text", true)),
            plain(&n, &h, &unit("text", false)),
            plain(&n, &h, &unit("other", true)),
            plain(&nvcc("/a/nvcc", "other build"), &h, &unit("text", true)),
            plain(&n, &host("g++ 13"), &unit("text", true)),
        ];
        let different = keys.iter().collect::<std::collections::HashSet<_>>();
        assert_eq!(different.len(), keys.len());
    }

    #[test]
    fn where_nvcc_and_the_files_lie_does_not_change_the_key() {
        let key = |path: &str, file: &str| {
            let unit = Unit { path: file.into(), ..unit("text", true) };
            KeyHasher::new(&nvcc(path, "build"), &host("g++ 12")).unit(&unit)
        };
        assert_eq!(key("/a/nvcc", "a.cu"), key("/b/nvcc", "/elsewhere/a.cu"));
    }
}
