//! A shared library of kernels, loaded into this process.
#![allow(unsafe_code)]

use super::{
    DeviceError,
    abi::{self, Explain, LastError, Launcher, Paths, Structure, Workspace},
};
use crate::files::is_cut_off;
use libloading::{Library, Symbol};
use std::{
    error::Error,
    ffi::{CStr, c_void},
    path::{Path, PathBuf},
};

/// A loaded library and one of its launchers.
pub(super) struct KernelLibrary {
    library: Library,
    path: PathBuf,
    name: String,
    launcher: Launcher,
}

/// One flag for each of these launchers, in order: true if the library at `path` contains it.
///
/// # Errors
/// [`DeviceError::Load`].
pub fn launchers_in(path: &Path, names: &[String]) -> Result<Vec<bool>, DeviceError> {
    let library = load(path)?;
    // SAFETY: every launcher has the type `Launcher` (`kgen.h`), and none is called.
    Ok(names.iter().map(|name| unsafe { symbol::<Launcher>(&library, path, name) }.is_ok()).collect())
}

/// Loads a library after checking that the file is not truncated, which would kill the loader. Only the file at `path`
/// is loaded: a name without a slash would be searched for in the system's library folders.
fn load(path: &Path) -> Result<Library, DeviceError> {
    let failed = |reason| DeviceError::Load { path: path.to_owned(), reason };
    let path = &std::path::absolute(path).map_err(|error| failed(error.to_string()))?;
    if is_cut_off(path).map_err(|error| failed(error.to_string()))? {
        return Err(failed("it is cut off: it ends before what its ELF header says is in it".to_owned()));
    }
    // SAFETY: loading runs the library's initialisers; kgen built it, or the user asked for it to be run.
    unsafe { Library::new(path) }.map_err(|error| failed(loaders_words(&error)))
}

/// The message of `dlerror`. The error itself says only that `dlopen` failed; the loader's message is its source.
fn loaders_words(error: &libloading::Error) -> String {
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}

impl KernelLibrary {
    /// Loads `path` and finds the launcher `name`.
    pub(super) fn open(path: &Path, name: &str) -> Result<Self, DeviceError> {
        let library = load(path)?;
        // SAFETY: every launcher has the type `Launcher` (`kgen.h`), and it is kept beside the library.
        let launcher = unsafe { symbol(&library, path, name) }?;
        Ok(Self { library, path: path.to_owned(), name: name.to_owned(), launcher })
    }

    /// The function `name`.
    ///
    /// # Safety
    /// `T` must be the function pointer type of the function's C declaration, and the pointer must not be called after
    /// this library has been dropped.
    pub(super) unsafe fn function<T: Copy>(&self, name: &str) -> Result<T, DeviceError> {
        // SAFETY: the caller's promise.
        unsafe { symbol(&self.library, &self.path, name) }
    }

    /// Calls the launcher on `stream`; NULL is the default stream.
    ///
    /// # Safety
    /// The pointers in `params` must point to memory of the device the launcher runs on, large enough for the strides
    /// and lengths beside them, until the launch has finished; `stream` must be one of that device.
    pub(super) unsafe fn launch(&self, params: &Structure, stream: *mut c_void) -> Result<(), DeviceError> {
        // SAFETY: `params` is a valid structure for the call; the rest is the caller's promise.
        let code = unsafe { (self.launcher)(params.as_ptr(), stream) };
        if code == 0 {
            return Ok(());
        }
        Err(DeviceError::Launcher { code, word: abi::code_word(code), message: self.last_error() })
    }

    /// Bytes of workspace that a launch with `params` needs.
    pub(super) fn workspace_bytes(&self, params: &Structure) -> Result<usize, DeviceError> {
        // SAFETY: `kgen.h` declares this type, and `self` holds the library.
        let workspace: Workspace = unsafe { self.function(&format!("{}_workspace", self.name)) }?;
        // SAFETY: `params` is a valid structure, and the function dereferences none of its pointers.
        Ok(unsafe { workspace(params.as_ptr()) })
    }

