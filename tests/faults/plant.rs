//! How a fault gets into a kernel: its text is replaced in the template, part or header that it names, and nowhere
//! else.

use super::{laboratory::Laboratory, list::Fault};
use kgen::{plan::Plan, render::Templates};
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

/// Whether a file of `templates/` is included by templates of kernels: it is none of them, nor a header.
pub fn is_part(file: &str) -> bool {
    Path::new(file).extension().is_some_and(|extension| extension == "tera") && !file.ends_with(".cu.tera")
}

/// What encloses the text that a part renders. Templates and C++ know neither.
const MARKS: [char; 2] = ['\u{1}', '\u{2}'];

/// The templates, with marks around what `part` renders.
pub fn with_marks(part: &str) -> Templates {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("templates");
    let folder = tempfile::tempdir().expect("temporary folder");
    let mut todo = vec![PathBuf::new()];
    while let Some(path) = todo.pop() {
        std::fs::create_dir_all(folder.path().join(&path)).expect("created");
        for entry in std::fs::read_dir(own.join(&path)).expect("the templates are there") {
            let path = path.join(entry.expect("it can be read").file_name());
            if own.join(&path).is_dir() {
                todo.push(path);
            } else {
                std::fs::copy(own.join(&path), folder.path().join(&path)).expect("copied");
            }
        }
    }
    let path = folder.path().join(part);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("a fault names `{part}`: {error}"));
    std::fs::write(&path, format!("{}{text}{}", MARKS[0], MARKS[1])).expect("written");
    Templates::from_dir(folder.path()).expect("complete")
}

/// The text with `find` replaced, wherever white space stands in either; `None` unless it occurs once.
pub fn replace_once(text: &str, [find, replace]: &[String; 2]) -> Option<String> {
    let kept: Vec<(usize, char)> = text.char_indices().filter(|(_, c)| !c.is_whitespace()).collect();
    let wanted: Vec<char> = find.chars().filter(|c| !c.is_whitespace()).collect();
    let starts = kept.windows(wanted.len()).enumerate().filter(|(_, window)| window.iter().map(|(_, c)| c).eq(&wanted));
    let [(first, _)] = starts.collect::<Vec<_>>()[..] else { return None };
    let (last, c) = kept[first + wanted.len() - 1];
    Some(format!("{}{replace}{}", &text[..kept[first].0], &text[last + c.len_utf8()..]))
}

impl Laboratory {
    /// A kernel with the fault of `file` in it; `None` where the fault does not concern it. A fault in a header is
    /// planted in a copy that takes the place of its `#include`.
    fn plant(&self, fault: &Fault, file: &str, place: usize) -> Option<String> {
        let (plan, kernel) = &self.kernels[place];
        let once = |text: &str| replace_once(text, &[fault.find.clone(), fault.replace.clone()]);
        let planted = if let Some(header) = file.strip_prefix("include/") {
            let (_, text) = self.templates.include_files().find(|(path, _)| *path == header).expect("the header is there");
            let line = format!("#include \"{header}\"\n");
            kernel.contains(&line).then_some(())?;
            kernel.replace(&line, &once(text)?)
        } else if is_part(file) {
            // Of several texts that a part renders in a kernel one must hold it.
            let pieces: Vec<&str> = self.marked[file][place].split(MARKS).collect();
            let planted = pieces.iter().enumerate().skip(1).step_by(2).filter_map(|(at, piece)| Some((at, once(piece)?)));
            let [(at, piece)] = &planted.collect::<Vec<_>>()[..] else { return None };
            let piece_at = |place: usize| if place == *at { piece.as_str() } else { pieces[place] };
            (0..pieces.len()).map(piece_at).collect()
        } else {
            (plan.template == file).then(|| once(kernel))??
        };
        match &fault.also {
            Some(also) => replace_once(&planted, also),
            None => Some(planted),
        }
    }

    /// The kernels with the fault in them: of every template that it concerns the first, and of a header's the first at
    /// all.
    pub fn planted(&self, fault: &Fault) -> Vec<(&Plan, String)> {
        let mut planted: Vec<(&Plan, String)> = Vec::new();
        for file in fault.file.all() {
            let mut concerned = BTreeSet::new();
            for (place, (plan, _)) in self.kernels.iter().enumerate() {
                let template = if file.starts_with("include/") { "" } else { plan.template };
                let is_asked = fault.kernel.as_ref().is_none_or(|part| plan.variant.name().contains(part));
                if !is_asked || concerned.contains(template) {
                    continue;
                }
                let Some(text) = self.plant(fault, file, place) else { continue };
                concerned.insert(template);
                planted.push((plan, text));
            }
            assert!(!concerned.is_empty(), "the fault concerns a kernel that has `{file}`: its `find` occurs once");
        }
        planted
    }
}
