//! A folder to build in, with a separate cache and a mock instead of nvcc, for several tests of `kgen build`.

use assert_cmd::Command;
use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    time::Duration,
};

/// Arguments that select the four variants that most tests build.
pub const SLICE: [&str; 6] = ["--kind", "fwd", "--head-dim", "64", "--target", "sm80"];
pub const ONE: &str = "flash_fwd_hdim64_bf16_sm80";
pub const OTHER: &str = "flash_fwd_hdim64_fp16_causal_sm80";

/// A working folder with a separate cache and compile log.
pub struct Bench {
    pub dir: tempfile::TempDir,
}

impl Bench {
    pub fn new() -> Self {
        Self { dir: tempfile::tempdir().expect("a temporary folder") }
    }

    pub fn path(&self, inside: &str) -> PathBuf {
        self.dir.path().join(inside)
    }

    pub fn environment(&self) -> Vec<(&'static str, PathBuf)> {
        let mock = support("mock_nvcc.sh");
        vec![("XDG_CACHE_HOME", self.path("cache")), ("MOCK_NVCC_LOG", self.path("mock.log")), ("KGEN_NVCC", mock)]
    }

    pub fn kgen(&self, args: &[&str]) -> Command {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("kgen"));
        for name in ["CUDA_HOME", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "NVCC_CCBIN", "KGEN_VARIANTS", "KGEN_TEMPLATES"] {
            command.env_remove(name);
        }
        // The machine may be busy.
        command.envs(self.environment()).current_dir(self.dir.path()).args(args).timeout(Duration::from_secs(300));
        command
    }

    /// `kgen build` of the slice.
    pub fn build(&self, args: &[&str]) -> Command {
        self.kgen(&[&["build"], &SLICE[..], args].concat())
    }

    /// The commands that the mock received, in order, since the last call.
    pub fn take_log(&self) -> Vec<String> {
        let log = fs::read_to_string(self.path("mock.log")).unwrap_or_default();
        fs::remove_file(self.path("mock.log")).ok();
        log.lines().map(str::to_owned).collect()
    }

    /// Names of all leftover temporary files in a folder.
    pub fn leftovers(&self, folder: &str) -> Vec<PathBuf> {
        let mut found = Vec::new();
        walk(&self.path(folder), &mut |path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name.starts_with(".unfinished-") || name.starts_with(".kgen-") {
                found.push(path.to_owned());
            }
        });
        found
    }
}

pub fn support(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join("support").join(name)
}

pub fn walk(folder: &Path, visit: &mut dyn FnMut(&Path)) {
    for entry in fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok) {
        visit(&entry.path());
        if entry.path().is_dir() {
            walk(&entry.path(), visit);
        }
    }
}

/// A `PATH` with a C++ compiler, a shell's tools, and `more`; no nvcc.
pub fn bare_path(bench: &Bench, more: &[(&str, PathBuf)]) -> PathBuf {
    let folder = bench.path("bin");
    fs::create_dir_all(&folder).expect("made");
    let path = std::env::var_os("PATH").expect("a PATH");
    for tool in ["c++", "g++", "as", "ld", "sh", "cat", "tr", "sleep"] {
        if let Some(found) = std::env::split_paths(&path).map(|p| p.join(tool)).find(|p| p.is_file()) {
            symlink(found, folder.join(tool)).expect("linked");
        }
    }
    for (name, target) in more {
        symlink(target, folder.join(name)).expect("linked");
    }
    folder
}

pub fn make_executable(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("made executable");
}
