//! The lists of faults, `tests/emulator/faults/*.toml`. README.md beside them explains the keys.

use super::code::code;
use serde::Deserialize;
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

/// A list of faults and the grid that its kernels come from.
#[derive(Debug)]
pub struct List {
    pub name: String,
    pub grid: String,
    pub faults: Vec<Fault>,
}

impl List {
    /// The name of a fault's trial.
    pub fn trial(&self, fault: &Fault) -> String {
        format!("{}/{}", self.name, fault.name)
    }
}

/// A file of faults.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    grid: String,
    fault: Vec<Fault>,
}

/// One entry of a list.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    pub name: String,
    #[serde(default)]
    pub file: OneOrSeveral,
    #[serde(default)]
    pub kernels: OneOrSeveral,
    pub among: Option<String>,
    pub find: String,
    pub replace: String,
    pub also: Option<[String; 2]>,
    pub expect: String,
    pub says: Option<String>,
    pub cases: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub enum OneOrSeveral {
    One(String),
    Several(Vec<String>),
}

impl OneOrSeveral {
    pub fn all(&self) -> &[String] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Several(several) => several,
        }
    }
}

impl Default for OneOrSeveral {
    fn default() -> Self {
        Self::Several(Vec::new())
    }
}

/// Values of `expect`, in addition to the kinds of violations.
const OUTCOMES: [&str; 5] = ["fail", "wrong numbers", "LSE", "refusal", "trap"];

/// Words that begin the lines of the emulator's report.
const VIOLATIONS: [&str; 16] = [
    "barrier",
    "cluster",
    "conflict",
    "counters left",
    "deadlock",
    "early",
    "mbarrier",
    "misaligned",
    "never committed",
    "never waited for",
    "out of bounds",
    "proxy",
    "race",
    "unwritten",
    "warpgroup",
    "wgmma",
];

impl Fault {
    /// The error in the entry itself, if there is one.
    fn complaint(&self) -> Option<&'static str> {
        let Self { file, kernels, among, find, replace, also, expect, .. } = self;
        let texts = [find, replace].into_iter().chain(also.iter().flatten());
        let has_comment = |text: &String| code(text).len() < text.chars().filter(|c| !c.is_whitespace()).count();
        if file.all().is_empty() && kernels.all().is_empty() {
            Some("names neither a file nor kernels")
        } else if file.all().len() > 1 && !kernels.all().is_empty() {
            Some("names several files for the same kernels")
        } else if among.is_some() && !kernels.all().is_empty() {
            Some("chooses among kernels that it names")
        } else if code(find).is_empty() || also.as_ref().is_some_and(|[find, _]| code(find).is_empty()) {
            Some("has no code to find")
        } else if texts.into_iter().any(has_comment) {
            Some("holds a comment, which is ignored")
        } else if !OUTCOMES.iter().chain(&VIOLATIONS).any(|known| known == expect) {
            Some("expects what README.md does not explain")
        } else {
            None
        }
    }
}

/// The folder of the lists.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/emulator/faults")
}

/// Every list, in name order.
pub fn lists() -> Vec<List> {
    let files = std::fs::read_dir(folder()).expect("the folder is there").map(|entry| entry.expect("it can be read").path());
    let paths: BTreeSet<PathBuf> = files.filter(|path| path.extension().is_some_and(|extension| extension == "toml")).collect();
    paths.iter().map(|path| read(path)).collect()
}

fn read(path: &Path) -> List {
    let text = std::fs::read_to_string(path).expect("the list can be read");
    let Text { grid, fault: faults } =
        toml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}README.md explains the keys", path.display()));
    assert!(!faults.is_empty(), "{} says something", path.display());
    let mut names = BTreeSet::new();
    for fault in &faults {
        assert!(names.insert(&fault.name), "{}: there are two of `{}`", path.display(), fault.name);
        if let Some(complaint) = fault.complaint() {
            panic!("{}: `{}` {complaint}", path.display(), fault.name);
        }
    }
    List { name: path.file_stem().expect("a file").to_string_lossy().into_owned(), grid, faults }
}
