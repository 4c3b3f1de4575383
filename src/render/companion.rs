//! What goes beside a kernel in a file of its own: a test of it, and the emulator that runs the test without a GPU.

use super::{
    OutputFile, RenderError, Renderer, Templates,
    kernel::{compile_words, dtype_constant},
};
use crate::{
    family::attention::{DeclaredReference, Point, needs_tma},
    kernel::{Dtype, Feature, Kind, Variant},
    plan::{self, Plan},
};
use std::collections::BTreeSet;
use tera::Context;

/// Folder of the emulator, beside `include/`.
pub(super) const EMULATOR: &str = "emulator/";

/// Flags of the host compiler for the emulator. `-ffp-contract=off` keeps the two roundings of `a * b + c`.
const EMULATOR_FLAGS: [&str; 7] = ["-std=c++17", "-O1", "-w", "-Wno-psabi", "-ffp-contract=off", "-Iemulator", "-Iinclude"];

/// The test of a kernel in the file `file_name`: `my_test.cpp` for `my.cu`. The error inside says which kernels have
/// none.
///
/// # Errors
/// [`RenderError::Template`].
pub fn kernel_test(renderer: &Renderer, plan: &Plan, file_name: &str) -> Result<Result<OutputFile, String>, RenderError> {
    let variant = plan.variant;
    let point = match tested(&variant) {
        Ok(point) => point,
        Err(untested) => return Ok(Err(untested)),
    };
    let stem = file_name.strip_suffix(".cu").unwrap_or(file_name);
    let (program, path) = (format!("{stem}_test"), format!("{stem}_test.cpp"));
    let mut context = Context::new();
    context.insert("plan", plan);
    context.insert("name", &variant.name());
    context.insert("kind", variant.kind().name());
    context.insert("kernel_file", file_name);
    context.insert("header_file", &format!("{stem}.h"));
    context.insert("program", &program);
    context.insert("capability", &plan.compiled_for().compute_capability());
    describe(&mut context, point);
    let output = ["-o".to_owned(), program];
    let sources = [file_name.to_owned(), path.clone()];
    let gpu = [compile_words(plan), sources.to_vec(), output.to_vec()].concat();
    context.insert("gpu_line", &plan::shell_words(&gpu));
    let emulator = EMULATOR_FLAGS.iter().map(ToString::to_string);
    let emulator = std::iter::once("g++".to_owned()).chain(emulator).chain(["-x".to_owned(), "c++".to_owned()]);
    let emulator = emulator.chain(sources).chain([format!("{EMULATOR}runtime.cpp")]).chain(output);
    context.insert("emulator_line", &plan::shell_words(&emulator.collect::<Vec<_>>()));
    let template = if variant.kind() == Kind::Bwd { "companion/bwd_test.cpp.tera" } else { "companion/fwd_test.cpp.tera" };
    Ok(Ok(OutputFile { path, text: renderer.engine.render(template, context)? }))
}

/// The kernel, if there is a test of it; otherwise the kernels, as words, for which there is none.
fn tested(variant: &Variant) -> Result<Point, String> {
    let kind = variant.kind();
    let has_test = [Kind::Fwd, Kind::FwdShort, Kind::FwdSplit, Kind::Bwd].contains(&kind);
    Point::of(variant).filter(|_| has_test).ok_or_else(|| format!("kernels of the kind `{}`", kind.name()))
}

/// Enters what the test of a kernel depends on: types, features by their names, and what follows from those.
fn describe(context: &mut Context, point: Point) {
    for feature in Feature::ALL {
        context.insert(feature.info().name, &point.features.has(*feature));
    }
    let has = |feature| point.features.has(feature);
    let is_fp8 = point.dtype == Dtype::Fp8;
    let output = if is_fp8 { Dtype::Bf16 } else { point.dtype };
    let of_keys = match (has(Feature::KvE4m3), has(Feature::KvE5m2)) {
        (true, _) => "E4M3",
        (_, true) => "E5M2",
        _ => format_of(point.dtype),
    };
    context.insert("of_q", format_of(point.dtype));
    context.insert("of_k", of_keys);
    context.insert("of_o", format_of(output));
    context.insert("of_p", format_of(point.multiplied()));
    context.insert("dtype_constant", dtype_constant(Some(point.dtype)));
    context.insert("o_constant", dtype_constant(Some(output)));
    context.insert("fp8", &is_fp8);
    context.insert("fp8_keys", &(has(Feature::KvE4m3) || has(Feature::KvE5m2)));
    context.insert("fp8_weights", &(point.multiplied() == Dtype::Fp8));
    context.insert("packs_keys", &![Feature::Paged, Feature::Cache, Feature::Append].into_iter().any(has));
    context.insert("declared", &DeclaredReference::of(point));
    context.insert("aligned_only", &(needs_tma(point) || has(Feature::Append)));
}

/// The name in `numbers.tera` of a type's format.
fn format_of(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::Fp16 => "FP16",
        Dtype::Bf16 => "BF16",
        Dtype::Fp8 => "E4M3",
        Dtype::Fp32 => "FP32",
    }
}

/// The emulator's headers and its runtime, without what only kits compile.
pub fn emulator_tree(templates: &Templates) -> Vec<OutputFile> {
    let file = |(path, text): (&str, &str)| OutputFile { path: format!("{EMULATOR}{path}"), text: text.to_owned() };
    let is_kits = |path: &str| path.starts_with("precompiled/") || path == "launchers.cpp";
    templates.emulator_files().filter(|(path, _)| !is_kits(path)).map(file).collect()
}

/// A source that includes the headers of `include/` that the files of the emulator among `files` include.
pub(super) fn headers_of_emulator(files: &[OutputFile]) -> OutputFile {
    let own: BTreeSet<&str> = files.iter().filter_map(|file| file.path.strip_prefix(EMULATOR)).collect();
    let of_emulator = files.iter().filter(|file| file.path.starts_with(EMULATOR));
    let included = of_emulator.flat_map(|file| file.text.lines().filter_map(|line| line.trim().strip_prefix("#include \"")));
    let names: BTreeSet<&str> = included.filter_map(|rest| rest.split('"').next()).filter(|name| !own.contains(name)).collect();
    let lines: Vec<String> = names.iter().map(|name| format!("#include \"{name}\"")).collect();
    OutputFile { path: EMULATOR.to_owned(), text: lines.join("\n") }
}
