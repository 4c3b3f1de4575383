//! Contents of files in git.

use std::{
    path::Path,
    process::{Command, Stdio},
};

/// The text of `path` in the last commit of the checkout at `root`; `path` is relative to it. `None` if there is no
/// git, no checkout, or no such file in the commit.
pub fn committed_text(root: &Path, path: &str) -> Option<String> {
    let mut git = Command::new("git");
    git.arg("-C").arg(root).args(["cat-file", "blob", &format!("HEAD:./{path}")]);
    let output = git.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    if output.status.success() { String::from_utf8(output.stdout).ok() } else { None }
}
