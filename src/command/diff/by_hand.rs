//! How a kernel that a person edited differs from the one that kgen renders for its variant.

use super::{CONTEXT, Difference, Outcome, Request, differences, lines};
use crate::{
    bench::Made,
    command::{CommandError, Context, Observer, SelectionRequest, build, edited::Edited, session::Session, single::Compiler},
    plan::Plan,
};
use serde_json::{Map, Value, json};
use similar::TextDiff;
use std::path::Path;

/// Folder of compiled kernels, below that of builds.
const FOLDER: &str = "edited";

/// Compares the file with the kernel of its variant.
///
/// # Errors
/// [`CommandError::Usage`] if the file holds no kernel of kgen's, or another than is named.
pub(super) fn run(
    request: &Request,
    file: &Path,
    session: &Session,
    context: &Context,
    observer: &dyn Observer,
) -> Result<Outcome, CommandError> {
    let selection = SelectionRequest { names: request.old.iter().cloned().collect(), ..SelectionRequest::default() };
    let edited = Edited::read(file, &selection, session, context, observer)?;
    let plan = session.plan(edited.variant).map_err(CommandError::Usage)?;
    let (name, file) = (plan.variant.name(), file.display().to_string());
    let rendered = rendered(&edited, &plan, session)?;
    let diff = TextDiff::from_lines(&rendered, &edited.text);
    let compiled =
        if rendered == edited.text { Ok(Vec::new()) } else { compiled(request, &edited, &plan, session, context, observer) };
    let (compiled, uncompared) = match compiled {
        Ok(differences) => (Some(differences), None),
        Err(CommandError::Interrupted(why)) => return Err(CommandError::Interrupted(why)),
        Err(error) => (None, Some(error.to_string())),
    };
    Ok(Outcome {
        plan: differences(&constants(&rendered), &constants(&edited.text)),
        lines: lines(&diff),
        source: diff.unified_diff().context_radius(CONTEXT).header(&name, &file).to_string(),
        compiled,
        uncompared,
        old: name,
        new: file,
    })
}

/// The kernel that kgen renders, as a file of its own or as one of a folder: they differ in a comment, and the file
/// was one of them.
fn rendered(edited: &Edited, plan: &Plan, session: &Session) -> Result<String, CommandError> {
    let name = edited.file.file_name().unwrap_or_default().to_string_lossy();
    let alone = session.renderer.kernel_in_file(plan, &name)?.text;
    let of_folder = session.renderer.kernel(plan)?.text;
    let differing = |text: &String| lines(&TextDiff::from_lines(text, &edited.text)).iter().sum::<usize>();
    Ok(if differing(&of_folder) < differing(&alone) { of_folder } else { alone })
}

/// The numbers of the plan that a kernel states: its constants, by name.
fn constants(text: &str) -> Map<String, Value> {
    let constant = |line: &str| {
        let (declared, value) = line.strip_prefix("constexpr ")?.split_once(" = ")?;
        let name = declared.rsplit(' ').next()?;
        Some((name.to_owned(), json!(value.split_once(';')?.0)))
    };
    text.lines().filter_map(constant).collect()
}

/// What differs between the two compiled kernels.
///
/// # Errors
/// [`CommandError`] if there is no compiler, or it refuses one of the kernels.
fn compiled(
    request: &Request,
    edited: &Edited,
    plan: &Plan,
    session: &Session,
    context: &Context,
    observer: &dyn Observer,
) -> Result<Vec<Difference>, CommandError> {
    // A comparison downloads no compiler.
    let tools = build::Request { nvcc: request.nvcc.clone(), offline: true, ..build::Request::default() };
    let tools = tools.tools(context, observer)?;
    let folder = request.build_dir.join(FOLDER);
    let compiler = Compiler { tools: &tools, session, context, folder: &folder, offline: true };
    let rendered = Made::of(plan, session.renderer.kernel(plan)?.hash);
    let facts = |made: Made, edited: Option<&Edited>| {
        let made = compiler.build(plan, made, edited)?.map_err(|failure| CommandError::Failed(failure.message))?;
        Ok::<_, CommandError>(crate::lab::flat(&made.built))
    };
    Ok(differences(&facts(rendered, None)?, &facts(edited.made(plan), Some(edited))?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_are_read_with_their_values_and_comments_are_not() {
        let text = "constexpr int BLOCK_M = 128;  // queries\n  constexpr int inner = 1;\n// constexpr int X = 2;\nconstexpr float A = B / 2;\n";
        let expected = json!({ "BLOCK_M": "128", "A": "B / 2" });
        assert_eq!(Value::Object(constants(text)), expected);
    }
}
