//! The lists of faults, `tests/emulator/*faults.toml`.

use serde::Deserialize;
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

/// One entry of the file, which explains the keys.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    pub name: String,
    pub file: Files,
    pub find: String,
    pub replace: String,
    pub expect: String,
    pub layout: Option<String>,
    pub kernel: Option<String>,
    pub also: Option<[String; 2]>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub enum Files {
    One(String),
    Several(Vec<String>),
}

impl Files {
    pub fn all(&self) -> &[String] {
        match self {
            Self::One(file) => std::slice::from_ref(file),
            Self::Several(files) => files,
        }
    }
}

#[derive(Deserialize)]
struct Faults {
    fault: Vec<Fault>,
}

/// The faults of every list, in the order of the lists' names.
pub fn fault_lists(folder: &Path) -> Vec<Fault> {
    let files = std::fs::read_dir(folder).expect("the folder is there").map(|entry| entry.expect("it can be read").path());
    let is_list = |path: &PathBuf| path.to_str().is_some_and(|path| path.ends_with("faults.toml"));
    let lists: BTreeSet<PathBuf> = files.filter(is_list).collect();
    let faults = lists.iter().flat_map(|list| {
        let text = std::fs::read_to_string(list).expect("the list of faults is there");
        toml::from_str::<Faults>(&text).expect("the list of faults reads as the header of faults.toml says").fault
    });
    faults.collect()
}
