//! Files beside the kernels of a generated folder: dispatcher, `CMake` file, example, README, manifest.

use super::{
    OutputFile, RenderError, Renderer, Source, Templates,
    engine::Engine,
    kernel::{compile_line, dtype_constant, file_name},
    manifest,
};
use crate::{
    family::{self, FAMILIES, Words},
    kernel::{Axis, Kind, Target, Variant},
    plan::{self, Plan},
};
use itertools::Itertools;
use rayon::prelude::*;
use serde::Serialize;
use tera::Context;

/// Path of the dispatcher's template below `templates/`.
pub(super) const DISPATCHER_TEMPLATE: &str = "bindings/kgen_dispatch.cpp.tera";

/// Folder of the templates that it includes.
const DISPATCHER_INCLUDES: &str = "bindings/dispatch/";

/// File name of a family's part of the dispatcher, in the family's folder of templates.
const DISPATCHER_PART: &str = "dispatch.cpp.tera";

/// Files that do not depend on the plans: (path in the folder, path below `templates/`).
const COPIED: &[(&str, &str)] = &[("examples/attention.c", "bindings/examples/attention.c")];

/// Files that depend on the plans: (path in the folder, path below `templates/`).
const RENDERED: &[(&str, &str)] = &[
    ("CMakeLists.txt", "bindings/CMakeLists.txt.tera"),
    ("README.md", "bindings/README.md.tera"),
    ("kgen_launchers.h", "bindings/kgen_launchers.h.tera"),
];

/// All files of a generated folder for `plans`: kernels, `include/`, dispatcher, `CMake` file, example, README and
/// `manifest.json`. Sorted by path, except that the manifest is last because it lists the other files.
///
/// # Errors
/// [`RenderError::Empty`] without plans; [`RenderError::Template`] when a template fails.
pub fn tree(renderer: &Renderer, templates: &Templates, plans: &[Plan]) -> Result<Vec<OutputFile>, RenderError> {
    tree_with(renderer, templates, plans, |_| Ok(Vec::new()))
}

/// [`tree`] with the files that `more` makes of its files, which the manifest lists too.
///
/// # Errors
/// Those of [`tree`], and of `more`.
pub fn tree_with<E: From<RenderError>>(
    renderer: &Renderer,
    templates: &Templates,
    plans: &[Plan],
    more: impl FnOnce(&[OutputFile]) -> Result<Vec<OutputFile>, E>,
) -> Result<Vec<OutputFile>, E> {
    let plans = by_name(plans)?;
    let sources: Vec<Source> = plans.par_iter().map(|plan| renderer.kernel(plan)).collect::<Result<_, _>>()?;
    let context = context(&plans);

    let mut files: Vec<OutputFile> = sources
        .iter()
        .map(|source| OutputFile { path: source.name.clone() + ".cu", text: source.text.clone() })
        .chain(include_tree(templates))
        .collect();
    for (path, template) in RENDERED {
        files.push(OutputFile { path: (*path).to_owned(), text: renderer.engine.render(template, context.clone())? });
    }
    files.push(OutputFile { path: "kgen_dispatch.cpp".to_owned(), text: renderer.engine.dispatcher(&context)? });
    for (path, template) in COPIED {
        let text = templates.get(template).ok_or_else(|| RenderError::Template {
            template: (*template).to_owned(),
            report: "the file is missing from the templates folder".to_owned(),
        })?;
        files.push(OutputFile { path: (*path).to_owned(), text: text.to_owned() });
    }
    files.extend(more(&files)?);
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files.push(manifest::render(&sources, &files, None));
    Ok(files)
}

/// The files of `include/`.
pub(super) fn include_tree(templates: &Templates) -> impl Iterator<Item = OutputFile> {
    templates.include_files().map(|(path, text)| OutputFile { path: format!("include/{path}"), text: text.to_owned() })
}

impl Renderer {
    /// The dispatcher of a library with these `plans`: defines `kgen_fwd`, `kgen_variants` and the other entry points.
    /// C++ for the host compiler or nvcc. Define the macro `KGEN_NO_PTX` if the objects contain no PTX.
    ///
    /// # Errors
    /// The errors of [`tree`].
    pub fn dispatcher(&self, plans: &[Plan]) -> Result<String, RenderError> {
        self.engine.dispatcher(&context(&by_name(plans)?))
    }
}

