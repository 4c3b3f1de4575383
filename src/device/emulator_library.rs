//! Many kernels and their dispatcher in one shared library for the emulator, the counterpart of `libkgen.so` for a GPU.

use super::{EmulatorKit, KitError, emulator_kit};
use crate::files::FieldHasher;
use rayon::prelude::*;
use std::path::PathBuf;

/// Name of the dispatcher's object.
const DISPATCHER: &str = "kgen_dispatch";

impl EmulatorKit {
    /// The library `libkgen.so` of kernels (name, text) and the text of their dispatcher. Each is compiled unless the
    /// same text was compiled before, several at a time on rayon's current pool; `compiled` is called for each.
    ///
    /// # Errors
    /// [`KitError`]: the compiler rejects a text, or the cache cannot be written.
    pub fn whole_library(
        &self,
        kernels: &[(String, String)],
        dispatcher: &str,
        compiled: &(dyn Fn(&str) + Sync),
    ) -> Result<PathBuf, KitError> {
        let own = [(DISPATCHER.to_owned(), dispatcher.to_owned())];
        let objects: Vec<PathBuf> = kernels
            .par_iter()
            .chain(&own)
            .with_max_len(1)
            .map(|(name, text)| {
                let object = self.object(name, text);
                compiled(name);
                object
            })
            .collect::<Result<_, _>>()?;
        let mut key = FieldHasher::default();
        key.field("kit", self.hash());
        for object in &objects {
            key.field("object", object.as_os_str().as_encoded_bytes());
        }
        self.made("libkgen.so", &key.finish(), |folder| {
            self.compile("libkgen", folder, |command| {
                command.arg("-shared").args(&objects).args(self.objects()).arg("-o").arg(folder.join("libkgen.so"));
            })
        })
    }

    /// The object of one source.
    fn object(&self, name: &str, text: &str) -> Result<PathBuf, KitError> {
        let mut key = FieldHasher::default();
        for (field, value) in [("kit", self.hash()), ("object", name), ("text", text)] {
            key.field(field, value);
        }
        let object = format!("{name}.o");
        self.made(&object, &key.finish(), |folder| {
            let source = folder.join(format!("{name}.cu"));
            emulator_kit::write(&source, text)?;
            let strict = self.strict_flags()?;
            self.compile(name, folder, |command| {
                command.args([emulator_kit::KERNEL_OPTIMISATION, "-c"]).args(strict).args(["-x", "c++"]).arg(&source);
                command.arg("-o").arg(folder.join(&object));
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        files::prune,
        toolchain::{Cancel, host_compiler_in_process},
    };
    use std::time::Duration;

    #[test]
    fn objects_that_are_about_to_be_linked_and_the_library_survive_a_prune_of_everything() {
        let cache = tempfile::tempdir().expect("a temporary folder");
        let host = host_compiler_in_process().expect("a C++ compiler");
        let runtime = [("runtime.cpp", "int runtime() { return 1; }\n")];
        let kit = EmulatorKit::new(cache.path(), [].into_iter(), runtime.into_iter(), &host, &Cancel::default()).expect("made");
        let text = |name: &str| (name.to_owned(), format!("extern \"C\" int {name}() {{ return 1; }}\n"));
        let everything =
            || prune(&cache.path().join("emulator"), emulator_kit::UNFINISHED, Duration::ZERO, false, &|_| 0).expect("pruned");
        let kernels = [text("f"), text("g")];
        let (_, dispatcher) = text("kgen_abi_version");
        let compiled = |_: &str| assert_eq!(everything().entries, 0);
        let library = kit.whole_library(&kernels, &dispatcher, &compiled).expect("linked");
        assert!(everything().in_use > 0 && library.is_file());
        drop(kit);
        assert!(everything().entries > 0 && !library.exists());
    }
}
