//! Finds the headers that a set of sources uses; a vendored folder contains only these.

use crate::render::{OutputFile, RenderError, Templates, include_tree};
use std::collections::{BTreeMap, BTreeSet};

/// The files of `include/` that `sources` include directly or indirectly, sorted by path. Like a compiler, it looks for
/// a quoted include beside the including file first.
///
/// # Errors
/// [`RenderError::Include`] when a quoted include is neither beside its file nor in `include/`.
pub(in crate::render) fn used_headers(templates: &Templates, sources: &[OutputFile]) -> Result<Vec<OutputFile>, RenderError> {
    let mut there: BTreeMap<String, OutputFile> = include_tree(templates).map(|header| (header.path.clone(), header)).collect();
    let own: BTreeSet<&str> = sources.iter().map(|source| source.path.as_str()).collect();
    let mut used: Vec<OutputFile> = Vec::new();
    let mut read = 0;
    let mut wanted: Vec<(String, String)> = sources.iter().flat_map(includes).collect();
    loop {
        for (file, header) in wanted.drain(..) {
            let path = format!("include/{header}");
            if let Some(found) = there.remove(&path) {
                used.push(found);
            } else if ![&path, &beside(&file, &header)].iter().any(|path| own.contains(path.as_str()))
                && !used.iter().any(|known| known.path == path)
            {
                return Err(RenderError::Include { file, header });
            }
        }
        if read == used.len() {
            used.sort_by(|a, b| a.path.cmp(&b.path));
            return Ok(used);
        }
        wanted.extend(used[read..].iter().flat_map(includes));
        read = used.len();
    }
}

/// Path of an included name relative to the folder of `file`.
fn beside(file: &str, header: &str) -> String {
    file.rsplit_once('/').map_or_else(|| header.to_owned(), |(folder, _)| format!("{folder}/{header}"))
}

/// (path of the file, included name) for each quoted include of the file.
fn includes(file: &OutputFile) -> impl Iterator<Item = (String, String)> {
    let names = file.text.lines().filter_map(|line| line.trim_start().strip_prefix("#include \"")?.split('"').next());
    names.map(|name| (file.path.clone(), name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> OutputFile {
        OutputFile { path: "a.cu".to_owned(), text: text.to_owned() }
    }

    fn used(text: &str) -> Result<Vec<String>, RenderError> {
        let headers = used_headers(&Templates::embedded(), &[source(text)])?;
        Ok(headers.into_iter().map(|header| header.path).collect())
    }

    #[test]
    fn headers_bring_the_headers_that_they_include_and_no_others() {
        let found = used("#include <stdint.h>\n#include \"kgen/sync.cuh\"\n").expect("all are there");
        assert!(found.contains(&"include/kgen/sync.cuh".to_owned()) && found.contains(&"include/kgen/platform.cuh".to_owned()));
        assert!(!found.iter().any(|path| path.contains("wgmma")), "{found:?}");
        assert_eq!(used("int x;  // #include \"kgen/sync.cuh\"\n").expect("nothing is needed"), [""; 0]);
    }

    #[test]
    fn a_header_that_is_not_there_is_named_with_the_file_that_needs_it() {
        let error = used("#include \"kgen/no_such.cuh\"\n").expect_err("there is none").to_string();
        assert!(error.starts_with("`a.cu` includes `kgen/no_such.cuh`"), "{error}");
    }
}
