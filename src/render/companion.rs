//! What goes beside a kernel in a file of its own: a test of it, and the emulator that runs the test without a GPU.

use super::{
    OutputFile, RenderError, Renderer, Templates,
    kernel::{compile_words, dtype_constant},
};
use crate::{
    kernel::{Dtype, Feature, Kind, Variant},
    plan::{self, Plan},
};
use std::collections::BTreeSet;
use tera::Context;

/// Folder of the emulator, beside `include/`.
pub(super) const EMULATOR: &str = "emulator/";

/// Features whose calls the tests make.
const TESTED: [Feature; 6] = [Feature::Window, Feature::Chunk, Feature::Softcap, Feature::Alibi, Feature::Sinks, Feature::Paged];

/// Features that change nothing in a call.
const WITHOUT_ARGUMENTS: [Feature; 1] = [Feature::PackGqa];

/// Flags of the host compiler for the emulator. `-ffp-contract=off` keeps the two roundings of `a * b + c`.
const EMULATOR_FLAGS: [&str; 7] = ["-std=c++17", "-O1", "-w", "-Wno-psabi", "-ffp-contract=off", "-Iemulator", "-Iinclude"];

/// The test of a kernel in the file `file_name`: `my_test.cpp` for `my.cu`. The error inside says which kernels have
/// none.
///
/// # Errors
/// [`RenderError::Template`].
pub fn kernel_test(renderer: &Renderer, plan: &Plan, file_name: &str) -> Result<Result<OutputFile, String>, RenderError> {
    let variant = plan.variant;
    if let Some(untested) = untested(&variant) {
        return Ok(Err(untested));
    }
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
    context.insert("dtype_constant", dtype_constant(variant.dtype()));
    let [exponent_bits, fraction_bits] = if variant.dtype() == Some(Dtype::Bf16) { [8, 7] } else { [5, 10] };
    context.insert("exponent_bits", &exponent_bits);
    context.insert("fraction_bits", &fraction_bits);
    let features = variant.features().unwrap_or_default();
    for feature in TESTED {
        context.insert(feature.info().name, &features.has(feature));
    }
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

/// The kernels, as words, for which there is no test, if the variant is one of them.
fn untested(variant: &Variant) -> Option<String> {
    let kind = variant.kind();
    if ![Kind::Fwd, Kind::FwdShort, Kind::FwdSplit, Kind::Bwd].contains(&kind) {
        return Some(format!("kernels of the kind `{}`", kind.name()));
    }
    let features = variant.features().unwrap_or_default();
    if variant.dtype() == Some(Dtype::Fp8) {
        return Some("kernels for `fp8`".to_owned());
    }
    if features.score().is_some() {
        return Some("kernels with a declared score or mask".to_owned());
    }
    let is_known = |feature: &Feature| TESTED.contains(feature) || WITHOUT_ARGUMENTS.contains(feature);
    let other = features.iter().find(|feature| !is_known(feature))?;
    Some(format!("kernels with `{}`", other.info().name))
}

/// The emulator's headers and its runtime.
pub fn emulator_tree(templates: &Templates) -> Vec<OutputFile> {
    let file = |(path, text): (&str, &str)| OutputFile { path: format!("{EMULATOR}{path}"), text: text.to_owned() };
    templates.emulator_files().map(file).collect()
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
