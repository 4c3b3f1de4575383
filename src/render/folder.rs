//! Writes a generated folder atomically: whole files, all or none, and never over a user's files.

use super::{
    OutputFile, RenderError, Templates,
    companion::{EMULATOR, headers_of_emulator},
    inside::all_inside,
    manifest::{self, Held},
    transition::Transition,
    vendored::used_headers,
};
use crate::{
    files::{self, FolderLock, content_hash, make_folder, sweep},
    kernel::Variant,
};
use rayon::prelude::*;
use serde::Serialize;
use std::{
    collections::BTreeSet,
    io,
    path::{Path, PathBuf},
};

/// Suffix of the backup of an edited file that kgen replaces.
const EDITED: &str = ".edited";

/// Line in every kernel's header comment. A file without it is not kgen's and is not overwritten.
const MARK: &str = "// Made by kgen ";

/// Line in the header beside a single kernel: its [`MARK`].
const DECLARATION_MARK: &str = " * Made by kgen ";

/// Line in a text beside a single kernel: its [`MARK`].
pub const COMMENT_MARK: &str = "<!-- Made by kgen ";

/// Start of the predictions beside a single kernel, whose format has no comments.
const PREDICTION_MARK: &str = "{\n  \"calls\": [";

/// Start of `kgen.h`, in this and older versions of kgen. If it is beside a single kernel, the headers with it are
/// kgen's.
const HEADER_MARK: &[u8] = b"/* kgen.h - ";

/// Policy for files of an earlier run that are no longer part of the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prune {
    /// Remove them, unless they have been edited since kgen wrote them.
    Yes,
    /// Keep them.
    No,
}

/// Result of a write. Paths are relative to the folder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WriteSummary {
    /// New or changed files.
    pub written: Vec<String>,
    /// Files that were already up to date. They are not touched, so build tools see no change.
    pub unchanged: Vec<String>,
    /// Files of an earlier run that were removed.
    pub removed: Vec<String>,
    /// Files of an earlier run that are no longer needed but were kept because they had been edited.
    pub kept: Vec<String>,
    /// Files that had been edited and were replaced.
    pub edited: Vec<Edited>,
}

/// A file that was edited after kgen wrote it, and was replaced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Edited {
    /// Path below the folder.
    pub path: String,
    /// Path of the backup of the edited text, below the folder.
    pub copy: String,
}

/// An output folder, locked against other kgen processes until this value is dropped.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    held: Held,
    _lock: FolderLock,
}

impl Folder {
    /// Creates the folder if it is missing, waits for its lock and reads its manifest. `on_wait` receives one sentence
    /// if another process has the lock; the wait ends when `stop` becomes true.
    ///
    /// # Errors
    /// [`RenderError::Io`] when the folder cannot be created or written, [`RenderError::Manifest`] when its manifest is
    /// damaged, not kgen's or from a newer kgen, [`RenderError::Interrupted`] when `stop` ended the wait.
    pub fn open(path: &Path, on_wait: &dyn Fn(&str), stop: &dyn Fn() -> bool) -> Result<Self, RenderError> {
        make_folder(path).map_err(RenderError::io("create", path))?;
        let lock = lock(path, on_wait, stop)?;
        sweep(path);
        Ok(Self { path: path.to_owned(), held: Held::read(path)?, _lock: lock })
    }

    /// The variants whose kernels are in the folder, according to its manifest.
    pub fn held(&self) -> &[Variant] {
        &self.held.variants
    }

    /// Replaces the folder's contents with `files`. Changed files are first written under temporary names and renamed
    /// only after all of them are on disk, so a full disk or a killed process leaves no partial file. A file that was
    /// edited after kgen wrote it is replaced, and a backup of the edited text is kept beside it.
    ///
    /// # Errors
    /// [`RenderError::Foreign`] when an existing file has other text and is not from an earlier run,
    /// [`RenderError::Outside`] when a link leads out of the folder. In both cases nothing has changed.
    /// [`RenderError::Io`] with the system's error.
    pub fn write(&self, files: &[OutputFile], prune: Prune) -> Result<WriteSummary, RenderError> {
        let written = self.held.paths();
        let owner_of = |path: &str, text: &[u8]| match path {
            manifest::FILE => Owner::Ours,
            _ if !written.contains(path) => Owner::Foreign,
            _ if self.held.wrote(path, &content_hash(text)) => Owner::Ours,
            _ => Owner::Edited,
        };
        let (doomed, kept) = if prune == Prune::Yes { self.doomed(files, &written)? } else { Default::default() };
        let summary = replace(&self.path, files, &owner_of, &self.held, &doomed)?;
        Ok(WriteSummary { kept, ..summary })
    }

