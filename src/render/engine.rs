//! Templates that Tera has parsed, and the form of what they render to.

use super::{RenderError, layout::layout};
use tera::{Context, Tera};

/// Parsed templates.
pub(super) struct Engine {
    tera: Tera,
    /// Formatter of rendered C++: [`layout`], except where nobody reads the text.
    pub lay_out: fn(&str) -> String,
}

impl Engine {
    /// Parses templates, given by their paths below `templates/` and texts.
    ///
    /// # Errors
    /// [`RenderError::Syntax`] with Tera's report when one does not parse.
    pub fn of<'a>(templates: impl Iterator<Item = (&'a str, &'a str)>) -> Result<Self, RenderError> {
        let mut tera = Tera::default();
        // The output is C++, so `&` and `<` must not be escaped.
        tera.autoescape_on(Vec::<&str>::new());
        tera.add_raw_templates(templates).map_err(|error| RenderError::Syntax { report: report(&error) })?;
        Ok(Self { tera, lay_out: layout })
    }

    /// True if this template exists.
    pub fn has(&self, template: &str) -> bool {
        self.tera.get_template_names().any(|name| name == template)
    }

    /// Renders the template at a path below `templates/`, removes the blank lines that Tera's blocks leave, and wraps
    /// long lines of C++.
    ///
    /// # Errors
    /// [`RenderError::Template`] when the template is missing or uses a variable that the context lacks.
    pub fn render(&self, template: &str, mut context: Context) -> Result<String, RenderError> {
        context.insert("kgen_version", env!("CARGO_PKG_VERSION"));
        let text = self
            .tera
            .render(template, &context)
            .map_err(|error| RenderError::Template { template: template.to_owned(), report: report(&error) })?;
        let text = tidy(&text);
        let is_cpp = [".cu.tera", ".cpp.tera", ".h.tera"].iter().any(|end| template.ends_with(end));
        Ok(if is_cpp { (self.lay_out)(&text) } else { text })
    }
}

/// Removes trailing white space and repeated blank lines; the text ends in one newline.
fn tidy(text: &str) -> String {
    let mut tidied = String::with_capacity(text.len() + 1);
    for line in text.trim_end().lines().map(str::trim_end) {
        if line.is_empty() && tidied.ends_with("\n\n") {
            continue;
        }
        tidied.push_str(line);
        tidied.push('\n');
    }
    tidied
}

/// Tera's report without its `error: ` prefix, because kgen embeds the report in its own message.
fn report(error: &tera::Error) -> String {
    let text = error.to_string();
    text.strip_prefix("error: ").unwrap_or(&text).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tidy_text_keeps_single_blank_lines_between_and_drops_them_at_the_end() {
        assert_eq!(tidy("a  \n\n\tb\t\n \n\n\nc\n\n\n"), "a\n\n\tb\n\nc\n");
    }
}