    /// The paths that `kgen_fwd` can take with `params`.
    pub(super) fn paths(&self, params: &Structure) -> Result<Paths, DeviceError> {
        // SAFETY: `kgen.h` declares this type, and `self` holds the library.
        let explain: Explain = unsafe { self.function("kgen_explain_choice") }?;
        Ok(Paths::explained(&mut |choice| {
            // SAFETY: both structures are valid, and the function dereferences no pointer of `params`. If it fails, it
            // leaves the choice unchanged.
            unsafe { explain(params.as_ptr(), choice) };
        }))
    }

    /// `kgen_last_error()`; empty if the library lacks it.
    fn last_error(&self) -> String {
        // SAFETY: `kgen.h` declares this type, and `self` holds the library.
        let Ok(last_error) = (unsafe { self.function::<LastError>("kgen_last_error") }) else { return String::new() };
        // SAFETY: `kgen.h` declares this type; the string it returns is valid until the next failure.
        let text = unsafe { last_error() };
        if text.is_null() {
            return String::new();
        }
        // SAFETY: not NULL, and NUL-terminated by `kgen.h`.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }
}

/// Looks up a function.
///
/// # Safety
/// `T` must be the function pointer type of its C declaration, and the pointer must not be called after `library` has
/// been dropped.
unsafe fn symbol<T: Copy>(library: &Library, path: &Path, name: &str) -> Result<T, DeviceError> {
    // SAFETY: the caller's promise.
    let found: Result<Symbol<'_, T>, _> = unsafe { library.get(name) };
    found.map(|f| *f).map_err(|_| DeviceError::Symbol { path: path.to_owned(), symbol: name.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{env, fs, process::Command};

    /// The error message for loading a file with this content.
    fn refused(content: &[u8]) -> String {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("libkgen.so");
        fs::write(&path, content).expect("written");
        launchers_in(&path, &[]).expect_err("it is no library").to_string()
    }

    #[test]
    fn the_loaders_own_message_is_told() {
        assert!(refused(b"").contains("file too short"), "{}", refused(b""));
        assert!(
            refused(b"garbage, and enough of it to hold what would be the header of an ELF file").contains("invalid ELF header")
        );
        let missing = launchers_in(Path::new("/nowhere/libkgen.so"), &[]).expect_err("it is not there").to_string();
        assert!(missing.contains("No such file"), "{missing}");
    }

    /// A library `folder/f.so` that defines the function.
    fn compiled(folder: &Path, function: &str) -> PathBuf {
        let (source, path) = (folder.join("f.cpp"), folder.join("f.so"));
        fs::write(&source, format!("extern \"C\" int {function}() {{ return 1; }}\nint big[100000] = {{1}};\n"))
            .expect("written");
        let mut compile = Command::new("c++");
        assert!(compile.args(["-shared", "-fPIC"]).arg(&source).arg("-o").arg(&path).status().expect("c++ runs").success());
        path
    }

    #[test]
    fn a_name_without_a_slash_is_a_file_of_the_current_folder_and_no_other() {
        const NAME: &str = "device::library::tests::a_name_without_a_slash_is_a_file_of_the_current_folder_and_no_other";
        const INSIDE: &str = "KGEN_TEST_LOADS_F";
        if env::var_os(INSIDE).is_some() {
            let functions = ["here", "elsewhere"].map(str::to_owned);
            assert_eq!(launchers_in(Path::new("f.so"), &functions).expect("it loads"), [true, false]);
            return;
        }
        // The loader searches there for names without a slash, and a process reads the variable once, at its start.
        let [here, elsewhere] = ["here", "elsewhere"].map(|function| {
            let folder = tempfile::tempdir().expect("a temporary folder");
            compiled(folder.path(), function);
            folder
        });
        let mut inside = Command::new(env::current_exe().expect("this program"));
        inside.args(["--exact", NAME]).env(INSIDE, "1").env("LD_LIBRARY_PATH", elsewhere.path()).current_dir(here.path());
        let output = inside.output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
    }

    #[test]
    fn a_library_that_is_cut_off_is_refused_and_kills_nobody() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = compiled(folder.path(), "f");
        let library = fs::read(&path).expect("it is there");
        assert_eq!(launchers_in(&path, &["f".to_owned()]).expect("it loads"), [true]);
        assert!(refused(&library[..library.len() / 2]).contains("cut off"));
    }
}
