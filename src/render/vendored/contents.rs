//! What a vendored folder holds.

use super::headers::used_headers;
use crate::{
    plan::Plan,
    render::{
        OutputFile, RenderError, Renderer, Source, Templates,
        library::{by_name, context},
        manifest::{self, VendoredAs},
    },
};
use rayon::prelude::*;

/// Files that depend on the kernels: path in the folder, path below `templates/`.
const RENDERED: &[(&str, &str)] = &[
    ("CMakeLists.txt", "bindings/vendored/CMakeLists.txt.tera"),
    ("Makefile", "bindings/vendored/Makefile.tera"),
    ("README.md", "bindings/vendored/README.md.tera"),
    ("include/kgen_launchers.h", "bindings/kgen_launchers.h.tera"),
];

/// Everything a vendored folder holds for `plans`: kernels, the headers that they use, the header with their
/// prototypes, `CMakeLists.txt`, `Makefile`, README, the dispatcher of exactly these kernels where `dispatcher` asks for
/// it; sorted by path, and last the manifest, which names the others.
///
/// # Errors
/// [`RenderError::Empty`] without plans; [`RenderError::Template`] and [`RenderError::Include`] when a template fails.
pub fn vendored_tree(
    renderer: &Renderer,
    templates: &Templates,
    plans: &[Plan],
    dispatcher: bool,
) -> Result<Vec<OutputFile>, RenderError> {
    let plans = by_name(plans)?;
    let sources: Vec<Source> = plans.par_iter().map(|plan| renderer.kernel(plan)).collect::<Result<_, _>>()?;
    let mut context = context(&plans);
    context.insert("dispatcher", &dispatcher);

    let mut files: Vec<OutputFile> =
        sources.iter().map(|source| OutputFile { path: source.name.clone() + ".cu", text: source.text.clone() }).collect();
    for (path, template) in RENDERED {
        files.push(OutputFile { path: (*path).to_owned(), text: renderer.render(template, context.clone())? });
    }
    if dispatcher {
        files.push(OutputFile { path: "kgen_dispatch.cpp".to_owned(), text: renderer.dispatcher_with(&context)? });
    }
    files.extend(used_headers(templates, &files)?);
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files.push(manifest::render(&sources, &files, Some(VendoredAs { dispatcher })));
    Ok(files)
}
