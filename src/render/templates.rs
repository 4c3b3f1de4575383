//! The templates: embedded in the binary, or read from a user's folder.

use super::RenderError;
use crate::{family::FAMILIES, files};
use include_dir::{Dir, include_dir};
use itertools::Itertools;
use std::{borrow::Cow, collections::BTreeMap, fs, path::Path};

static EMBEDDED: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/templates");

/// Placeholder line in `kgen.h` for the parts of the families.
const FAMILIES_MARK: &str = "/* @families */\n";

/// Every template, header and emulator file, by its path below `templates/` with `/` between parts.
#[derive(Clone, Debug)]
pub struct Templates {
    files: BTreeMap<String, Cow<'static, str>>,
}

impl Templates {
    /// The templates embedded in the binary.
    pub fn embedded() -> Self {
        let mut files = BTreeMap::new();
        collect_embedded(&EMBEDDED, &mut files);
        Self { files }.with_families()
    }

    /// The templates in `folder`, which has the layout of kgen's `templates/`. Hidden files and editor backups
    /// (`name~`) are ignored.
    ///
    /// # Errors
    /// [`RenderError::Io`] when a file cannot be read or is not UTF-8, [`RenderError::NotTemplates`] when the C header
    /// or the dispatcher's template is missing.
    pub fn from_dir(folder: &Path) -> Result<Self, RenderError> {
        // Check before reading: a folder passed by mistake can contain any number of other files.
        fs::read_dir(folder).map_err(RenderError::io("read", folder))?;
        for needed in ["include/kgen.h", super::library::DISPATCHER_TEMPLATE] {
            if !folder.join(needed).is_file() {
                return Err(RenderError::NotTemplates { folder: folder.to_owned(), missing: needed.to_owned() });
            }
        }
        let mut files = BTreeMap::new();
        collect_folder(folder, "", &mut files)?;
        Ok(Self { files }.with_families())
    }

    /// Inserts each family's part of the C interface into `kgen.h`, in the order of the table of families.
    fn with_families(mut self) -> Self {
        let parts: String = FAMILIES.iter().filter_map(|family| self.get(&format!("{}/abi.h", family.templates()))).join("\n");
        if let Some(header) = self.files.get_mut("include/kgen.h") {
            *header = header.replace(FAMILIES_MARK, &parts).into();
        }
        self
    }

    /// The device headers and `kgen.h`: paths below `templates/include/` and texts, sorted by path.
    pub fn include_files(&self) -> impl Iterator<Item = (&str, &str)> {
        self.below("include/")
    }

    /// The emulator's implementation of the device headers, for the host compiler: paths below `templates/emulator/`
    /// and texts, sorted by path.
    pub fn emulator_files(&self) -> impl Iterator<Item = (&str, &str)> {
        self.below("emulator/")
    }

    /// The text of a file, by its path below `templates/`.
    pub(super) fn get(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(AsRef::as_ref)
    }

    /// The files Tera renders: path below `templates/` and text.
    pub(super) fn rendered(&self) -> impl Iterator<Item = (&str, &str)> {
        let is_template = |path: &str| Path::new(path).extension().is_some_and(|extension| extension == "tera");
        self.files.iter().filter(move |(path, _)| is_template(path)).map(|(path, text)| (path.as_str(), text.as_ref()))
    }

    /// The files below a folder: paths from there and texts, sorted by path.
    pub(super) fn below<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.files.iter().filter_map(move |(path, text)| Some((path.strip_prefix(prefix)?, text.as_ref())))
    }
}

fn is_wanted(name: &str) -> bool {
    !name.starts_with('.') && !name.ends_with('~')
}

fn collect_embedded(folder: &'static Dir<'static>, into: &mut BTreeMap<String, Cow<'static, str>>) {
    for file in folder.files() {
        let path = file.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if let (true, Some(text), Some(path)) = (is_wanted(name), file.contents_utf8(), path.to_str()) {
            into.insert(path.replace('\\', "/"), Cow::Borrowed(text));
        }
    }
    for inner in folder.dirs() {
        collect_embedded(inner, into);
    }
}

fn collect_folder(folder: &Path, prefix: &str, into: &mut BTreeMap<String, Cow<'static, str>>) -> Result<(), RenderError> {
    for entry in fs::read_dir(folder).map_err(RenderError::io("read", folder))? {
        let path = entry.map_err(RenderError::io("read", folder))?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()).filter(|name| is_wanted(name)) else { continue };
        let relative = format!("{prefix}{name}");
        if path.is_dir() {
            collect_folder(&path, &format!("{relative}/"), into)?;
        } else {
            let text = files::read_to_string(&path).map_err(RenderError::io("read", &path))?;
            into.insert(relative, Cow::Owned(text));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_binary_holds_the_header_the_vocabulary_and_the_kernel() {
        let templates = Templates::embedded();
        let includes: Vec<&str> = templates.include_files().map(|(path, _)| path).collect();
        assert!(includes.contains(&"kgen.h") && includes.contains(&"kgen/mma.cuh"), "{includes:?}");
        assert!(templates.get("attention/fwd_sm80.cu.tera").is_some());
        assert!(includes.is_sorted());
    }

    #[test]
    fn a_folder_gives_what_the_binary_holds() {
        let embedded = Templates::embedded();
        let folder = Templates::from_dir(&Path::new(env!("CARGO_MANIFEST_DIR")).join("templates")).expect("own templates");
        assert_eq!(embedded.files, folder.files);
    }

    #[test]
    fn backups_are_left_out_and_a_folder_of_something_else_is_refused() {
        let folder = tempfile::tempdir().expect("temporary folder");
        fs::create_dir(folder.path().join("include")).expect("created");
        fs::write(folder.path().join("include/kgen.h"), "/* */\n").expect("written");
        fs::write(folder.path().join("include/kgen.h~"), "old").expect("written");
        fs::write(folder.path().join("program"), [0xff, 0xfe]).expect("written");
        let error = Templates::from_dir(folder.path()).expect_err("no dispatcher").to_string();
        assert!(error.contains("it has no `bindings/kgen_dispatch.cpp.tera`"), "{error}");

        fs::remove_file(folder.path().join("program")).expect("removed");
        fs::create_dir(folder.path().join("bindings")).expect("created");
        fs::write(folder.path().join("bindings/kgen_dispatch.cpp.tera"), "").expect("written");
        let templates = Templates::from_dir(folder.path()).expect("now complete");
        assert_eq!(templates.include_files().collect::<Vec<_>>(), [("kgen.h", "/* */\n")]);
    }

    #[test]
    fn a_missing_folder_is_named() {
        let error = Templates::from_dir(Path::new("no/such/folder")).expect_err("missing").to_string();
        assert!(error.starts_with("cannot read `no/such/folder`: "), "{error}");
    }
}
