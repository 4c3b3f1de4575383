//! Hashes of kernel files, one line each in the format of `b3sum`: enough to see which kernels a change affects, at 1 %
//! of the size of their text.

use super::{Source, file_name};
use itertools::Itertools;
use serde::Serialize;
use std::{collections::BTreeMap, fmt};

/// A difference between a kernel's line and the hash of its text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "drift", rename_all = "snake_case")]
pub enum HashDrift {
    /// A kernel without a line.
    Missing {
        /// Name of the kernel's file.
        path: String,
    },
    /// A line whose hash is not that of the kernel's text.
    Differs {
        /// Name of the kernel's file.
        path: String,
    },
    /// A line that belongs to no selected kernel.
    Extra {
        /// The name in that line, or the line if it has none.
        path: String,
    },
}

impl fmt::Display for HashDrift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { path } => write!(f, "`{path}` has no hash"),
            Self::Differs { path } => write!(f, "`{path}` has another hash"),
            Self::Extra { path } => write!(f, "`{path}` is not selected"),
        }
    }
}

/// One line per source, sorted by name: BLAKE3 in hexadecimal, two spaces, file name.
pub fn hashes(sources: &[Source]) -> String {
    by_path(sources).iter().map(|(path, hash)| format!("{hash}  {path}\n")).join("")
}

/// Differences between `text`, the output of an earlier [`hashes`], and `hashes(sources)`, sorted by name.
pub fn hash_drift(text: &str, sources: &[Source]) -> Vec<HashDrift> {
    let (mut found, mut drift) = (BTreeMap::new(), Vec::new());
    for (path, hash) in text.lines().map(|line| line.split_once("  ").map_or((line, ""), |(hash, path)| (path, hash))) {
        if found.insert(path, hash).is_some() {
            drift.push(HashDrift::Extra { path: path.to_owned() });
        }
    }
    for (path, hash) in by_path(sources) {
        match found.remove(path.as_str()) {
            None => drift.push(HashDrift::Missing { path }),
            Some(old) if old != hash => drift.push(HashDrift::Differs { path }),
            Some(_) => {}
        }
    }
    drift.extend(found.into_keys().map(|path| HashDrift::Extra { path: path.to_owned() }));
    drift
}

/// True if every line of `text` is the hash of a kernel file, so the file is kgen's and may be overwritten.
pub fn are_hashes(text: &str) -> bool {
    let is_hash = |word: &str| word.len() == 64 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_kernel = |path: &str| path.strip_suffix(".cu").is_some_and(|name| !name.contains('/'));
    let is_line = |line: &str| line.split_once("  ").is_some_and(|(hash, path)| is_hash(hash) && is_kernel(path));
    !text.is_empty() && text.lines().all(is_line)
}

fn by_path(sources: &[Source]) -> BTreeMap<String, &str> {
    sources.iter().map(|source| (file_name(&source.plan.variant), source.hash.as_str())).collect()
}
