//! `kgen probe`: its kernels on the emulator and as machine code, and the command with a mock driver.

use kgen::{
    kernel::Target,
    probe::Probe,
    render::{Renderer, Templates},
};

#[test]
fn write_for_inspection() {
    let templates = Templates::embedded();
    let renderer = Renderer::new(&templates).expect("templates parse");
    for target in [Target::Sm75, Target::Sm80, Target::Sm89, Target::Sm90, Target::Sm100, Target::Sm120] {
        let folder = std::path::Path::new("/tmp/probe").join(target.name());
        std::fs::create_dir_all(&folder).expect("made");
        for probe in Probe::of(target) {
            let text = renderer.program(probe.template(), &probe.words()).expect(probe.name);
            std::fs::write(folder.join(probe.launcher() + ".cu"), text).expect("written");
        }
    }
}
