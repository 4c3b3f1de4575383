//! Plants each fault of `tests/emulator/families/<family>.toml` in a kernel of a family other than attention and
//! asserts that `kgen check` on the emulator rejects it the way the fault is expected to show.

use kgen::{
    check::{CheckOptions, CheckRequest, DEFAULT_SEED, Kernel, Level, Status, Verdict, run},
    device::EmulatorKit,
    family::FAMILIES,
    grid::Grid,
    plan::Plan,
    render::{Renderer, Templates},
    toolchain::{Cancel, host_compiler_in_process},
};
use serde::Deserialize;
use std::{
    path::{Path, PathBuf},
    sync::OnceLock,
    time::Duration,
};

/// One entry of a list.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Fault {
    /// What is wrong, in words.
    name: String,
    /// The kernel that it is planted in.
    variant: String,
    /// Text that occurs once in the kernel, and what stands in its place.
    find: String,
    replace: String,
    /// What the verdict says; `fail` where that depends on more than the fault.
    expect: String,
}

#[derive(Deserialize)]
struct Faults {
    fault: Vec<Fault>,
}

/// The header in which faults are planted too: it stands in the text of the kernels that include it.
const SHARES: &str = "kgen/row_shares.cuh";

struct Laboratory {
    shares: String,
    renderer: Renderer,
    grid: Grid,
    kit: EmulatorKit,
    cache: PathBuf,
}

fn laboratory() -> &'static Laboratory {
    static LABORATORY: OnceLock<Laboratory> = OnceLock::new();
    LABORATORY.get_or_init(|| {
        let templates = Templates::embedded();
        let host = host_compiler_in_process().expect("a host compiler");
        // Kept between runs of the tests: everything in it is found by its content.
        let cache = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("family_faults");
        let (include, emulator) = (templates.include_files(), templates.emulator_files());
        let kit = EmulatorKit::new(&cache, include, emulator, &host, &Cancel::default());
        let shares = templates.include_files().find(|(path, _)| *path == SHARES).expect("the header is there").1;
        Laboratory {
            shares: shares.replace("#pragma once\n", ""),
            renderer: Renderer::new(&templates).expect("the templates parse"),
            grid: Grid::builtin(),
            kit: kit.expect("the emulator compiles"),
            cache,
        }
    })
}

impl Laboratory {
    /// The kernel of that name, and its text.
    fn kernel(&self, name: &str) -> (Plan, String) {
        let variant = self.grid.variants().iter().find(|variant| variant.name() == name).expect("the grid has the kernel");
        let plan = Plan::new(*variant, None).expect("it has a plan");
        let text = self.renderer.kernel(&plan).expect("it renders").text;
        (plan, text.replace(&format!("#include \"{SHARES}\"\n"), &self.shares))
    }

    fn check(&self, plan: &Plan, text: String) -> Verdict {
        let options = CheckOptions {
            cases: kgen::family::cases,
            level: Level::Smoke,
            filter: None,
            seed: DEFAULT_SEED,
            schedule: None,
            jobs: 1,
            gpu_jobs: 1,
            time_limit: Duration::from_secs(300), // the machine may have more to do
            fresh: true,
            cache: self.cache.clone(),
            kit: Some(self.kit.clone()),
            gpu: None,
            program: PathBuf::from(env!("CARGO_BIN_EXE_kgen")),
        };
        let (variant, tiling, compiled_for) = (plan.variant, plan.tiling(), plan.compiled_for());
        let request = CheckRequest { variant, tiling, compiled_for, kernel: Kernel::Source(text) };
        run(&[request], &options, &()).pop().expect("one verdict")
    }

    fn assert_all_caught(&self, family: &str) {
        let list = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/emulator/families/{family}.toml"));
        let text = std::fs::read_to_string(list).expect("the family has a list of faults");
        let faults = toml::from_str::<Faults>(&text).expect("the list of faults reads").fault;
        assert!(!faults.is_empty(), "a list says something");
        let mut wrong = Vec::new();
        for Fault { name, variant, find, replace, expect } in faults {
            let (plan, kernel) = self.kernel(&variant);
            assert_eq!(kernel.matches(find.as_str()).count(), 1, "{name}: `find` occurs once in {variant}");
            let verdict = self.check(&plan, kernel.replace(find.as_str(), &replace));
            if verdict.status != Status::Fail || expect != "fail" && !verdict.message.contains(&expect) {
                wrong.push(format!("{name}: {:?}, expected `{expect}`: {}", verdict.status, verdict.message));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}

#[test]
fn every_fault_of_vector_add_is_caught() {
    laboratory().assert_all_caught("vector_add");
}

#[test]
fn every_fault_of_transpose_is_caught() {
    laboratory().assert_all_caught("transpose");
}

#[test]
fn every_fault_of_reduce_is_caught() {
    laboratory().assert_all_caught("reduce");
}

#[test]
fn every_fault_of_append_kv_is_caught() {
    laboratory().assert_all_caught("append_kv");
}

#[test]
fn every_family_but_attention_has_a_list_of_faults() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/emulator/families");
    let without = FAMILIES.iter().skip(1).filter(|family| !folder.join(format!("{}.toml", family.templates())).is_file());
    assert_eq!(without.map(|family| family.templates()).collect::<Vec<_>>(), Vec::<&str>::new());
}
