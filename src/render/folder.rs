//! Writing a generated folder: whole files only, nothing of a user's, all of it or none of it.

use super::{OutputFile, RenderError, Templates, include_tree, inside::all_inside, manifest};
use crate::{
    files::{self, FolderLock, content_hash},
    grid::Variant,
};
use rayon::prelude::*;
use serde::Serialize;
use std::{
    collections::BTreeSet,
    fs, io,
    path::{Component, Path, PathBuf},
};

/// Where changed files are written before they take their places.
const STAGING_PREFIX: &str = ".kgen-staging-";

/// What every kernel's header says; a file without it is not overwritten as one of kgen's.
const MARK: &str = "// Made by kgen ";

/// What the header beside a single kernel says, likewise.
const DECLARATION_MARK: &str = " * Made by kgen ";

/// How `kgen.h` begins, in this kgen and in older ones. Where it lies beside a single kernel, the headers with it are
/// kgen's.
const HEADER_MARK: &[u8] = b"/* kgen.h - ";

/// Whether files of an earlier run that are no longer part of the tree are removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prune {
    /// Removed, unless they have been edited since kgen wrote them.
    Yes,
    /// Left where they are.
    No,
}

/// What a write did. Paths are relative to the folder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WriteSummary {
    /// New or changed files.
    pub written: Vec<String>,
    /// Files that were already right; not touched, so build tools see no change.
    pub unchanged: Vec<String>,
    /// Files of an earlier run that were removed.
    pub removed: Vec<String>,
    /// Files of an earlier run that would have been removed, had they not been edited.
    pub kept: Vec<String>,
}

/// An output folder, locked against other kgen processes for as long as this value lives.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    held: manifest::Held,
    _lock: FolderLock,
}

impl Folder {
    /// Creates the folder if need be, waits for its lock and reads its manifest. `on_wait` receives one sentence if
    /// another process has the lock; the wait ends when `stop` becomes true.
    ///
    /// # Errors
    /// [`RenderError::Io`] when the folder cannot be created or written, [`RenderError::Manifest`] when its manifest is
    /// damaged, not kgen's, or of a newer kgen, [`RenderError::Interrupted`].
    pub fn open(path: &Path, on_wait: &dyn Fn(&str), stop: &dyn Fn() -> bool) -> Result<Self, RenderError> {
        fs::create_dir_all(path).map_err(RenderError::io("create", path))?;
        let lock = lock(path, on_wait, stop)?;
        remove_stale_staging(path);
        Ok(Self { path: path.to_owned(), held: manifest::Held::read(path)?, _lock: lock })
    }

    /// The variants whose kernels the folder holds, by its manifest.
    pub fn held(&self) -> &[Variant] {
        &self.held.variants
    }

    /// Brings the folder to `files`. Changed files are written aside first and take their places by rename only when
    /// all of them are on disk: a full disk or a killed process leaves no file half-written.
    ///
    /// # Errors
    /// [`RenderError::Foreign`] when a file in the way is neither what would be written nor of an earlier run,
    /// [`RenderError::Outside`] when a link leads out of the folder: nothing has changed then; [`RenderError::Io`] with
    /// the system's reason.
    pub fn write(&self, files: &[OutputFile], prune: Prune) -> Result<WriteSummary, RenderError> {
        let ours = |path: &str, _: &[u8]| path == manifest::FILE || self.held.files.contains_key(path);
        let doomed = if prune == Prune::Yes { self.doomed(files) } else { Vec::new() };
        all_inside(&self.path, doomed.iter().map(|(path, _)| *path))?;
        let mut summary = replace(&self.path, files, &ours)?;
        self.prune(&doomed, &mut summary)?;
        Ok(summary)
    }