    /// Files of an earlier run that are not in `files`: (to remove, kept because they were edited).
    fn doomed<'a>(&self, files: &[OutputFile], written: &BTreeSet<&'a str>) -> Result<(Vec<&'a str>, Vec<String>), RenderError> {
        let wanted: BTreeSet<&str> = files.iter().map(|file| file.path.as_str()).collect();
        let old: Vec<&'a str> = written.iter().copied().filter(|path| !wanted.contains(path)).collect();
        all_inside(&self.path, old.iter().copied())?;
        let (mut doomed, mut kept) = (Vec::new(), Vec::new());
        for path in old {
            match files::read_if_there(&self.path.join(path)) {
                Ok(Some(text)) if self.held.wrote(path, &content_hash(&text)) => doomed.push(path),
                Ok(None) => {}
                Ok(_) | Err(_) => kept.push(path.to_owned()),
            }
        }
        Ok((doomed, kept))
    }
}

/// [`Folder::open`] and [`Folder::write`] in one call, without a message while waiting for the lock.
///
/// # Errors
/// The errors of [`Folder::open`] and [`Folder::write`].
pub fn write_tree(folder: &Path, files: &[OutputFile], prune: Prune) -> Result<WriteSummary, RenderError> {
    Folder::open(folder, &|_| (), &|| false)?.write(files, prune)
}

/// The variants whose kernels are in `folder`, according to its manifest; empty without a manifest. Takes no lock.
///
/// # Errors
/// [`RenderError::Manifest`] and [`RenderError::Io`] when the manifest cannot be read.
pub fn held_variants(folder: &Path) -> Result<Vec<Variant>, RenderError> {
    Ok(Held::read(folder)?.variants)
}

/// One kernel and what goes beside it, with only the headers of `include/` that they use.
///
/// # Errors
/// [`RenderError::Include`] when one of them includes a header that the templates do not have.
pub fn with_used_headers(templates: &Templates, sources: Vec<OutputFile>) -> Result<Vec<OutputFile>, RenderError> {
    let is_source = |file: &&OutputFile| is_code(&file.path) && !file.path.starts_with(EMULATOR);
    let mut including: Vec<OutputFile> = sources.iter().filter(is_source).cloned().collect();
    including.push(headers_of_emulator(&sources));
    let headers = used_headers(templates, &including)?;
    Ok(sources.into_iter().chain(headers).collect())
}

/// True for sources in C++ and C.
fn is_code(path: &str) -> bool {
    [".cu", ".h", ".cpp"].iter().any(|ending| path.ends_with(ending))
}

/// Writes one kernel to `file`, beside it `others`, such as the header that declares it, and below `include/` the
/// headers that they include. There is no manifest. `written` are the files this kgen would write for the kernel that
/// an existing `file` names, if any. If a file has kgen's mark but other text, a user edited it or an older kgen wrote
/// it: a backup is kept. The same holds for a header of `include/`, or the emulator, beside a file of this kgen's.
/// Files of another kernel that this kgen wrote beside it are removed if nothing takes their place.
///
/// # Errors
/// [`RenderError::Foreign`] when `file` exists and is not a kgen kernel, or another existing file is not kgen's;
/// [`RenderError::Io`] with the system's error. In both cases nothing has been written.
pub fn write_kernel_file(
    file: &Path,
    text: &str,
    others: &[OutputFile],
    written: &[OutputFile],
    templates: &Templates,
    on_wait: &dyn Fn(&str),
) -> Result<WriteSummary, RenderError> {
    let folder = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    make_folder(folder).map_err(RenderError::io("create", folder))?;
    let _lock = lock(folder, on_wait, &|| false)?;
    sweep(folder);

    let kernel = OutputFile { path: name.to_owned(), text: text.to_owned() };
    let files = with_used_headers(templates, [&[kernel], others].concat())?;
    let own_headers = files::read(&folder.join("include/kgen.h")).is_ok_and(|text| text.starts_with(HEADER_MARK));
    let is_written =
        |path: &str, text: Option<&[u8]>| written.iter().any(|file| file.path == path && Some(file.text.as_bytes()) == text);
    let is_of_this_kgen = is_written(name, files::read(file).ok().as_deref());
    let owner_of = |path: &str, text: &[u8]| {
        let mark = mark_of(path);
        let is_ours = mark.map_or(own_headers, |mark| String::from_utf8_lossy(text).contains(mark));
        let is_edited = if mark.is_some() { !is_written(path, Some(text)) } else { is_of_this_kgen };
        match (is_ours, is_edited) {
            (true, true) => Owner::Edited,
            (true, false) => Owner::Ours,
            (false, _) => Owner::Foreign,
        }
    };
    // What is beside the kernel of before, as kgen wrote it, would seem to belong to this one.
    let is_another = written.first().is_some_and(|before| before.text != text);
    let is_stale = |before: &&OutputFile| {
        let is_beside = !before.path.contains('/') && files.iter().all(|file| file.path != before.path);
        is_another && is_beside && files::read(&folder.join(&before.path)).is_ok_and(|found| found == before.text.as_bytes())
    };
    let stale: Vec<&str> = written.iter().filter(is_stale).map(|before| before.path.as_str()).collect();
    replace(folder, &files, &owner_of, &Held::default(), &stale)
}

