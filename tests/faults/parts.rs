//! Templates whose renderings mark the text that each part produced.

use kgen::render::Templates;
use std::{
    collections::BTreeMap,
    ops::Range,
    path::{Path, PathBuf},
};

/// Characters that begin a part's name, end the name, and end the part's text. Neither templates nor C++ use them.
const NAME: char = '\u{1}';
const TEXT: char = '\u{2}';
const END: char = '\u{3}';

/// True for a file of `templates/` that kernel templates include: neither such a template itself nor a header.
pub fn is_part(file: &str) -> bool {
    Path::new(file).extension().is_some_and(|extension| extension == "tera") && !file.ends_with(".cu.tera")
}

/// The templates, with marks around the rendered text of each of `parts`.
pub fn with_marks<'a>(parts: impl Iterator<Item = &'a str>) -> Templates {
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
    for part in parts {
        let path = folder.path().join(part);
        let text = std::fs::read_to_string(own.join(part)).unwrap_or_else(|error| panic!("a fault names `{part}`: {error}"));
        std::fs::write(&path, marked(part, &text)).expect("written");
    }
    Templates::from_dir(folder.path()).expect("complete")
}

/// A part's text with its marks; those of a component lie inside it, since nothing else of its file is rendered.
fn marked(part: &str, text: &str) -> String {
    let (begin, end) = match text.find("{%- component ") {
        Some(component) => {
            let opens = component + text[component..].find("%}").expect("its tag ends") + 2;
            (opens, text.rfind("{%- endcomponent").expect("it ends"))
        }
        None => (0, text.len()),
    };
    format!("{}{NAME}{part}{TEXT}{}{END}{}", &text[..begin], &text[begin..end], &text[end..])
}

/// A kernel's text, and the positions of each part in it, which may occur several times.
pub struct Parted {
    pub text: String,
    pub parts: BTreeMap<String, Vec<Range<usize>>>,
}

/// A rendering without its marks.
pub fn parted(marked: &str) -> Parted {
    let (mut text, mut parts) = (String::new(), BTreeMap::<_, Vec<_>>::new());
    let mut open = Vec::new();
    let mut rest = marked;
    while let Some(at) = rest.find([NAME, END]) {
        text += &rest[..at];
        let mark = &rest[at..];
        rest = if let Some(named) = mark.strip_prefix(NAME) {
            let (part, after) = named.split_once(TEXT).expect("a name has an end");
            open.push((part, text.len()));
            after
        } else {
            let (part, begin) = open.pop().expect("what ends has begun");
            parts.entry(part.to_owned()).or_default().push(begin..text.len());
            &mark[END.len_utf8()..]
        };
    }
    text += rest;
    Parted { text, parts }
}
