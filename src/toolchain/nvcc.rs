//! Finds nvcc and queries its version.

use super::{Cancel, Say, ToolchainError, find_in_path, is_executable, process, provision, wheels::COMPILER};
use serde::Serialize;
use std::{
    fmt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

/// The oldest nvcc kgen accepts, as (major, minor): the first with every target's `compute_` name.
pub const MINIMUM_NVCC: (u32, u32) = (13, 0);

/// Time limit for nvcc to report its version: it needs 10 ms, so one that exceeds this hangs.
const VERSION_LIMIT: Duration = Duration::from_secs(20);

/// Source of the nvcc in use, in search order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NvccOrigin {
    /// The flag `--nvcc`.
    Flag,
    /// The environment variable `KGEN_NVCC`.
    KgenNvcc,
    /// `bin/nvcc` below the folder in `CUDA_HOME`.
    CudaHome,
    /// The first `nvcc` in `PATH`.
    Path,
    /// kgen's own nvcc, in its cache folder.
    Provisioned,
}

impl fmt::Display for NvccOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Flag => "`--nvcc`",
            Self::KgenNvcc => "`KGEN_NVCC`",
            Self::CudaHome => "`CUDA_HOME`",
            Self::Path => "`PATH`",
            Self::Provisioned => "installed by kgen",
        })
    }
}

/// A working CUDA compiler of an accepted version.
#[derive(Clone, Debug, Serialize)]
pub struct Nvcc {
    /// The program.
    pub path: PathBuf,
    /// `13.0.88`.
    pub version: String,
    /// Last line of `nvcc --version`: identifies one build of the compiler, and so is part of every cache key.
    pub build_id: String,
    /// Where the compiler was found.
    pub origin: NvccOrigin,
    /// Folder of `libcudart_static.a`. nvcc's own profile searches only `lib64`, which the wheels lack.
    pub library_dir: PathBuf,
}

/// Request for an nvcc.
#[derive(Clone, Debug, Default)]
pub struct NvccRequest {
    /// Value of `--nvcc`: a path, or a name to search for in `PATH`.
    pub flag: Option<PathBuf>,
    /// Forbids installing one.
    pub offline: bool,
    /// Stops an installation.
    pub cancel: Cancel,
}

/// Finds nvcc: the flag, `KGEN_NVCC`, `CUDA_HOME`, `PATH`, kgen's own; if there is none, installs kgen's own unless the
/// request forbids it. `say` receives messages about long operations, in whole sentences.
///
/// The first one found is used: a named nvcc that is missing, broken or too old is an error and never silently replaced
/// by another.
///
/// # Errors
/// [`ToolchainError`] with the finding, the requirement, and the command to run.
pub fn find_nvcc(request: &NvccRequest, say: &dyn Say) -> Result<Nvcc, ToolchainError> {
    if let Some((origin, path)) = search(request.flag.as_deref())? {
        return describe(&path, origin, &request.cancel);
    }
    let own = match provision::provisioned(&COMPILER)? {
        Some(own) => own,
        None if request.offline => return Err(ToolchainError::Offline { destination: provision::destination(&COMPILER)? }),
        None => {
            say.say("no nvcc in `--nvcc`, `KGEN_NVCC`, `CUDA_HOME` or `PATH`: installing CUDA's compiler for kgen alone");
            provision::install(&COMPILER, &request.cancel, say)?
        }
    };
    describe(&own.program("nvcc"), NvccOrigin::Provisioned, &request.cancel)
}

/// The nvcc named by the user or the environment, if any.
fn search(flag: Option<&Path>) -> Result<Option<(NvccOrigin, PathBuf)>, ToolchainError> {
    let variable = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let named =
        flag.map(|p| (NvccOrigin::Flag, p.to_owned())).or_else(|| variable("KGEN_NVCC").map(|p| (NvccOrigin::KgenNvcc, p)));
    if let Some((origin, named)) = named {
        let bare_name = named.components().count() == 1 && !named.is_file();
        let path = if bare_name { find_in_path(&named.to_string_lossy()) } else { Some(named.clone()) };
        return match path.filter(|p| is_executable(p)) {
            Some(path) => Ok(Some((origin, path))),
            None => Err(ToolchainError::NamedMissing { origin: origin.to_string(), path: named }),
        };
    }
    // CUDA_HOME names a toolkit, which may have no compiler: that is not an error.
    let home = variable("CUDA_HOME").map(|home| home.join("bin").join("nvcc")).filter(|p| is_executable(p));
    Ok(home.map(|p| (NvccOrigin::CudaHome, p)).or_else(|| find_in_path("nvcc").map(|p| (NvccOrigin::Path, p))))
}

/// Runs `nvcc --version` and checks the answer.
fn describe(path: &Path, origin: NvccOrigin, cancel: &Cancel) -> Result<Nvcc, ToolchainError> {
    let path = std::path::absolute(path).map_err(ToolchainError::io("resolve", path))?;
    let bad = |said: String| ToolchainError::NotNvcc { origin: origin.to_string(), path: path.clone(), said };
    let Some(answer) = ask_version(&path, cancel).map_err(bad)? else { return Err(ToolchainError::Cancelled) };
    let Some((version, build_id)) = parse_version(&answer) else {
        return Err(bad(answer.lines().map(str::trim).find(|l| !l.is_empty()).map_or_else(|| "said nothing".into(), said)));
    };
    if major_minor(&version) < Some(MINIMUM_NVCC) {
        let needed = format!("{}.{}", MINIMUM_NVCC.0, MINIMUM_NVCC.1);
        return Err(ToolchainError::TooOld { origin: origin.to_string(), path, found: version, needed, mend: mend_old()? });
    }
    let library_dir = library_dir(&path);
    Ok(Nvcc { path, version, build_id, origin, library_dir })
}

