//! Helpers shared by several tests.

pub mod bench;
pub mod command_lines;
pub mod emulator;
pub mod mock_machine;

use std::{fs, path::Path};

/// Copies a folder recursively.
pub fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("the target is writable");
    for entry in fs::read_dir(from).expect("the folder is there") {
        let entry = entry.expect("it can be listed");
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).expect("files can be copied");
        }
    }
}
