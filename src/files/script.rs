//! Scripts that tests write and run.

use std::{
    io::Write,
    path::Path,
    process::{Command, Stdio},
};

/// Creates a shell script at `path` that can be run immediately.
///
/// Another process writes it. If this one held it open for writing, a child that another test forks meanwhile would
/// inherit the descriptor, and until that child runs its own program, running the script fails with "Text file busy".
pub(crate) fn write_script(path: &Path, body: &str) {
    let mut writer = Command::new("sh")
        .args(["-c", "cat > \"$1\" && chmod 755 \"$1\"", "sh"])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .expect("a shell");
    let mut stdin = writer.stdin.take().expect("it is piped");
    write!(stdin, "#!/bin/sh\n{body}\n").expect("written");
    drop(stdin);
    assert!(writer.wait().expect("it ends").success(), "{}", path.display());
}
