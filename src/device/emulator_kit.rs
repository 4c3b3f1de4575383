//! Compiles an unmodified generated `.cu` file with the host's C++ compiler against the emulator's headers.
//!
//! Everything is content-addressed in one folder and appears there by rename: processes that work on the same kernel at
//! once only duplicate work. A folder whose contents changed is rebuilt before anything in it is used.

use super::cache_dir::{self, Contents};
use crate::{
    files::{FieldHasher, Presence},
    toolchain::{
        Cancel, HostCompiler,
        process::{self, Ending},
    },
};
use std::{
    fs, io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

/// Compiler flags of the runtime and every kernel. `-ffp-contract=off` keeps the two roundings of `a * b + c` as
/// written. The user's flags come first, and none of them may make arithmetic inexact.
const FLAGS: [&str; 5] = ["-std=c++17", "-fPIC", "-fno-fast-math", "-ffp-contract=off", "-w"];
/// The runtime does the work and is compiled only once. It is never replaced, so its functions may call each other
/// without a look-up, which takes a tenth of a check.
const RUNTIME_OPTIMISATION: [&str; 3] = ["-O3", "-fno-semantic-interposition", "-fno-plt"];
/// A kernel is compiled for each check and mostly calls the runtime: these passes of `-O1` take half its compile time,
/// and the kernel is no slower.
pub(super) const KERNEL_OPTIMISATION: &str = "-Og";

/// Flags that expose mistakes of a kernel that the host would hide, used if the compiler supports them: an
/// uninitialised variable holds a pattern, which is turned into NaN ([`UNSET`], or by `kgen/emulator.h` if GCC calls
/// memset); and an index beyond an array's bounds traps, as does a reference to the element after its last. (GCC's
/// tuning determines the size from which it calls memset: it is smallest for K8.)
const STRICT: [&str; 4] = [
    "-ftrivial-auto-var-init=pattern",
    "-mtune=k8 -mmemset-strategy=libcall:-1:noalign",
    "-fsanitize=bounds -fsanitize-undefined-trap-on-error",
    "-fsanitize=object-size -fsanitize-undefined-trap-on-error",
];
/// Linker that takes a third of the time of the usual one, used if the compiler supports it. Each check links a
/// kernel's library.
const QUICK_LINKER: &str = "-fuse-ld=gold";
/// Four and eight bytes of GCC's pattern for uninitialised variables, as they appear in assembly, and their
/// replacements. The pattern is a finite number, which a factor of 0 cancels. `0xffc1` in each half is NaN in fp32,
/// fp16 and bf16, and as an integer it is far below any index. No kernel contains either number.
const UNSET: [(&str, &str); 4] = [
    ("-16843010", "-4063295"),
    ("4278124286", "4290904001"),
    ("-72340172838076674", "-17451714848096319"),
    ("18374403900871474942", "18429292358861455297"),
];
/// Files of a kit that list the supported flags of [`STRICT`] and of [`QUICK_LINKER`], one per line.
const STRICT_FILE: &str = "strict-flags";
const LINKER_FILE: &str = "linker-flags";

/// Time limit of one compilation; a kernel needs about a second.
const LIMIT: Duration = Duration::from_secs(600);

/// Prefixes of unfinished folders in the cache, including those of older kgens.
pub const UNFINISHED: &[&str] = &[cache_dir::UNFINISHED, ".tmp"];

/// Folder of the emulator's own headers and runtime in a kit.
const EMULATOR: &str = "emulator";
/// Folder of the headers that leave functions to the kit's objects.
const PRECOMPILED: &str = "emulator/precompiled";
/// Folder of the headers that generated files include.
const INCLUDE: &str = "include";

/// Reasons why a kernel was not compiled for the emulator.
#[derive(Debug, thiserror::Error)]
pub enum KitError {
    /// The compiler did not start.
    #[error("cannot run the host compiler `{}`: {source}; install g++ or clang++, or name one with `CXX`", compiler.display())]
    NoCompiler {
        /// The compiler's path.
        compiler: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The compiler rejected the source.
    #[error("the host compiler refuses `{name}` for the emulator: {first_error}\n  all of it is in `{}`", log.display())]
    Refused {
        /// Variant, or `runtime`.
        name: String,
        /// The first line that reports an error.
        first_error: String,
        /// File with the compiler's output.
        log: PathBuf,
    },
    /// The compiler rejected the dispatcher that answers for a described card.
    #[error("the host compiler refuses the dispatcher: {first_error}\n  all of it is in `{}`", log.display())]
    RefusedDispatcher {
        /// The first line that reports an error.
        first_error: String,
        /// File with the compiler's output.
        log: PathBuf,
    },
    /// [`Cancel`] was requested.
    #[error("interrupted")]
    Interrupted,
    /// A file of the cache could not be written or read.
    #[error("cannot write `{}`: {source}; see to its space and permissions, or set `XDG_CACHE_HOME` to another", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
}

/// The emulator's sources in a folder of the cache, with the runtime compiled, ready for kernels.
#[derive(Debug, Clone)]
pub struct EmulatorKit {
    compiler: PathBuf,
    /// The user's own compiler flags.
    flags: Vec<String>,
    /// `<cache>/emulator`.
    root: PathBuf,
    /// Headers and runtime objects.
    folder: PathBuf,
    /// Contents of the folder.
    contents: Contents,
    hash: String,
    cancel: Cancel,
    _presence: Arc<Presence>,
}

impl EmulatorKit {
    /// Writes the sources to `<cache>/emulator/` and compiles the runtime (every `.cpp` of `emulator`), unless an
    /// unchanged kit of the same content exists.
    ///
    /// `include` and `emulator` are `(path relative to its folder, text)`. The compiler is identified by its version,
    /// not its path. Leftovers of killed processes are removed. Compilers are stopped when `cancel` is requested.
    ///
    /// # Errors
    /// [`KitError`].
    pub fn new<'a>(
        cache: &Path,
        include: impl Iterator<Item = (&'a str, &'a str)>,
        emulator: impl Iterator<Item = (&'a str, &'a str)>,
        compiler: &HostCompiler,
        cancel: &Cancel,
    ) -> Result<Self, KitError> {
        let files: Vec<(String, &str)> = include
            .map(|(path, text)| (format!("{INCLUDE}/{path}"), text))
            .chain(emulator.map(|(path, text)| (format!("{EMULATOR}/{path}"), text)))
            .collect();
        let mut hasher = FieldHasher::default();
        // A compiler's version does not include the processor it compiles for.
        hasher.field("processor", std::env::consts::ARCH);
        hasher.field("compiler", &compiler.version);
        for flag in compiler
            .flags
            .iter()
            .map(String::as_str)
            .chain(FLAGS)
            .chain(RUNTIME_OPTIMISATION)
            .chain([KERNEL_OPTIMISATION])
            .chain(STRICT)
            .chain([QUICK_LINKER])
            .chain(UNSET.iter().flat_map(|(pattern, nan)| [*pattern, *nan]))
        {
            hasher.field("flag", flag);
        }
        for (path, text) in &files {
            hasher.field("file", path);
            hasher.field("text", text);
        }
        let hash = hasher.finish();
        let root = cache.join("emulator");
        let failed = |source| KitError::Io { path: root.clone(), source };
        fs::create_dir_all(&root).map_err(failed)?;
        let presence = Arc::new(Presence::announce(&root, UNFINISHED).map_err(failed)?);
        let (flags, compiler, folder) =
            (compiler.flags.clone(), compiler.path.clone(), root.join(format!("kit-{}", short(&hash))));
        let contents = Contents::default();
        let mut kit = Self { compiler, flags, folder, root, contents, hash, cancel: cancel.clone(), _presence: presence };
        kit.contents = cache_dir::made(&kit.root, &kit.folder, &kit.hash, |folder| kit.fill(folder, &files))?;
        Ok(kit)
    }

    /// Hash of all inputs of a kernel's behaviour on the emulator except its own source.
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// The shared library of one kernel, compiled unless the same text was compiled before and the result is unchanged.
    ///
    /// # Errors
    /// [`KitError`]: the compiler rejects the text, or the cache cannot be written.
    pub fn library(&self, name: &str, text: &str) -> Result<PathBuf, KitError> {
        let mut key = FieldHasher::default();
        for (field, value) in [("kit", self.hash.as_str()), ("name", name), ("text", text)] {
            key.field(field, value);
        }
        let key = key.finish();
        let folder = self.root.join(short(&key));
        cache_dir::made(&self.root, &folder, &key, |folder| {
            let source = folder.join(format!("{name}.cu"));
            write(&source, text)?;
            let (strict, linker) = (self.strict_flags()?, self.flags_in(LINKER_FILE)?);
            let assembly = folder.join(format!("{name}.s"));
            self.compile(name, folder, |command| {
                command.args([KERNEL_OPTIMISATION, "-S"]).args(strict).args(["-x", "c++"]).arg(&source).arg("-o").arg(&assembly);
            })?;
            let failed = |source| KitError::Io { path: assembly.clone(), source };
            let text = fs::read_to_string(&assembly).map_err(failed)?;
            write(&assembly, &UNSET.iter().fold(text, |text, (pattern, nan)| text.replace(pattern, nan)))?;
            self.compile(name, folder, |command| {
                command.arg("-shared").args(linker).arg(&assembly);
                // The kit's own objects, in a fixed order, and no other files in the folder.
                command.args(self.objects());
                command.arg("-o").arg(folder.join(format!("{name}.so")));
            })?;
            fs::remove_file(&assembly).map_err(failed)
        })?;
        Ok(folder.join(format!("{name}.so")))
    }

    /// The file `name` in the cache folder of `key`, which `make` fills unless it exists unchanged.
    pub(super) fn made(
        &self,
        name: &str,
        key: &str,
        make: impl FnOnce(&Path) -> Result<(), KitError>,
    ) -> Result<PathBuf, KitError> {
        let folder = self.root.join(short(key));
        cache_dir::made(&self.root, &folder, key, make)?;
        Ok(folder.join(name))
    }

    /// The runtime's objects, in a fixed order.
    pub(super) fn objects(&self) -> impl Iterator<Item = PathBuf> {
        self.contents.with_extension("o").map(|object| self.folder.join(object))
    }

    /// Writes the sources and compiles the runtime in `folder`.
    fn fill(&self, folder: &Path, files: &[(String, &str)]) -> Result<(), KitError> {
        for (path, text) in files {
            write(&folder.join(path), text)?;
        }
        let kit = Self { folder: folder.to_owned(), ..self.clone() };
        for (path, _) in files.iter().filter(|(path, _)| Path::new(path).extension().is_some_and(|e| e == "cpp")) {
            let object = folder.join(path.replace('/', "-")).with_extension("o");
            kit.compile("runtime", folder, |command| {
                command.args(RUNTIME_OPTIMISATION).arg("-c").arg(folder.join(path)).arg("-o").arg(object);
            })?;
        }
        kit.probe(&STRICT, STRICT_FILE, folder)?;
        kit.probe(&[QUICK_LINKER], LINKER_FILE, folder)
    }

    /// Determines which of `candidates` the compiler supports, and records them in a file of the kit.
    fn probe(&self, candidates: &[&str], file: &str, folder: &Path) -> Result<(), KitError> {
        let probe = tempfile::tempdir_in(folder).map_err(|source| KitError::Io { path: folder.to_owned(), source })?;
        let source = probe.path().join("probe.cpp");
        write(&source, "int element(int i) { int a[4] = {}; int unset; return i < 0 ? unset : a[i]; }\n")?;
        let mut taken = String::new();
        for flags in candidates {
            let compiled = self.compile(file, folder, |command| {
                command.args([KERNEL_OPTIMISATION, "-shared"]).args(flags.split_whitespace()).arg(&source);
                command.arg("-o").arg(probe.path().join("probe.so"));
            });
            match compiled {
                Ok(()) => taken = taken + flags + "\n",
                Err(KitError::Refused { .. }) => {}
                Err(other) => return Err(other),
            }
        }
        write(&folder.join(file), &taken)
    }

    /// The flags of [`STRICT`] with which kernels are compiled.
    pub(super) fn strict_flags(&self) -> Result<Vec<String>, KitError> {
        self.flags_in(STRICT_FILE)
    }

    /// The flags that a file of the kit lists.
    fn flags_in(&self, file: &str) -> Result<Vec<String>, KitError> {
        let path = self.folder.join(file);
        let flags = fs::read_to_string(&path).map_err(|source| KitError::Io { path, source })?;
        Ok(flags.split_whitespace().map(str::to_owned).collect())
    }

    /// Runs the compiler with the common flags; on failure, writes its output to `<root>/<name>.log`.
    pub(super) fn compile(&self, name: &str, folder: &Path, arguments: impl FnOnce(&mut Command)) -> Result<(), KitError> {
        let mut command = Command::new(&self.compiler);
        command.current_dir(folder).args(&self.flags).args(FLAGS);
        for include in [PRECOMPILED, EMULATOR, INCLUDE] {
            command.arg("-I").arg(self.folder.join(include));
        }
        arguments(&mut command);
        let no_compiler = |source| KitError::NoCompiler { compiler: self.compiler.clone(), source };
        let complaints = tempfile::NamedTempFile::new_in(folder).map_err(no_compiler)?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(complaints.reopen().map_err(no_compiler)?);
        if self.cancel.requested() {
            return Err(KitError::Interrupted);
        }
        let done = process::run(&mut command, LIMIT, &self.cancel).map_err(no_compiler)?;
        match done.ending {
            Ending::Cancelled => return Err(KitError::Interrupted),
            ending if ending.is_success() => return Ok(()),
            _ => {}
        }
        let said = fs::read(complaints.path()).unwrap_or_default();
        let said = self.with_kept_source(name, folder, &String::from_utf8_lossy(&said))?;
        let first_error = said.lines().find(|line| line.contains("error")).or_else(|| said.lines().next());
        let first_error = match (done.ending, first_error) {
            (Ending::TimeLimit, _) => format!("it was not done after {} s", LIMIT.as_secs()),
            (_, Some(line)) => line.trim().to_owned(),
            (ending, None) => format!("it says nothing ({ending:?})"),
        };
        let log = self.root.join(format!("{name}.log"));
        write(&log, &said)?;
        Err(KitError::Refused { name: name.to_owned(), first_error, log })
    }

    /// The compiler's output for a rejected kernel, rewritten to name a copy of its source that is kept as
    /// `<root>/<name>.cu`: `folder`, in which it was compiled, is about to be removed.
    fn with_kept_source(&self, name: &str, folder: &Path, said: &str) -> Result<String, KitError> {
        let source = folder.join(format!("{name}.cu"));
        let Ok(text) = fs::read_to_string(&source) else { return Ok(said.to_owned()) };
        let kept = self.root.join(format!("{name}.cu"));
        write(&kept, &text)?;
        Ok(said.replace(&source.display().to_string(), &kept.display().to_string()))
    }
}

pub(super) fn write(path: &Path, text: &str) -> Result<(), KitError> {
    let failed = |source| KitError::Io { path: path.to_owned(), source };
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    fs::write(path, text).map_err(failed)
}

/// A prefix of the hash, long enough to name a folder.
pub(super) fn short(hash: &str) -> &str {
    &hash[..32]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn any(compiler: &Path) -> HostCompiler {
        HostCompiler { path: compiler.to_owned(), version: "any".to_owned(), flags: Vec::new() }
    }

    fn kit(cache: &Path) -> EmulatorKit {
        let include = [("answer.h", "int answer();\n")];
        let emulator = [("runtime.cpp", "#include \"answer.h\"\nint answer() { return 42; }\n")];
        EmulatorKit::new(cache, include.into_iter(), emulator.into_iter(), &any(Path::new("c++")), &Cancel::default())
            .expect("the kit compiles")
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn a_factor_of_0_does_not_cancel_a_variable_that_nobody_has_set() {
        let cache = tempfile::tempdir().unwrap();
        let pair = "extern \"C\" float pair(int set) { float x[2]; x[set] = 1; return x[1 - set] * 0.0f; }\n";
        let array = "extern \"C\" float array(int set) { float x[5]; x[set] = 1; return x[3] * 0.0f; }\n";
        let path = kit(cache.path()).library("unset", &format!("{pair}{array}")).unwrap();
        let main = "extern \"C\" float pair(int), array(int);\n\
                    int main() { return (pair(0) != pair(0)) + 2 * (array(2) != array(2)); }\n";
        let (source, program) = (cache.path().join("main.cpp"), cache.path().join("main"));
        write(&source, main).unwrap();
        let linked = Command::new("c++").arg(source).arg(path).arg("-o").arg(&program).status().unwrap();
        assert!(linked.success());
        assert_eq!(Command::new(program).status().unwrap().code(), Some(3), "only NaN differs from itself");
    }

    #[test]
    fn the_same_text_is_compiled_once() {
        let cache = tempfile::tempdir().expect("a temporary folder");
        let text = "#include \"answer.h\"\nextern \"C\" int f() { return answer(); }\n";
        let library = kit(cache.path()).library("f", text).expect("it compiles");
        let made = fs::metadata(&library).and_then(|m| m.modified()).expect("the library is there");
        assert_eq!(kit(cache.path()).library("f", text).expect("it is there"), library);
        assert_eq!(fs::metadata(&library).and_then(|m| m.modified()).expect("still there"), made);
        assert_ne!(kit(cache.path()).library("f", &format!("{text}\n")).expect("it compiles"), library);
    }

    #[test]
    fn a_flag_of_the_compiler_makes_another_kit() {
        let cache = tempfile::tempdir().expect("a temporary folder");
        let mut counting = any(Path::new("c++"));
        counting.flags.push("-DKGEN_PROFILE".to_owned());
        let runtime = [("runtime.cpp", "#ifdef KGEN_PROFILE\nint answer() { return 42; }\n#endif\n")];
        let kit = |host| {
            let kit = EmulatorKit::new(cache.path(), [].into_iter(), runtime.into_iter(), host, &Cancel::default());
            kit.expect("the kit compiles")
        };
        let (plain, counting) = (kit(&any(Path::new("c++"))), kit(&counting));
        assert_ne!((plain.hash(), &plain.folder), (counting.hash(), &counting.folder));
        let text = "int answer();\nextern \"C\" int f() { return answer(); }\n";
        assert_ne!(plain.library("f", text).expect("it compiles"), counting.library("f", text).expect("it compiles"));
    }

    #[test]
    fn what_a_killed_process_left_is_removed_by_the_next_one() {
        let cache = tempfile::tempdir().expect("a temporary folder");
        let left = cache.path().join("emulator/.new-dead");
        fs::create_dir_all(&left).expect("made");
        drop(kit(cache.path()));
        assert!(!left.exists());
    }

    #[test]
    fn a_compiler_does_not_outlive_an_interruption() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (cache, compiler) = (folder.path(), folder.path().join("compiler"));
        crate::files::write_script(&compiler, "echo $$ >pid\nexec sleep 600");
        let cancel = Cancel::default();
        let (compiler, shared) = (compiler.as_path(), cancel.clone());
        let started = || {
            let folders = fs::read_dir(cache.join("emulator")).into_iter().flatten().flatten();
            folders.into_iter().any(|folder| folder.path().join("pid").exists())
        };
        std::thread::scope(|scope| {
            let files = || [("runtime.cpp", "")].into_iter();
            let made = scope.spawn(move || EmulatorKit::new(cache, [].into_iter(), files(), &any(compiler), &shared));
            while !started() && !made.is_finished() {
                std::thread::sleep(Duration::from_millis(1));
            }
            cancel.request();
            assert!(matches!(made.join().expect("no panic"), Err(KitError::Interrupted)));
        });
        let left = fs::read_dir(cache.join("emulator")).expect("it is there").flatten();
        assert!(left.into_iter().all(|entry| entry.file_name() == ".in-use"), "an unfinished folder was left");
    }

    #[test]
    fn a_library_that_was_cut_off_emptied_edited_or_deleted_is_compiled_again() {
        let cache = tempfile::tempdir().expect("a temporary folder");
        let text = "#include \"answer.h\"\nextern \"C\" int f() { return answer(); }\n";
        let made = || kit(cache.path()).library("f", text).expect("it compiles");
        let whole = fs::read(made()).expect("the library is there");
        let mut edited = whole.clone();
        edited[whole.len() / 2] ^= 1;
        for (name, damaged) in [("cut off", &whole[..whole.len() / 2]), ("emptied", &[]), ("edited", &edited)] {
            fs::write(made(), damaged).expect("written");
            assert!(fs::read(made()).expect("it is there") == whole, "{name}");
        }
        fs::remove_file(made()).expect("removed");
        assert!(fs::read(made()).expect("it is there") == whole, "deleted");
    }

    #[test]
    fn a_kit_that_was_changed_is_made_again_and_compiles_nothing_before() {
        let cache = tempfile::tempdir().expect("a temporary folder");
        let folder = kit(cache.path()).folder;
        let header = || fs::read_to_string(folder.join("include/answer.h")).expect("it is there");
        for (file, text) in
            [("include/answer.h", "#error changed"), ("emulator/vector", "#error planted"), ("emulator-runtime.o", "")]
        {
            fs::write(folder.join(file), text).expect("written");
            let library = kit(cache.path()).library("f", &format!("#include <vector>\n#include \"answer.h\"\n// {file}\n"));
            assert!(library.is_ok(), "`{file}` was believed: {library:?}");
            assert_eq!(header(), "int answer();\n");
            assert!(!folder.join("emulator/vector").exists());
        }
    }

    #[test]
    fn a_refused_source_gives_its_first_error_and_leaves_no_folder() {
        let cache = tempfile::tempdir().expect("a temporary folder");
        let kit = kit(cache.path());
        let before = fs::read_dir(cache.path().join("emulator")).expect("it is there").count();
        let error = kit.library("f", "int f( {\n").expect_err("no C++").to_string();
        assert!(error.contains("`f`") && error.contains("error:"), "{error}");
        let after = fs::read_dir(cache.path().join("emulator")).expect("it is there").count();
        assert_eq!(after, before + 2, "only the log and the source are new");
        let named = error.split_whitespace().find_map(|word| word.split_once(".cu:")).expect("a place").0;
        let kept = fs::read_to_string(format!("{named}.cu")).expect("the file that the error names exists");
        assert_eq!(kept, "int f( {\n");
    }
}
