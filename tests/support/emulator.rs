//! The compiled emulator for tests whose caches are their own: it is compiled once, in the cache of the planted faults.

use kgen::{
    device::EmulatorKit,
    render::Templates,
    toolchain::{Cancel, host_compiler_in_process},
};
use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    sync::LazyLock,
};

/// The folder of the emulator for kernels of the unchanged templates.
static KIT: LazyLock<PathBuf> = LazyLock::new(|| {
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("faults");
    let (templates, host) = (Templates::embedded(), host_compiler_in_process().expect("a host compiler"));
    let (include, emulator) = (templates.include_files(), templates.emulator_files());
    let kit = EmulatorKit::new(&cache, include, emulator, &host, &Cancel::default()).expect("the emulator compiles");
    cache.join("emulator").join(format!("kit-{}", &kit.hash()[..32]))
});

/// Links the compiled emulator into the cache of kgen processes with `XDG_CACHE_HOME` = `cache`.
pub fn lend_emulator(cache: &Path) {
    let folder = cache.join("kgen/emulator");
    fs::create_dir_all(&folder).expect("the cache is writable");
    assert!(KIT.join("contents.json").is_file(), "`{}` holds a kit", KIT.display());
    let link = folder.join(KIT.file_name().expect("a name"));
    if let Err(error) = symlink(&*KIT, link) {
        assert_eq!(error.kind(), std::io::ErrorKind::AlreadyExists, "{error}");
    }
}
