//! The kernels in which faults are planted, and the check that must reject them.

use super::{
    hints::{LastCase, hints},
    list::{Fault, List, folder, lists},
    parts::{Parted, is_part, parted, with_marks},
};
use itertools::Itertools;
use kgen::{
    check::{CheckOptions, CheckRequest, DEFAULT_SEED, Kernel as Form, Level, Observer, Status, Verdict, run},
    device::EmulatorKit,
    family::attention::{Kind, Point},
    grid::Grid,
    kernel::{Dtype, Features, Variant},
    plan::Plan,
    render::{Renderer, Templates},
    toolchain::{Cancel, host_compiler_in_process},
};
use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{LazyLock, OnceLock},
    time::Duration,
};

/// A kernel of a grid. Its text is rendered on first use.
pub struct Kernel {
    pub plan: Plan,
    name: String,
    text: OnceLock<String>,
    parted: OnceLock<Parted>,
}

impl Kernel {
    fn new(plan: Plan) -> Self {
        Self { name: plan.variant.name(), plan, text: OnceLock::new(), parted: OnceLock::new() }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn text(&self, laboratory: &Laboratory) -> &str {
        self.text.get_or_init(|| laboratory.renderer.kernel(&self.plan).expect("it renders").text)
    }

    pub fn parted(&self, laboratory: &Laboratory) -> &Parted {
        self.parted.get_or_init(|| parted(&laboratory.marking().kernel(&self.plan).expect("it renders").text))
    }

    /// True if faults that name a file are planted in this kernel: of the plain forward kernels of one shape, only the
    /// causal ones that are not bf16.
    fn is_of_a_shape(&self) -> bool {
        let variant = &self.plan.variant;
        variant.kind() != Kind::Fwd.into()
            || self.has_features()
            || variant.causal() == Some(true) && variant.dtype() != Some(Dtype::Bf16)
    }

    fn has_features(&self) -> bool {
        Point::of(&self.plan.variant).is_some_and(|point| point.features != Features::NONE)
    }

    /// True if a fault uses it only if no other kernel of its template fits: faults of plain kernels use plain kernels,
    /// and attention faults use attention kernels, since other families have their own faults.
    fn comes_last(&self) -> bool {
        let variant = &self.plan.variant;
        Point::of(variant).is_none() || variant.kind() != Kind::Bwd.into() && self.has_features()
    }
}

/// State shared by the trials.
pub struct Laboratory {
    pub lists: Vec<List>,
    /// The device headers, by their paths in `#include`.
    pub headers: BTreeMap<String, String>,
    grids: BTreeMap<String, Vec<Kernel>>,
    renderer: Renderer,
    /// Renders the same kernels with marks around the parts that faults name.
    marking: OnceLock<Renderer>,
    kit: OnceLock<EmulatorKit>,
}

pub fn laboratory() -> &'static Laboratory {
    static LABORATORY: LazyLock<Laboratory> = LazyLock::new(Laboratory::new);
    &LABORATORY
}

impl Laboratory {
    fn new() -> Self {
        let (templates, lists) = (Templates::embedded(), lists());
        let grids = lists.iter().map(|list| list.grid.clone()).unique().map(|name| {
            let grid = Grid::load(&folder().join(format!("grids/{name}.toml"))).unwrap_or_else(|error| panic!("{name}: {error}"));
            let plan = |variant: &Variant| Plan::new(*variant, grid.tile_override(variant).as_ref()).expect("it has a plan");
            (name, grid.variants().iter().map(|variant| Kernel::new(plan(variant))).collect())
        });
        Self {
            grids: grids.collect(),
            headers: templates.include_files().map(|(path, text)| (path.to_owned(), text.to_owned())).collect(),
            renderer: Renderer::new(&templates).expect("the templates parse"),
            marking: OnceLock::new(),
            kit: OnceLock::new(),
            lists,
        }
    }

    /// All kernels of a grid.
    pub fn grid(&self, name: &str) -> &[Kernel] {
        &self.grids[name]
    }

    /// The grids and their kernels.
    pub fn grids(&self) -> impl Iterator<Item = (&str, &[Kernel])> {
        self.grids.iter().map(|(name, kernels)| (name.as_str(), kernels.as_slice()))
    }

    /// The kernels for a fault that names a file, in the order in which they are tried.
    pub fn shapes(&self, grid: &str) -> impl Iterator<Item = &Kernel> {
        self.grid(grid).iter().filter(|kernel| kernel.is_of_a_shape()).sorted_by_key(|kernel| kernel.comes_last())
    }

    fn marking(&self) -> &Renderer {
        self.marking.get_or_init(|| {
            let files = self.lists.iter().flat_map(|list| &list.faults).flat_map(|fault| fault.file.all());
            let parts = files.map(String::as_str).filter(|file| is_part(file)).unique();
            Renderer::new(&with_marks(parts)).expect("the templates parse")
        })
    }

