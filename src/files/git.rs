//! What git knows of a file.

use std::{
    path::Path,
    process::{Command, Stdio},
};

/// The text of `path` as the last commit of the checkout at `root` has it, a path from there. `None` where there is no
/// git, no checkout, or no such file in the commit.
pub fn committed_text(root: &Path, path: &str) -> Option<String> {
    let mut git = Command::new("git");
    git.arg("-C").arg(root).args(["cat-file", "blob", &format!("HEAD:./{path}")]);
    let output = git.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    if output.status.success() { String::from_utf8(output.stdout).ok() } else { None }
}