    /// Files of an earlier run, with their hashes, that are not among `files`.
    fn doomed(&self, files: &[OutputFile]) -> Vec<(&str, &str)> {
        let wanted: BTreeSet<&str> = files.iter().map(|file| file.path.as_str()).collect();
        // A manifest is a file like any other; it must not lead out of the folder.
        let plain = |path: &str| Path::new(path).components().all(|c| matches!(c, Component::Normal(_)));
        let held = self.held.files.iter().map(|(path, hash)| (path.as_str(), hash.as_str()));
        held.filter(|(path, _)| !wanted.contains(path) && plain(path)).collect()
    }

    fn prune(&self, doomed: &[(&str, &str)], summary: &mut WriteSummary) -> Result<(), RenderError> {
        for &(path, hash) in doomed {
            let full = self.path.join(path);
            match files::read_to_string(&full) {
                Ok(text) if content_hash(&text) == hash => {
                    fs::remove_file(&full).map_err(RenderError::io("remove", &full))?;
                    remove_empty_parents(&self.path, &full);
                    summary.removed.push(path.to_owned());
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Ok(_) | Err(_) => summary.kept.push(path.to_owned()),
            }
        }
        Ok(())
    }
}

/// Brings `folder` to `files`, as [`Folder::open`] and [`Folder::write`] do, waiting silently for its lock.
///
/// # Errors
/// As theirs.
pub fn write_tree(folder: &Path, files: &[OutputFile], prune: Prune) -> Result<WriteSummary, RenderError> {
    Folder::open(folder, &|_| (), &|| false)?.write(files, prune)
}

/// The variants whose kernels `folder` holds, by its manifest; none where there is no manifest. Takes no lock.
///
/// # Errors
/// [`RenderError::Manifest`] and [`RenderError::Io`] when the manifest cannot be read.
pub fn held_variants(folder: &Path) -> Result<Vec<Variant>, RenderError> {
    Ok(manifest::Held::read(folder)?.variants)
}

/// Writes one kernel as `file`, `header`, which declares it, beside it, and the headers it includes as `include/`.
///
/// # Errors
/// [`RenderError::Foreign`] when `file` exists and is not a kernel of kgen, or headers of its names there are not
/// kgen's; [`RenderError::Io`] with the system's reason. Nothing has been written then.
pub fn write_kernel_file(
    file: &Path,
    text: &str,
    header: &OutputFile,
    templates: &Templates,
    on_wait: &dyn Fn(&str),
) -> Result<WriteSummary, RenderError> {
    let folder = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    fs::create_dir_all(folder).map_err(RenderError::io("create", folder))?;
    let _lock = lock(folder, on_wait, &|| false)?;
    remove_stale_staging(folder);

    let kernel = OutputFile { path: name.to_owned(), text: text.to_owned() };
    let files: Vec<OutputFile> = [kernel, header.clone()].into_iter().chain(include_tree(templates)).collect();
    let own_headers = files::read(&folder.join("include/kgen.h")).is_ok_and(|text| text.starts_with(HEADER_MARK));
    let ours = |path: &str, text: &[u8]| {
        let mark = if path == name { Some(MARK) } else { (path == header.path).then_some(DECLARATION_MARK) };
        mark.map_or(own_headers, |mark| String::from_utf8_lossy(text).contains(mark))
    };
    replace(folder, &files, &ours)
}

/// Takes the lock of a folder that exists; its file is there only while a process writes the folder.
pub(super) fn lock(folder: &Path, on_wait: &dyn Fn(&str), stop: &dyn Fn() -> bool) -> Result<FolderLock, RenderError> {
    let waiting = |who: &str| on_wait(&format!("{who} is writing `{}`; waiting for it", folder.display()));
    let lock = FolderLock::acquire(folder, &waiting, stop);
    lock.map_err(RenderError::io("lock", FolderLock::file_of(folder)))?.ok_or(RenderError::Interrupted)
}

/// Writes those of `files` that are not yet as they should be. `ours` says, of a path and the text found there,
/// whether it may be overwritten.
fn replace(
    folder: &Path,
    files: &[OutputFile],
    ours: &(dyn Fn(&str, &[u8]) -> bool + Sync),
) -> Result<WriteSummary, RenderError> {
    all_inside(folder, files.iter().map(|file| file.path.as_str()))?;
    let states: Vec<State> = files.par_iter().map(|file| state(folder, file, ours)).collect::<Result<_, _>>()?;
    let of = |wanted: State| files.iter().zip(&states).filter(move |(_, state)| **state == wanted).map(|(file, _)| file);
    let paths = |wanted: State| of(wanted).map(|file| file.path.clone()).collect::<Vec<_>>();

    let foreign = paths(State::Foreign);
    if !foreign.is_empty() {
        return Err(RenderError::Foreign { folder: folder.to_owned(), files: foreign });
    }
    place(folder, &of(State::Stale).collect::<Vec<_>>())?;
    Ok(WriteSummary { written: paths(State::Stale), unchanged: paths(State::Right), ..WriteSummary::default() })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Right,
    Stale,
    Foreign,
}

fn state(folder: &Path, file: &OutputFile, ours: &(dyn Fn(&str, &[u8]) -> bool + Sync)) -> Result<State, RenderError> {
    let path = folder.join(&file.path);
    match files::read(&path) {
        Ok(text) if text == file.text.as_bytes() => Ok(State::Right),
        Ok(text) if !ours(&file.path, &text) => Ok(State::Foreign),
        Ok(_) => Ok(State::Stale),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(State::Stale),
        Err(error) => Err(RenderError::io("write", path)(error)),
    }
}

/// Writes `files` aside, then renames each into its place, in the order given.
pub(super) fn place(folder: &Path, files: &[&OutputFile]) -> Result<(), RenderError> {
    if files.is_empty() {
        return Ok(());
    }
    let staging = tempfile::Builder::new().prefix(STAGING_PREFIX).tempdir_in(folder).map_err(RenderError::io("write", folder))?;
    let staged = |index: usize| staging.path().join(index.to_string());
    files.par_iter().enumerate().try_for_each(|(index, file)| {
        fs::write(staged(index), &file.text).map_err(RenderError::io("write", folder.join(&file.path)))
    })?;
    for (index, file) in files.iter().enumerate() {
        let path = folder.join(&file.path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(RenderError::io("create", parent))?;
        }
        fs::rename(staged(index), &path).map_err(RenderError::io("write", path))?;
    }
    Ok(())
}

/// Clears what a killed run left. Only under the folder's lock: no other process is staging then.
pub(super) fn remove_stale_staging(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(STAGING_PREFIX) {
            // Left behind it would do no harm, so neither does a failure here.
            fs::remove_dir_all(entry.path()).ok();
        }
    }
}