    /// The cache of verdicts and objects. It is kept between runs, since every entry is keyed by its content.
    fn cache() -> PathBuf {
        PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("faults")
    }

    fn kit(&self) -> EmulatorKit {
        let kit = self.kit.get_or_init(|| {
            let (templates, host) = (Templates::embedded(), host_compiler_in_process().expect("a host compiler"));
            let (include, emulator) = (templates.include_files(), templates.emulator_files());
            EmulatorKit::new(&Self::cache(), include, emulator, &host, &Cancel::default()).expect("the emulator compiles")
        });
        kit.clone()
    }

    /// The verdict on a text of a kernel, from the cases whose names contain `cases`. Ends with the first failure. A
    /// pass of an earlier run counts: it is keyed by everything that it depends on.
    fn check(&self, plan: &Plan, text: String, cases: Option<&str>, observer: &dyn Observer) -> Verdict {
        let options = CheckOptions {
            cases: kgen::family::cases,
            level: Level::Smoke,
            filter: cases.map(str::to_owned),
            seed: DEFAULT_SEED,
            schedule: None,
            jobs: 1,
            gpu_jobs: 1,
            time_limit: Duration::from_secs(300), // the machine may be busy
            fresh: false,
            cache: Self::cache(),
            kit: Some(self.kit()),
            gpu: None,
            program: PathBuf::from(env!("CARGO_BIN_EXE_kgen")),
        };
        let (variant, tiling, compiled_for) = (plan.variant, plan.tiling(), plan.compiled_for());
        let request = CheckRequest { variant, tiling, compiled_for, kernel: Form::Source(text) };
        run(&[request], &options, observer).pop().expect("one verdict")
    }

    /// Checks that a text of a kernel passes.
    ///
    /// # Errors
    /// The verdict of a kernel that does not pass.
    pub fn passes(&self, kernel: &Kernel, text: String) -> Result<(), String> {
        let verdict = self.check(&kernel.plan, text, None, &());
        if verdict.passed() { Ok(()) } else { Err(format!("{}: {:?}: {}", kernel.name, verdict.status, verdict.message)) }
    }

    /// Checks that kernels with the fault are rejected as the fault's entry specifies: one kernel for each fault,
    /// varying between faults, or with `KGEN_EVERY_FAULT` in the environment all that it concerns.
    ///
    /// # Errors
    /// Each kernel that is not rejected in that way, and its verdict.
    pub fn caught(&self, list: &List, fault: &Fault) -> Result<(), String> {
        let planted = self.planted(&list.grid, fault)?;
        let one = fault.name.bytes().map(usize::from).sum::<usize>() % planted.len();
        let every_kernel = std::env::var_os("KGEN_EVERY_FAULT").is_some();
        let chosen = planted.into_iter().enumerate().filter(|(place, _)| every_kernel || *place == one);
        let trial = list.trial(fault);
        let wrong: Vec<String> = chosen
            .filter_map(|(_, (kernel, text))| match self.rejected(fault, &kernel.plan, &text, hints().case(&trial)) {
                Ok(Some((case, passed))) => {
                    hints().see(&trial, case, passed);
                    None
                }
                Ok(None) => None,
                Err(verdict) => Some(verdict),
            })
            .collect();
        if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
    }

    /// Checks that a text is rejected as the fault's entry specifies: by the case `hint`, or else by all cases. In the
    /// latter case it returns the case that shows the fault and the time spent on those before it.
    ///
    /// # Errors
    /// The verdict, if it differs from the expected one.
    pub fn rejected(
        &self,
        fault: &Fault,
        plan: &Plan,
        text: &str,
        hint: Option<&str>,
    ) -> Result<Option<(String, Duration)>, String> {
        let (wanted, sign) = match fault.expect.as_str() {
            "fail" => (Status::Fail, String::new()),
            "wrong numbers" => (Status::Fail, "elements are wrong".to_owned()),
            "trap" => (Status::Crash, "an index is beyond the bounds of one of the kernel's arrays".to_owned()),
            "refusal" => (Status::Fail, "the launcher must refuse this and say `".to_owned()),
            kind => (Status::Fail, format!("{kind}: ")),
        };
        let says = fault.says.as_deref().unwrap_or_default();
        let is_wanted =
            |verdict: &Verdict| verdict.status == wanted && verdict.message.contains(&sign) && verdict.message.contains(says);
        if hint.is_some() && is_wanted(&self.check(plan, text.to_owned(), hint, &())) {
            return Ok(None);
        }
        let last = LastCase::default();
        let verdict = self.check(plan, text.to_owned(), fault.cases.as_deref(), &last);
        if is_wanted(&verdict) {
            return Ok(last.take());
        }
        let Verdict { status, message, .. } = verdict;
        Err(format!("{}: {status:?}, expected {wanted:?} with `{sign}` and `{says}`: {message}", plan.variant))
    }
}
