//! The kernels that faults are planted in, and the check that must reject them.

use super::{
    list::{Fault, fault_lists},
    plant::{is_part, with_marks},
};
use itertools::Itertools;
use kgen::{
    check::{CheckOptions, CheckRequest, DEFAULT_SEED, Kernel, Level, Status, Verdict, run},
    device::EmulatorKit,
    family::attention::{Kind, Point},
    grid::Grid,
    kernel::{Dtype, Features, Variant},
    plan::Plan,
    render::{Renderer, Templates},
    toolchain::{Cancel, host_compiler_in_process},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::OnceLock,
    time::Duration,
};

/// Everything the tests share.
pub struct Laboratory {
    pub templates: Templates,
    /// One kernel of each shape of the template that `kernels.toml` declares.
    pub kernels: Vec<(Plan, String)>,
    pub faults: Vec<Fault>,
    /// The same kernels with what a part renders between marks, for each part that a fault names.
    pub marked: BTreeMap<String, Vec<String>>,
    kit: EmulatorKit,
    cache: PathBuf,
}

pub fn laboratory() -> &'static Laboratory {
    static LABORATORY: OnceLock<Laboratory> = OnceLock::new();
    LABORATORY.get_or_init(|| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/emulator");
        let faults = fault_lists(&folder);
        let templates = Templates::embedded();
        let renderer = Renderer::new(&templates).expect("the templates parse");
        let grid = Grid::load(&folder.join("kernels.toml")).expect("the grid of the kernels reads");
        let has_features = |v: &Variant| Point::of(v).is_some_and(|point| point.features != Features::NONE);
        let one_a_shape = |v: &&Variant| {
            v.kind() != Kind::Fwd.into() || has_features(v) || v.causal() == Some(true) && v.dtype() != Some(Dtype::Bf16)
        };
        // Forward kernels with features come last: of a template, a fault that concerns plain ones takes one of those;
        // so do other families, which have faults of their own.
        let comes_last = |v: &&Variant| Point::of(v).is_none() || v.kind() != Kind::Bwd.into() && has_features(v);
        let variants = grid.variants().iter().filter(one_a_shape).sorted_by_key(comes_last);
        let kernels = variants.map(|variant| {
            let plan = Plan::new(*variant, grid.tile_override(variant).as_ref()).expect("it has a plan");
            let text = renderer.kernel(&plan).expect("it renders").text;
            (plan, text)
        });
        let kernels: Vec<(Plan, String)> = kernels.collect();
        let named = faults.iter().flat_map(|fault| fault.file.all()).filter(|file| is_part(file)).cloned();
        let marked = named.collect::<BTreeSet<_>>().into_iter().map(|part| {
            let renderer = Renderer::new(&with_marks(&part)).expect("the templates parse");
            let texts = kernels.iter().map(|(plan, _)| renderer.kernel(plan).expect("it renders").text);
            (part, texts.collect())
        });
        let marked = marked.collect();
        let host = host_compiler_in_process().expect("a host compiler");
        // Kept between runs of the tests: everything in it is found by its content.
        let cache = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("faults");
        let (include, emulator) = (templates.include_files(), templates.emulator_files());
        let kit = EmulatorKit::new(&cache, include, emulator, &host, &Cancel::default()).expect("the emulator compiles");
        Laboratory { templates, kernels, faults, marked, kit, cache }
    })
}

impl Laboratory {
    pub fn check(&self, plan: &Plan, text: String, case: Option<&str>) -> Verdict {
        let options = CheckOptions {
            cases: kgen::family::cases,
            level: Level::Smoke,
            filter: case.map(str::to_owned),
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
        let request = CheckRequest {
            variant: plan.variant,
            tiling: plan.tiling(),
            compiled_for: plan.compiled_for(),
            kernel: Kernel::Source(text),
        };
        run(&[request], &options, &()).pop().expect("one verdict")
    }

    /// Asserts that the check rejects a kernel that the fault concerns, and rejects it as expected: one for each fault,
    /// another for another, or with `KGEN_EVERY_FAULT` in the environment all that it concerns.
    pub fn assert_caught(&self, name: &str) {
        let fault = self.faults.iter().find(|fault| fault.name == name).expect("a list holds it");
        let planted = self.planted(fault);
        let one = name.bytes().map(usize::from).sum::<usize>() % planted.len();
        let every_kernel = std::env::var_os("KGEN_EVERY_FAULT").is_some();
        for (_, (plan, text)) in planted.into_iter().enumerate().filter(|(place, _)| every_kernel || *place == one) {
            self.assert_rejected(fault, plan, text);
        }
    }

    fn assert_rejected(&self, fault: &Fault, plan: &Plan, text: String) {
        // "steep" asks for logits whose maximum grows with every tile; the others are said as names of cases say them.
        let case = fault.layout.as_deref().map(|layout| match layout {
            "low" => " low",
            "steep" => "falling",
            "overtaken" => "overtaken",
            other => panic!("faults.toml explains no layout `{other}`"),
        });
        let verdict = self.check(plan, text, case);
        let variant = plan.variant;
        let (status, sign) = match fault.expect.as_str() {
            "wrong numbers" => (Status::Fail, "elements are wrong".to_owned()),
            "trap" => (Status::Crash, "an index lies beyond the bounds of one of the kernel's arrays".to_owned()),
            "refusal" => (Status::Fail, "the launcher must refuse this and say `".to_owned()),
            kind => (Status::Fail, format!("{kind}: ")),
        };
        assert_eq!(verdict.status, status, "{variant}: {}", verdict.message);
        assert!(verdict.message.contains(&sign), "{variant}: expected `{sign}` in: {}", verdict.message);
    }
}