/// Removes the folders between `root` and a removed file that have become empty.
pub(super) fn remove_empty_parents(root: &Path, removed: &Path) {
    for parent in removed.ancestors().skip(1).take_while(|parent| *parent != root) {
        if fs::remove_dir(parent).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        family::attention::{Kind, Point},
        grid::{Dtype, Features, HeadDim, Target},
        plan::Plan,
        render::{Renderer, tree},
    };

    fn variant(head_dim: u32) -> Variant {
        Point {
            kind: Kind::Fwd,
            head_dim: HeadDim::equal(head_dim),
            dtype: Dtype::Fp16,
            causal: false,
            features: Features::NONE,
            target: Target::Sm80,
        }
        .into()
    }

    fn files(head_dims: &[u32]) -> Vec<OutputFile> {
        let templates = Templates::embedded();
        let plans: Vec<Plan> = head_dims.iter().map(|d| Plan::new(variant(*d), None).expect("fits")).collect();
        tree(&Renderer::new(&templates).expect("templates parse"), &templates, &plans).expect("renders")
    }

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(folder)
            .expect("readable")
            .map(|entry| entry.expect("readable").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_second_write_touches_nothing() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let files = files(&[64]);
        let first = write_tree(folder.path(), &files, Prune::Yes).expect("written");
        assert_eq!(first.written.len(), files.len());
        let kernel = folder.path().join("flash_fwd_hdim64_fp16_sm80.cu");
        let before = fs::metadata(&kernel).and_then(|m| m.modified()).expect("exists");

        let second = write_tree(folder.path(), &files, Prune::Yes).expect("written");
        assert_eq!((second.written.len(), second.unchanged.len()), (0, files.len()));
        assert_eq!(fs::metadata(&kernel).and_then(|m| m.modified()).expect("exists"), before);
        assert!(names(folder.path()).iter().all(|name| !name.starts_with('.')), "nothing but the tree is left");
    }

    #[test]
    fn pruning_removes_what_kgen_wrote_and_never_what_a_person_did() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let root = folder.path();
        write_tree(root, &files(&[64, 96, 128]), Prune::Yes).expect("written");
        fs::write(root.join("my_notes.txt"), "mine").expect("written");
        fs::write(root.join("flash_fwd_hdim96_fp16_sm80.cu"), "edited by hand").expect("written");

        let summary = write_tree(root, &files(&[64]), Prune::Yes).expect("written");
        assert_eq!(summary.removed, ["flash_fwd_hdim128_fp16_sm80.cu"]);
        assert_eq!(summary.kept, ["flash_fwd_hdim96_fp16_sm80.cu"]);
        let left = names(root);
        assert!(left.contains(&"my_notes.txt".to_owned()) && left.contains(&"flash_fwd_hdim96_fp16_sm80.cu".to_owned()));
        assert_eq!(held_variants(root).expect("readable"), [variant(64)]);
    }

    #[test]
    fn files_of_somebody_else_are_refused_before_anything_is_written() {
        let folder = tempfile::tempdir().expect("temporary folder");
        fs::write(folder.path().join("README.md"), "# my project\n").expect("written");
        let error = write_tree(folder.path(), &files(&[64]), Prune::Yes).expect_err("in the way").to_string();
        assert!(error.contains("holds a file that this kgen did not write: `README.md`; choose another folder"), "{error}");
        assert_eq!(names(folder.path()), ["README.md"]);
    }

    #[test]
    fn an_edited_file_of_an_earlier_run_is_brought_back() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let files = files(&[64]);
        write_tree(folder.path(), &files, Prune::Yes).expect("written");
        fs::write(folder.path().join("include/kgen.h"), "/* edited */").expect("written");
        let summary = write_tree(folder.path(), &files, Prune::Yes).expect("written");
        assert_eq!(summary.written, ["include/kgen.h"]);
    }

    #[test]
    fn a_manifest_that_leads_out_of_the_folder_removes_nothing_there() {
        let outer = tempfile::tempdir().expect("temporary folder");
        let folder = outer.path().join("generated");
        write_tree(&folder, &files(&[64]), Prune::Yes).expect("written");
        fs::write(outer.path().join("victim"), "precious").expect("written");
        let manifest = fs::read_to_string(folder.join("manifest.json")).expect("readable");
        let line = format!("\"files\": {{\n    \"../victim\": \"{}\",", content_hash("precious"));
        fs::write(folder.join("manifest.json"), manifest.replace("\"files\": {", &line)).expect("written");
        write_tree(&folder, &files(&[64]), Prune::Yes).expect("written");
        assert!(outer.path().join("victim").exists());
    }

    #[test]
    fn what_a_killed_run_left_is_cleared() {
        let folder = tempfile::tempdir().expect("temporary folder");
        fs::create_dir(folder.path().join(".kgen-staging-dead")).expect("created");
        fs::write(folder.path().join(".kgen-staging-dead/0"), "half").expect("written");
        write_tree(folder.path(), &files(&[64]), Prune::No).expect("written");
        assert!(!folder.path().join(".kgen-staging-dead").exists());
    }

    #[test]
    fn a_manifest_of_a_newer_kgen_or_of_something_else_is_refused() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("manifest.json");
        fs::write(&path, r#"{"format": 2, "variants": [], "files": {}}"#).expect("written");
        let error = write_tree(folder.path(), &files(&[64]), Prune::Yes).expect_err("newer").to_string();
        assert!(error.contains("a newer kgen wrote it"), "{error}");
        fs::write(&path, r#"{"name": "my web app"}"#).expect("written");
        let error = write_tree(folder.path(), &files(&[64]), Prune::Yes).expect_err("not kgen's").to_string();
        assert!(error.contains("manifest.json` is not a manifest this kgen can read: "), "{error}");
        assert_eq!(names(folder.path()), ["manifest.json"]);
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_named_with_the_systems_reason() {
        let folder = tempfile::tempdir().expect("temporary folder");
        fs::write(folder.path().join("file"), "").expect("written");
        let error = write_tree(&folder.path().join("file/generated"), &files(&[64]), Prune::Yes).expect_err("a file");
        let message = error.to_string();
        assert!(message.starts_with("cannot create `") && message.contains("os error"), "{message}");
    }

    #[test]
    fn one_kernel_brings_its_headers_and_overwrites_only_kernels() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let templates = Templates::embedded();
        let plan = Plan::new(variant(72), None).expect("fits");
        let source = Renderer::new(&templates).and_then(|r| r.kernel_in_file(&plan, "my.cu")).expect("renders");
        let header = OutputFile { path: "my.h".to_owned(), text: format!("/* my\n{DECLARATION_MARK}0.0.1\n */\n") };
        let file = folder.path().join("my.cu");

        fs::write(&file, "int main() {}\n").expect("written");
        let error = write_kernel_file(&file, &source.text, &header, &templates, &|_| ()).expect_err("not a kernel").to_string();
        assert!(error.contains("`my.cu`"), "{error}");
        assert_eq!(names(folder.path()), ["my.cu"]);

        fs::write(&file, format!("{MARK}0.0.1\n")).expect("written");
        let summary = write_kernel_file(&file, &source.text, &header, &templates, &|_| ()).expect("written");
        assert!(summary.written.contains(&"include/kgen.h".to_owned()));
        assert_eq!(fs::read_to_string(&file).expect("readable"), source.text);

        fs::write(folder.path().join("my.h"), "#define MINE\n").expect("written");
        let error = write_kernel_file(&file, &source.text, &header, &templates, &|_| ()).expect_err("not kgen's").to_string();
        assert!(error.contains("`my.h`"), "{error}");
        fs::write(folder.path().join("my.h"), &header.text).expect("written");

        fs::write(folder.path().join("include/kgen.h"), "/* kgen.h - of an older kgen */\n").expect("written");
        fs::write(folder.path().join("include/kgen/mma.cuh"), "// older\n").expect("written");
        let summary = write_kernel_file(&file, &source.text, &header, &templates, &|_| ()).expect("replaced");
        assert_eq!(summary.written, ["include/kgen.h", "include/kgen/mma.cuh"]);

        fs::write(folder.path().join("include/kgen.h"), "/* another */\n").expect("written");
        let error = write_kernel_file(&file, &source.text, &header, &templates, &|_| ()).expect_err("differs").to_string();
        assert!(error.contains("`include/kgen.h`"), "{error}");
    }

    #[test]
    fn the_header_of_the_interface_carries_its_mark() {
        let templates = Templates::embedded();
        let header = templates.include_files().find(|(path, _)| *path == "kgen.h").expect("there is one");
        assert!(header.1.as_bytes().starts_with(HEADER_MARK));
    }

    #[test]
    fn every_kernel_carries_the_mark() {
        let files = files(&[64]);
        let kernels: Vec<_> = files.iter().filter(|file| file.path.starts_with("flash_")).collect();
        assert!(kernels.len() == 1 && kernels[0].text.contains(MARK));
    }
}
