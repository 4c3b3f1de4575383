//! The kernels in which faults are planted.

use super::{
    hints::hints,
    list::{Fault, List, folder, lists},
    parts::{Parted, is_part, parted, with_marks},
};
use itertools::Itertools;
use kgen::{
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
    /// The emulator's files, by their paths below `templates/emulator/`.
    pub emulator: BTreeMap<String, String>,
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
            headers: owned(templates.include_files()),
            emulator: owned(templates.emulator_files()),
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

    pub fn marking(&self) -> &Renderer {
        self.marking.get_or_init(|| {
            let files = self.lists.iter().flat_map(|list| &list.faults).flat_map(|fault| fault.file.all());
            let parts = files.map(String::as_str).filter(|file| is_part(file)).unique();
            Renderer::new(&with_marks(parts)).expect("the templates parse")
        })
    }

    /// The cache of verdicts and objects. It is kept between runs, since every entry is keyed by its content.
    pub fn cache() -> PathBuf {
        PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("faults")
    }

    pub fn kit(&self) -> EmulatorKit {
        let kit = self.kit.get_or_init(|| {
            let (templates, host) = (Templates::embedded(), host_compiler_in_process().expect("a host compiler"));
            let (include, emulator) = (templates.include_files(), templates.emulator_files());
            EmulatorKit::new(&Self::cache(), include, emulator, &host, &Cancel::default()).expect("the emulator compiles")
        });
        kit.clone()
    }

    /// The kernel in which a fault is tried, and its text with the fault.
    ///
    /// # Errors
    /// The error in the entry.
    pub fn tried(&self, list: &List, fault: &Fault) -> Result<(&Kernel, String), String> {
        let mut planted = self.planted(&list.grid, fault)?;
        let one = one_of(fault, planted.len());
        Ok(planted.swap_remove(one))
    }

    /// Checks that kernels with the fault are rejected as the fault's entry specifies: one kernel for each fault,
    /// varying between faults, or with `KGEN_EVERY_FAULT` in the environment all that it concerns.
    ///
    /// # Errors
    /// Each kernel that is not rejected in that way, and its verdict.
    pub fn caught(&self, list: &List, fault: &Fault) -> Result<(), String> {
        let planted = self.planted(&list.grid, fault)?;
        let one = one_of(fault, planted.len());
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
}

/// Paths and texts of files.
fn owned<'a>(files: impl Iterator<Item = (&'a str, &'a str)>) -> BTreeMap<String, String> {
    files.map(|(path, text)| (path.to_owned(), text.to_owned())).collect()
}

/// Which of `count` kernels a fault is tried in.
fn one_of(fault: &Fault, count: usize) -> usize {
    fault.name.bytes().map(usize::from).sum::<usize>() % count
}
