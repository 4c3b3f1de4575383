//! Links objects into `libkgen.so`: with CUDA's runtime inside and only kgen's own symbols visible.

use super::{
    Artifact, BuildError, Builder, Library,
    cache::{Entry, Stored},
    diagnostics,
    key::KeyHasher,
    lines::{LINK_FLAGS, link_ends},
    workplace::link,
};
use crate::{
    family::FAMILIES,
    files::{library_flaw, write_atomic},
    plan::shell_words,
    toolchain::process::Ending,
};
use std::{fs, path::Path};

/// Exported symbols of the library: launchers and the interface. CUDA's static runtime stays hidden, so that it never
/// conflicts with the runtime of a program that loads the library (`PyTorch` brings its own).
pub(super) fn exports() -> String {
    let launchers: Vec<&str> = FAMILIES.iter().map(|family| family.prefix()).collect();
    format!("{{ global: {}*; kgen_*; local: *; }};\n", launchers.join("*; "))
}

impl Builder<'_> {
    /// Links the objects of `artifacts`, including the dispatcher's, into `lib/libkgen.so`; the result for the same
    /// objects comes from the cache.
    ///
    /// # Errors
    /// [`BuildError::Link`] with the first real error line; the library of an earlier run is then kept.
    pub fn link(&self, artifacts: &[Artifact]) -> Result<Library, BuildError> {
        let key = self.link_key(artifacts);
        let found = self.cache.lookup(&key);
        let cached = found.is_some();
        let stored = match found {
            Some(stored) => stored,
            None => self.run_link(artifacts, &key)?,
        };
        let path = Path::new("lib").join("libkgen.so");
        let full = self.options.out_dir.join(&path);
        write_atomic(&full, &stored.output).map_err(BuildError::output("write", &full))?;
        self.write_link_log(&stored.log)?;
        Ok(Library { path, size_bytes: stored.output.len() as u64, cached })
    }

    fn link_key(&self, artifacts: &[Artifact]) -> String {
        let mut hasher = KeyHasher::new(self.nvcc, self.host);
        hasher.field("exports", exports());
        for flag in LINK_FLAGS {
            hasher.field("flag", flag);
        }
        for artifact in artifacts {
            hasher.field("object", artifact.object.as_os_str().as_encoded_bytes());
            hasher.field("hash", &artifact.object_hash);
        }
        hasher.finish()
    }

    fn run_link(&self, artifacts: &[Artifact], key: &str) -> Result<Stored, BuildError> {
        self.observer.note(&format!("linking {} objects into `libkgen.so`", artifacts.len()));
        let scratch = self.cache.scratch()?;
        let inside = |name: &str| scratch.path().join(name);
        fs::write(inside("exports.map"), exports()).map_err(BuildError::cache("write", inside("exports.map")))?;
        // Through links, so that all paths are short, the same in every folder, and free of characters a shell expands.
        link(&self.options.out_dir.join("obj"), &inside("obj"))?;
        link(&self.nvcc.library_dir, &inside("cudart"))?;

        let flags = LINK_FLAGS.map(String::from);
        let mut command = self.nvcc_command(&flags);
        command.args(link_ends("cudart".as_ref(), "libkgen.so".as_ref()));
        command.args(artifacts.iter().map(|a| &a.object)).current_dir(scratch.path());
        let header = format!("# nvcc {} -o libkgen.so obj/*.o\n", shell_words(&flags));
        let done = self.run_logged(&mut command, &inside("log"), &header, &self.cancel)?;
        let log = fs::read(inside("log")).map_err(BuildError::cache("read", inside("log")))?;
        let output = match done.ending {
            Ending::Cancelled => return Err(BuildError::Cancelled),
            Ending::Exited(0) => fs::read(inside("libkgen.so")).ok(),
            _ => None,
        };
        let Some(output) = output else {
            self.write_link_log(&log)?;
            let error = diagnostics::first_error(&String::from_utf8_lossy(&log));
            let message = error.unwrap_or_else(|| format!("nvcc ended with {:?}", done.ending));
            return Err(BuildError::Link { message, log: self.options.out_dir.join("log").join("libkgen.log") });
        };
        let launchers: Vec<&str> = artifacts.iter().filter(|a| a.target.is_some()).map(|a| a.name.as_str()).collect();
        if let Some(flaw) = library_flaw(&output, &launchers) {
            self.write_link_log(&log)?;
            let log = self.options.out_dir.join("log").join("libkgen.log");
            return Err(BuildError::Link { message: format!("nvcc reported success, but its library {flaw}"), log });
        }
        let stored = Stored { entry: Entry::new(&output, Vec::new(), &done.usage), output, log };
        self.cache.store(key, &stored)?;
        Ok(stored)
    }

    fn write_link_log(&self, log: &[u8]) -> Result<(), BuildError> {
        let path = self.options.out_dir.join("log").join("libkgen.log");
        write_atomic(&path, log).map(drop).map_err(BuildError::output("write", &path))
    }
}
