//! Many kernels and their dispatcher in one shared library for the emulator, as `libkgen.so` holds them for a GPU.

use super::{EmulatorKit, KitError, emulator_kit};
use crate::files::FieldHasher;
use rayon::prelude::*;
use std::path::PathBuf;

/// What the dispatcher's object is called.
const DISPATCHER: &str = "kgen_dispatch";

impl EmulatorKit {
    /// The library `libkgen.so` of kernels (name, text) and the text of their dispatcher. Each is compiled unless the
    /// same text was compiled before, several at a time on rayon's current pool; `compiled` hears of each.
    ///
    /// # Errors
    /// [`KitError`]: the compiler refuses a text, or the cache cannot be written.
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