/// Output of a program that is not the expected one, prepared for display: truncated, and without control characters.
pub(super) fn said(line: &str) -> String {
    let plain = |c: char| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
    format!("said `{}`", line.chars().take(80).map(plain).collect::<String>())
}

/// The remedy for an nvcc that is too old: kgen's own.
fn mend_old() -> Result<String, ToolchainError> {
    let own = provision::destination(&COMPILER)?.join("bin").join("nvcc");
    Ok(format!("name a newer one with `--nvcc`, or run `kgen toolchain install` and pass `--nvcc {}`", own.display()))
}

/// Standard output of `<path> --version`, or a fragment with the reason for missing output; `None` when cancelled.
pub(super) fn ask_version(path: &Path, cancel: &Cancel) -> Result<Option<String>, String> {
    let out = tempfile::NamedTempFile::new().map_err(|e| format!("could not be asked ({e})"))?;
    let handle = out.reopen().map_err(|e| format!("could not be asked ({e})"))?;
    let mut command = Command::new(path);
    command.arg("--version").stdin(Stdio::null()).stdout(handle).stderr(Stdio::null());
    let done = process::run(&mut command, VERSION_LIMIT, cancel).map_err(|e| format!("could not be run ({e})"))?;
    match done.ending {
        process::Ending::Exited(0) => {
            let bytes = std::fs::read(out.path()).map_err(|e| format!("could not be read ({e})"))?;
            Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
        }
        process::Ending::Exited(code) => Err(format!("failed with exit code {code}")),
        process::Ending::Signalled(signal) => Err(format!("died of signal {signal}")),
        process::Ending::TimeLimit => Err(format!("gave no answer in {} s", VERSION_LIMIT.as_secs())),
        process::Ending::Cancelled => Ok(None),
    }
}

/// Version and build line from the output of nvcc or a related tool; `None` for other output.
pub(super) fn parse_version(answer: &str) -> Option<(String, String)> {
    let release = answer.lines().find(|l| l.contains("release "))?;
    let version = release.rsplit_once(", V")?.1.trim();
    let numeric = version.split('.').all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()));
    let build = answer.lines().rev().map(str::trim).find(|l| !l.is_empty())?;
    numeric.then(|| (version.to_owned(), build.to_owned()))
}

fn major_minor(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split('.').map(str::parse);
    Some((parts.next()?.ok()?, parts.next()?.ok()?))
}

/// The folder with the static runtime of the nvcc at `path`, with links resolved: `/usr/bin/nvcc` may be one.
fn library_dir(path: &Path) -> PathBuf {
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let root = real.parent().and_then(Path::parent).unwrap_or(Path::new("/")).to_owned();
    let arch = if cfg!(target_arch = "aarch64") { "targets/sbsa-linux/lib" } else { "targets/x86_64-linux/lib" };
    let candidates = ["lib64", "lib", arch].map(|folder| root.join(folder));
    let found = candidates.iter().find(|folder| folder.join("libcudart_static.a").is_file());
    found.unwrap_or(&candidates[0]).clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &str = "nvcc: NVIDIA (R) Cuda compiler driver\nBuilt on some day\n\
        Cuda compilation tools, release 13.0, V13.0.88\nBuild cuda_13.0.r13.0/compiler.36424714_0\n";

    fn script(dir: &Path, body: &str) -> PathBuf {
        let path = dir.join("nvcc");
        crate::files::write_script(&path, body);
        path
    }

    #[test]
    fn version_and_build_are_read_from_nvccs_answer() {
        let (version, build) = parse_version(ANSWER).unwrap();
        assert_eq!((version.as_str(), build.as_str()), ("13.0.88", "Build cuda_13.0.r13.0/compiler.36424714_0"));
        assert_eq!(parse_version("gcc (Debian) 12.2.0\n"), None);
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        assert!(major_minor("9.2.88") < Some(MINIMUM_NVCC));
        assert!(major_minor("12.9.1") < Some(MINIMUM_NVCC));
        assert!(major_minor("13.0.88") >= Some(MINIMUM_NVCC));
        assert!(major_minor("100.1") >= Some(MINIMUM_NVCC));
    }

    #[test]
    fn a_program_that_is_not_nvcc_is_quoted() {
        let dir = tempfile::tempdir().unwrap();
        let path = script(dir.path(), "echo hello");
        let message = describe(&path, NvccOrigin::Flag, &Cancel::default()).unwrap_err().to_string();
        assert!(message.contains("not a working nvcc") && message.contains("`hello`"), "{message}");
    }

    #[test]
    fn an_old_nvcc_is_refused_with_both_versions() {
        let dir = tempfile::tempdir().unwrap();
        let path = script(dir.path(), "echo 'Cuda compilation tools, release 12.4, V12.4.131'; echo 'Build x'");
        let message = describe(&path, NvccOrigin::Path, &Cancel::default()).unwrap_err().to_string();
        for part in ["12.4.131", "13.0", "`PATH`", "kgen toolchain install"] {
            assert!(message.contains(part), "`{part}` missing: {message}");
        }
    }

    #[test]
    fn a_named_nvcc_that_is_missing_is_an_error_and_not_a_fallback() {
        let error = search(Some(Path::new("/nowhere/nvcc"))).unwrap_err();
        assert!(matches!(&error, ToolchainError::NamedMissing { path, .. } if path == Path::new("/nowhere/nvcc")), "{error}");
    }
}
