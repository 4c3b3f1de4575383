//! The compiled emulator for unit tests. Its runtime takes several seconds of a compiler, so all tests share one, in
//! the cache of the planted faults, which then need not compile it again.

use super::EmulatorKit;
use crate::{
    render::Templates,
    toolchain::{Cancel, host_compiler_in_process},
};
use std::sync::LazyLock;

/// The emulator of the unchanged templates.
pub fn test_kit() -> EmulatorKit {
    static KIT: LazyLock<EmulatorKit> = LazyLock::new(|| {
        // `target/<profile>/deps/<this program>`: the folder of `CARGO_TARGET_TMPDIR`, which unit tests are not told.
        let program = std::env::current_exe().expect("this program");
        let target = program.ancestors().nth(3).expect("it is in a target folder");
        let (templates, host) = (Templates::embedded(), host_compiler_in_process().expect("a C++ compiler"));
        let (include, emulator) = (templates.include_files(), templates.emulator_files());
        let kit = EmulatorKit::new(&target.join("tmp/faults"), include, emulator, &host, &Cancel::default());
        kit.expect("the emulator compiles")
    });
    KIT.clone()
}