/// What a file beside `include/` contains if kgen wrote it; `None` for a file of a folder, which has no mark itself.
fn mark_of(path: &str) -> Option<&'static str> {
    let marks = [(".cu", MARK), (".cpp", MARK), (".h", DECLARATION_MARK), (".md", COMMENT_MARK), (".json", PREDICTION_MARK)];
    marks.iter().find(|(ending, _)| !path.contains('/') && path.ends_with(ending)).map(|(_, mark)| *mark)
}

/// Locks an existing folder. The lock file exists only while a process writes the folder.
pub(super) fn lock(folder: &Path, on_wait: &dyn Fn(&str), stop: &dyn Fn() -> bool) -> Result<FolderLock, RenderError> {
    let waiting = |who: &str| on_wait(&format!("{who} is writing `{}`; waiting for it", folder.display()));
    let lock = FolderLock::acquire(folder, &waiting, stop);
    lock.map_err(RenderError::io("lock", FolderLock::file_of(folder)))?.ok_or(RenderError::Interrupted)
}

/// True if the error means that a file or folder does not exist.
pub(super) fn is_missing(error: &RenderError) -> bool {
    matches!(error, RenderError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
}

/// Owner of the text found at a file's path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    /// kgen: may be overwritten.
    Ours,
    /// kgen, with a user's edits: may be overwritten after a backup.
    Edited,
    /// A user or another program: never overwritten.
    Foreign,
}

/// State of a file's path before the write.
enum State {
    Right,
    Missing,
    /// A file with other text.
    Other(Owner, Vec<u8>),
}

/// Writes those of `files` that are missing or differ, and removes the paths in `doomed`. `held` is the folder's
/// current manifest. `owner_of` maps a path and the text found there to its owner.
fn replace(
    folder: &Path,
    files: &[OutputFile],
    owner_of: &(dyn Fn(&str, &[u8]) -> Owner + Sync),
    held: &Held,
    doomed: &[&str],
) -> Result<WriteSummary, RenderError> {
    all_inside(folder, files.iter().map(|file| file.path.as_str()))?;
    let states: Vec<State> = files.par_iter().map(|file| state(folder, file, owner_of)).collect::<Result<_, _>>()?;
    let found = || files.iter().zip(&states);
    let is = |state: &State, wanted: Owner| matches!(state, State::Other(owner, _) if *owner == wanted);

    let foreign: Vec<String> =
        found().filter(|(_, state)| is(state, Owner::Foreign)).map(|(file, _)| file.path.clone()).collect();
    if !foreign.is_empty() {
        return Err(RenderError::Foreign { folder: folder.to_owned(), files: foreign });
    }
    let edited = found().filter_map(|(file, state)| match state {
        State::Other(Owner::Edited, text) => Some((file, text.as_slice())),
        _ => None,
    });
    let copies: Vec<(Edited, &[u8])> = edited
        .map(|(file, text)| {
            let copy = free_name(folder, &file.path, text)?;
            Ok((Edited { path: file.path.clone(), copy }, text))
        })
        .collect::<Result<_, RenderError>>()?;
    let stale: Vec<&OutputFile> = found().filter(|(_, state)| !matches!(state, State::Right)).map(|(file, _)| file).collect();
    let (manifests, others): (Vec<&OutputFile>, Vec<&OutputFile>) =
        stale.iter().copied().partition(|file| file.path == manifest::FILE);
    let kept = copies.iter().map(|(edited, text)| (edited.copy.as_str(), *text));
    let put = kept.chain(others.iter().map(|file| (file.path.as_str(), file.text.as_bytes()))).collect();
    Transition { folder, held, put, doomed: doomed.to_vec(), manifest: manifests.first().copied() }.make()?;
    Ok(WriteSummary {
        written: stale.iter().map(|file| file.path.clone()).collect(),
        unchanged: found().filter(|(_, state)| matches!(state, State::Right)).map(|(file, _)| file.path.clone()).collect(),
        removed: doomed.iter().map(|path| (*path).to_owned()).collect(),
        kept: Vec::new(),
        edited: copies.into_iter().map(|(edited, _)| edited).collect(),
    })
}