/// What [`Renderer::dispatcher`] gives, for a compiler alone: only the dispatcher's templates are parsed, which are
/// few, and long lines are not wrapped.
///
/// # Errors
/// The errors of [`tree`].
pub fn dispatcher(templates: &Templates, plans: &[Plan]) -> Result<String, RenderError> {
    let is_part = |path: &str| path.rsplit('/').next() == Some(DISPATCHER_PART);
    let is_own = |path: &str| path == DISPATCHER_TEMPLATE || path.starts_with(DISPATCHER_INCLUDES) || is_part(path);
    let context = context(&by_name(plans)?);
    let own = Engine::of(templates.rendered().filter(|(path, _)| is_own(path)));
    // A user's dispatcher may include any template.
    let mut engine = own.or_else(|_| Engine::of(templates.rendered()))?;
    engine.lay_out = str::to_owned;
    engine.dispatcher(&context)
}

impl Engine {
    /// The dispatcher of attention, followed by the part of each other family.
    pub(super) fn dispatcher(&self, context: &Context) -> Result<String, RenderError> {
        let mut text = self.render(DISPATCHER_TEMPLATE, context.clone())?;
        for family in FAMILIES {
            let template = format!("{}/{DISPATCHER_PART}", family.templates());
            if self.has(&template) {
                text.push('\n');
                text.push_str(&self.render(&template, context.clone())?);
            }
        }
        Ok(text)
    }
}

/// The header that declares a kernel file's launcher: `my.h` for `my.cu`.
///
/// # Errors
/// [`RenderError::Template`].
pub fn kernel_header(renderer: &Renderer, plan: &Plan, file_name: &str) -> Result<OutputFile, RenderError> {
    let mut context = Context::new();
    let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    let stem = file_name.strip_suffix(".cu").unwrap_or(file_name);
    let kind = plan.variant.kind().info();
    context.insert("file", file_name);
    context.insert("guard", &format!("KGEN_{}_H", stem.chars().map(letter).collect::<String>()));
    context.insert("name", &plan.variant.name());
    context.insert("params", kind.params);
    context.insert("workspace", &kind.workspace);
    Ok(OutputFile { path: format!("{stem}.h"), text: renderer.engine.render("bindings/kernel.h.tera", context)? })
}

/// The plans without duplicates, sorted by name: the order of `kgen_variants()`.
pub(super) fn by_name(plans: &[Plan]) -> Result<Vec<Plan>, RenderError> {
    if plans.is_empty() {
        return Err(RenderError::Empty);
    }
    Ok(plans
        .iter()
        .map(|plan| (plan.variant.name(), plan))
        .sorted_by(|a, b| a.0.cmp(&b.0))
        .dedup_by(|a, b| a.0 == b.0)
        .map(|(_, plan)| plan.clone())
        .collect())
}

/// A row of the dispatcher's table.
#[derive(Serialize)]
struct Row {
    name: String,
    /// Coordinates in the words of the command line, `-` for an absent axis. CMake selects kernels by them.
    kind: &'static str,
    head_dim_word: String,
    dtype_word: String,
    features_word: String,
    target_word: &'static str,
    kind_constant: &'static str,
    /// The parameter structure of its launcher.
    params: &'static str,
    /// True if its file defines `<name>_workspace`.
    workspace: bool,
    head_dim: u32,
    head_dim_v: u32,
    dtype_constant: &'static str,
    target: u32,
    /// Features, declared score and predicted cost, from its family.
    #[serde(flatten)]
    family: Words,
    /// Newest compute capability that runs its machine code, or its PTX if the object contains it.
    newest_for_machine_code: u32,
    newest_with_ptx: u32,
    /// Shared memory per block, and the limit per block on the GPUs that the plan was made for (bytes).
    shared_memory_bytes: u32,
    made_for_shared_memory: u32,
}

/// The kernels of one target, which share their flags.
#[derive(Serialize)]
struct Group {
    target: &'static str,
    flags: String,
    /// The flags quoted for a shell.
    shell_flags: String,
    names: Vec<String>,
}

