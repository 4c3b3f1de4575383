//! A kernel in a file of the user's: edited by hand, or written by another program, with the ABI of one of kgen's.

use super::{CommandError, Context, Observer, SelectionRequest, names, session::Session};
use crate::{
    bench::Made,
    files::{self, content_hash},
    kernel::Variant,
    plan::Plan,
    text::count,
};
use itertools::Itertools;
use std::path::{Path, PathBuf};

/// The declaration of a launcher, up to its name.
const LAUNCHER: &str = "extern \"C\" int ";

/// A kernel's text, its file, and the variant whose launcher it defines.
pub(super) struct Edited {
    pub variant: Variant,
    pub text: String,
    pub file: PathBuf,
}

impl Edited {
    /// Reads a file. `selection` names the variant, or if it is empty the launcher in the text does.
    ///
    /// # Errors
    /// [`CommandError::Usage`] if the file cannot be read, or defines no launcher or several, or another one than that
    /// of the selection.
    pub fn read(
        path: &Path,
        selection: &SelectionRequest,
        session: &Session,
        context: &Context,
        observer: &dyn Observer,
    ) -> Result<Self, CommandError> {
        let usage = |what: String| CommandError::Usage(format!("`{}`: {what}", path.display()));
        let text = files::read_to_string(path).map_err(|error| usage(format!("cannot be read: {error}")))?;
        let launchers: Vec<&str> = launchers(&text).collect();
        if !selection.is_empty() {
            let [variant] = selection.resolve(context, &session.grid, observer)?[..] else {
                return Err(usage("it holds one kernel, and the selection is of several; name one variant, or none".to_owned()));
            };
            let name = variant.name();
            if launchers.contains(&name.as_str()) {
                return Ok(Self { variant, text, file: path.to_owned() });
            }
            return Err(usage(format!(
                "it defines no launcher `{name}`, which the selected variant has; it has {}: rename it to `{name}` in the \
                 file, or select the variant that the kernel replaces",
                listed(&launchers)
            )));
        }
        match launchers[..] {
            [name] => match names::resolve(&session.grid, &[name.to_owned()]) {
                Ok(variants) => Ok(Self { variant: variants[0], text, file: path.to_owned() }),
                Err(error) => Err(usage(format!(
                    "its launcher is `{name}`, and kgen expects the name of the variant that the kernel replaces, such as \
                     `flash_fwd_hdim128_bf16_sm90`; rename `{name}` in `{LAUNCHER}{name}(…)`, or if it is of a variant outside \
                     the grid, select that by flags such as `--head-dim`\n{error}"
                ))),
            },
            _ => Err(usage(format!(
                "it defines {}, and a kernel has one: `{LAUNCHER}NAME(…)` with the name of the variant that it replaces",
                count(launchers.len(), "launcher")
            ))),
        }
    }

    /// The text as it is compiled: compilers and the emulator then name the user's file, not the copy of it that is
    /// compiled.
    pub fn to_compile(&self) -> String {
        format!("#line 1 \"{}\"\n{}", quoted(&self.file.display().to_string()), self.text)
    }

    /// Identity of the kernel with the plan of its variant.
    pub fn made(&self, plan: &Plan) -> Made {
        Made { edited: Some(self.file.display().to_string()), ..Made::of(plan, content_hash(&self.text)) }
    }
}

/// A path as the content of a string literal of C. Control characters would end the line.
fn quoted(path: &str) -> String {
    path.replace(char::is_control, "?").replace('\\', "\\\\").replace('"', "\\\"")
}

/// Names of the launchers that a text defines. Functions that only prepare a call, such as `NAME_workspace`, return
/// another type.
fn launchers(text: &str) -> impl Iterator<Item = &str> {
    let name = |rest: &'_ str| rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    text.lines().filter_map(move |line| {
        let rest = line.trim_start().strip_prefix(LAUNCHER)?;
        Some(&rest[..name(rest)?])
    })
}

fn listed(launchers: &[&str]) -> String {
    if launchers.is_empty() { "none".to_owned() } else { launchers.iter().map(|name| format!("`{name}`")).join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launchers_are_found_by_their_declaration() {
        let text = "extern \"C\" size_t a_workspace(const p* given) {\n}\n  extern \"C\" int a(const p* given,\n    int b) {\n// extern \"C\" int c(\n";
        assert_eq!(launchers(text).collect::<Vec<_>>(), ["a"]);
        assert_eq!(launchers("").count(), 0);
    }

    #[test]
    fn a_path_is_quoted_as_a_literal_of_one_line() {
        assert_eq!(quoted("a \"b\"\\c\nd.cu"), "a \\\"b\\\"\\\\c?d.cu");
    }
}
