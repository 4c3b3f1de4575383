//! The files of a vendored folder.

use super::headers::used_headers;
use crate::{
    plan::Plan,
    render::{
        OutputFile, RenderError, Renderer, Source, Templates,
        library::{by_name, context},
        manifest::{self, Layout, VendoredAs},
    },
};
use rayon::prelude::*;
use std::path::Path;

/// Files that depend on the kernels: (path in the folder, path below `templates/`, layout, or `None` for every layout).
const RENDERED: &[(&str, &str, Option<Layout>)] = &[
    ("CMakeLists.txt", "bindings/vendored/CMakeLists.txt.tera", None),
    ("Makefile", "bindings/vendored/Makefile.tera", Some(Layout::Plain)),
    ("README.md", "bindings/vendored/README.md.tera", Some(Layout::Plain)),
    ("README.md", "bindings/vendored/vllm.md.tera", Some(Layout::Vllm)),
    ("include/kgen_launchers.h", "bindings/kgen_launchers.h.tera", None),
    ("vllm.cmake", "bindings/vendored/vllm.cmake.tera", Some(Layout::Vllm)),
];

/// The sources of vLLM's modules, below `templates/`.
const TORCH: &str = "bindings/torch/";

/// Sources used by one module only; the others are used by both.
const MODULES: [&str; 2] = ["fa2.cpp", "fa3.cpp"];

/// All files of a vendored folder for `plans`: kernels, the headers that they use, the header with their prototypes,
/// build files, README, the dispatcher of these kernels if `how` requests it, and the files of its layout. Sorted by
/// path, except that the manifest is last because it lists the other files.
///
/// # Errors
/// [`RenderError::Empty`] without plans; [`RenderError::Template`] and [`RenderError::Include`] when a template fails.
pub fn vendored_tree(
    renderer: &Renderer,
    templates: &Templates,
    plans: &[Plan],
    how: VendoredAs,
) -> Result<Vec<OutputFile>, RenderError> {
    let plans = by_name(plans)?;
    let sources: Vec<Source> = plans.par_iter().map(|plan| renderer.kernel(plan)).collect::<Result<_, _>>()?;
    let mut files: Vec<OutputFile> =
        sources.iter().map(|source| OutputFile { path: source.name.clone() + ".cu", text: source.text.clone() }).collect();
    let torch = if how.layout == Layout::Vllm { torch_sources(templates)? } else { Vec::new() };

    let mut context = context(&plans);
    context.insert("dispatcher", &how.dispatcher);
    context.insert("torch_sources", &common_sources(&torch));
    for (path, template, _) in RENDERED.iter().filter(|(.., layout)| layout.is_none_or(|layout| layout == how.layout)) {
        files.push(OutputFile { path: (*path).to_owned(), text: renderer.engine.render(template, context.clone())? });
    }
    if how.dispatcher {
        files.push(OutputFile { path: "kgen_dispatch.cpp".to_owned(), text: renderer.engine.dispatcher(&context)? });
    }
    files.extend(torch);
    files.extend(used_headers(templates, &files)?);
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files.push(manifest::render(&sources, &files, Some(how)));
    Ok(files)
}

/// The sources of vLLM's modules, for `torch/` in the folder.
fn torch_sources(templates: &Templates) -> Result<Vec<OutputFile>, RenderError> {
    let file = |(name, text): (&str, &str)| OutputFile { path: format!("torch/{name}"), text: text.to_owned() };
    let files: Vec<OutputFile> = templates.below(TORCH).map(file).collect();
    let lacks = |module: &&&str| !files.iter().any(|file| file.path == format!("torch/{module}"));
    match MODULES.iter().find(lacks) {
        None => Ok(files),
        Some(module) => Err(RenderError::Template {
            template: format!("{TORCH}{module}"),
            report: "the file is missing from the templates folder".to_owned(),
        }),
    }
}

/// The names of the sources that both modules use.
fn common_sources(torch: &[OutputFile]) -> Vec<&str> {
    let names = torch.iter().filter_map(|file| file.path.strip_prefix("torch/"));
    let is_source = |name: &&str| Path::new(name).extension().is_some_and(|extension| extension == "cpp");
    names.filter(is_source).filter(|name| !MODULES.contains(name)).collect()
}