/// A backup path beside `path` that is free or already has this text.
fn free_name(folder: &Path, path: &str, text: &[u8]) -> Result<String, RenderError> {
    let mut name = format!("{path}{EDITED}");
    let mut number = 1;
    loop {
        let there = folder.join(&name);
        match files::read_if_there(&there).map_err(RenderError::io("write", &there))? {
            Some(other) if other != text => {}
            _ => return Ok(name),
        }
        number += 1;
        name = format!("{path}{EDITED}-{number}");
    }
}

fn state(folder: &Path, file: &OutputFile, owner_of: &(dyn Fn(&str, &[u8]) -> Owner + Sync)) -> Result<State, RenderError> {
    let path = folder.join(&file.path);
    Ok(match files::read_if_there(&path).map_err(RenderError::io("write", path))? {
        None => State::Missing,
        Some(text) if text == file.text.as_bytes() => State::Right,
        Some(text) => State::Other(owner_of(&file.path, &text), text),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        family::attention::{Kind, Point},
        kernel::{Dtype, Features, HeadDim, Target},
        plan::Plan,
        render::{Renderer, tree},
    };
    use std::fs;

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
        let copy = |number: &str| Edited { path: "include/kgen.h".to_owned(), copy: format!("include/kgen.h.edited{number}") };
        assert_eq!(summary.edited, [copy("")]);
        let read = |path: &str| fs::read_to_string(folder.path().join(path)).expect("readable");
        assert_eq!(read("include/kgen.h.edited"), "/* edited */");

        // A second edited text gets its own backup name; the first text again reuses its backup.
        for (text, number) in [("/* again */", "-2"), ("/* edited */", "")] {
            fs::write(folder.path().join("include/kgen.h"), text).expect("written");
            assert_eq!(write_tree(folder.path(), &files, Prune::Yes).expect("written").edited, [copy(number)]);
        }
        assert_eq!(read("include/kgen.h.edited-2"), "/* again */");
        assert!(write_tree(folder.path(), &files, Prune::Yes).expect("written").edited.is_empty());
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
        let error = write_kernel_file(&file, &source.text, std::slice::from_ref(&header), &[], &templates, &|_| ())
            .expect_err("not a kernel")
            .to_string();
        assert!(error.contains("`my.cu`"), "{error}");
        assert_eq!(names(folder.path()), ["my.cu"]);

        fs::write(&file, format!("{MARK}0.0.1\n")).expect("written");
        let summary =
            write_kernel_file(&file, &source.text, std::slice::from_ref(&header), &[], &templates, &|_| ()).expect("written");
        assert!(summary.written.contains(&"include/kgen.h".to_owned()));
        assert_eq!(summary.edited, [Edited { path: "my.cu".to_owned(), copy: "my.cu.edited".to_owned() }]);
        assert_eq!(fs::read_to_string(&file).expect("readable"), source.text);

        fs::write(folder.path().join("my.h"), "#define MINE\n").expect("written");
        let error = write_kernel_file(&file, &source.text, std::slice::from_ref(&header), &[], &templates, &|_| ())
            .expect_err("not kgen's")
            .to_string();
        assert!(error.contains("`my.h`"), "{error}");
        fs::write(folder.path().join("my.h"), &header.text).expect("written");

        fs::write(folder.path().join("include/kgen.h"), "/* kgen.h - of an older kgen */\n").expect("written");
        fs::write(folder.path().join("include/kgen/mma.cuh"), "// older\n").expect("written");
        let summary =
            write_kernel_file(&file, &source.text, std::slice::from_ref(&header), &[], &templates, &|_| ()).expect("replaced");
        assert_eq!(summary.written, ["include/kgen.h", "include/kgen/mma.cuh"]);

        fs::write(folder.path().join("include/kgen.h"), "/* another */\n").expect("written");
        let error = write_kernel_file(&file, &source.text, std::slice::from_ref(&header), &[], &templates, &|_| ())
            .expect_err("differs")
            .to_string();
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