/// Context of the templates of a folder with these `plans`.
pub(super) fn context(plans: &[Plan]) -> Context {
    let mut context = Context::new();
    context.insert("variants", &plans.iter().map(row).collect_vec());
    context.insert("groups", &groups(plans));
    context.insert("kinds", &kinds(plans));
    context.insert("helped", &helped(plans));
    for (word, value) in FAMILIES.iter().flat_map(|family| family.library_words()) {
        context.insert(word, &value);
    }
    context.insert("every_newer_gpu", &plan::EVERY_NEWER_GPU);
    if let Some(first) = plans.first() {
        context.insert("compile_line", &compile_line(first, &file_name(&first.variant)));
        context.insert("object", &format!("{}.o", first.variant.name()));
    }
    context
}

fn row(plan: &Plan) -> Row {
    let (variant, at, kind) = (&plan.variant, plan.variant.coordinates(), plan.variant.kind().info());
    Row {
        name: variant.name(),
        kind: variant.kind().name(),
        head_dim_word: word(at.head_dim),
        dtype_word: word(at.dtype),
        features_word: word(at.features),
        target_word: at.target.name(),
        kind_constant: kind.constant,
        params: kind.params,
        workspace: kind.workspace,
        head_dim: at.head_dim.map_or(0, |head_dim| head_dim.qk),
        head_dim_v: at.head_dim.map_or(0, |head_dim| head_dim.v),
        dtype_constant: dtype_constant(at.dtype),
        family: family::of(variant.kind()).row_words(plan),
        target: plan.compiled_for().compute_capability(),
        newest_for_machine_code: plan::newest_for_machine_code(plan.compiled_for()),
        newest_with_ptx: plan::newest_with_ptx(plan.compiled_for()),
        shared_memory_bytes: plan.shared_memory_bytes,
        made_for_shared_memory: plan.limits.shared_memory_per_block,
    }
}

/// A coordinate in the words of the command line.
fn word(coordinate: Option<impl ToString>) -> String {
    coordinate.map_or_else(|| "-".to_owned(), |coordinate| coordinate.to_string())
}

/// A kind whose kernels need helpers, in the words of the command line.
#[derive(Serialize)]
struct Helped {
    kind: &'static str,
    helpers: Vec<&'static str>,
}

fn helped(plans: &[Plan]) -> Vec<Helped> {
    let kinds = plans.iter().map(|plan| plan.variant.kind()).unique();
    let helpers = |kind: Kind| {
        let of_kind = plans.iter().map(|plan| &plan.variant).filter(move |variant| variant.kind() == kind);
        of_kind.flat_map(Variant::helpers).unique().map(Kind::name).collect()
    };
    kinds.map(|kind| Helped { kind: kind.name(), helpers: helpers(kind) }).filter(|helped| !helped.helpers.is_empty()).collect()
}

/// The kernels of one kind, as the README lists them.
#[derive(Serialize)]
struct KindRow {
    files: String,
    count: usize,
    what: &'static str,
    parameters: &'static str,
    /// True if each file defines `<name>_workspace`.
    workspace: bool,
}

fn kinds(plans: &[Plan]) -> Vec<KindRow> {
    let of = |kind: &Kind| {
        let names = plans.iter().filter(|plan| plan.variant.kind() == *kind).map(|plan| plan.variant.name()).collect_vec();
        let first = names.first()?;
        // The common prefix of the kind: `flash_fwd` of `flash_fwd_hdim64_bf16_sm80`.
        let end = first.find(kind.name()).map_or(0, |start| start + kind.name().len());
        let rest = if kind.has(Axis::HeadDim) { "_hdim*" } else { "_*" };
        Some(KindRow {
            files: format!("{}{rest}.cu", &first[..end]),
            count: names.len(),
            what: kind.info().summary,
            parameters: kind.info().params,
            workspace: kind.info().workspace,
        })
    };
    Kind::ALL.iter().filter_map(of).collect()
}

fn groups(plans: &[Plan]) -> Vec<Group> {
    let of = |target: Target| {
        let names = plans.iter().filter(|plan| plan.compiled_for() == target).map(|plan| plan.variant.name()).collect_vec();
        let flags = plan::nvcc_flags(target, true);
        Group { target: target.name(), shell_flags: plan::shell_words(&flags), flags: flags.join(" "), names }
    };
    Target::ALL.iter().map(|target| of(*target)).filter(|group| !group.names.is_empty()).collect()
}
