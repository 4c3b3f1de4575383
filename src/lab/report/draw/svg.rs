//! SVG as text, and what text may be in it.

use std::fmt::Write;

/// A picture: its drawing, and the words for those who do not see it.
#[derive(Debug, Clone)]
pub(in crate::lab::report) struct Picture {
    /// Identity in the page, of letters, digits and hyphens.
    pub id: String,
    /// What it shows, in a line.
    pub title: String,
    /// What it shows, in sentences.
    pub description: String,
    /// Width and height in user units.
    pub size: [f64; 2],
    /// The elements.
    pub body: String,
}

impl Picture {
    /// The element for a page that has the style.
    pub fn inline(&self) -> String {
        let [width, height] = self.size;
        format!("{}{}</svg>\n", self.head(&format!("0 0 {width:.0} {height:.0}"), ""), self.body)
    }

    /// A file of its own, with `style` and its title above it.
    pub fn alone(&self, style: &str) -> String {
        const TOP: f64 = 34.0;
        let [width, height] = self.size;
        let size = format!(" width=\"{width:.0}\" height=\"{:.0}\"", height + TOP);
        let head = self.head(&format!("0 -{TOP} {width:.0} {:.0}", height + TOP), &size);
        let paper = format!("<rect x=\"0\" y=\"-{TOP}\" width=\"100%\" height=\"100%\" style=\"fill:var(--paper)\"/>\n");
        let heading = format!("<text class=\"heading\" x=\"8\" y=\"-12\">{}</text>\n", escaped(&self.title));
        format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{head}<style>{style}</style>\n{paper}{heading}{}</svg>\n", self.body)
    }

    fn head(&self, view: &str, more: &str) -> String {
        let (id, title, description) = (&self.id, escaped(&self.title), escaped(&self.description));
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"picture\" viewBox=\"{view}\"{more} role=\"img\" \
             aria-labelledby=\"{id}-t {id}-d\"><title id=\"{id}-t\">{title}</title><desc id=\"{id}-d\">{description}</desc>\n"
        )
    }
}

/// `text` without characters that XML forbids or that turn the direction of the text around them.
pub(in crate::lab::report) fn plain(text: &str) -> String {
    let is_odd =
        |c: char| c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{fffe}' | '\u{ffff}');
    text.chars()
        .map(|c| {
            if c == '\n' || c == '\t' {
                ' '
            } else if is_odd(c) {
                char::REPLACEMENT_CHARACTER
            } else {
                c
            }
        })
        .collect()
}

/// `text` as the content of an element or an attribute.
pub(in crate::lab::report) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in plain(text).chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            c => safe.push(c),
        }
    }
    safe
}

/// Where a text is anchored.
#[derive(Debug, Clone, Copy)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// Adds a text.
pub(super) fn text(body: &mut String, at: [f64; 2], anchor: Anchor, class: &str, words: &str) {
    let anchor = match anchor {
        Anchor::Start => "",
        Anchor::Middle => " text-anchor=\"middle\"",
        Anchor::End => " text-anchor=\"end\"",
    };
    let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
    // Writing into a string cannot fail.
    writeln!(body, "<text x=\"{:.1}\" y=\"{:.1}\"{anchor}{class}>{}</text>", at[0], at[1], escaped(words)).ok();
}

/// Adds a straight line.
pub(super) fn line(body: &mut String, from: [f64; 2], to: [f64; 2], class: &str) {
    let [x1, y1, x2, y2] = [from[0], from[1], to[0], to[1]];
    writeln!(body, "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>").ok();
}

/// Adds an open path through points.
pub(super) fn path(body: &mut String, points: impl Iterator<Item = [f64; 2]>, class: &str) {
    let points: Vec<String> = points.map(|[x, y]| format!("{x:.1},{y:.1}")).collect();
    writeln!(body, "<polyline class=\"{class}\" points=\"{}\"/>", points.join(" ")).ok();
}

/// Width of a text in the pictures' font, near enough to lay out a legend.
pub(super) fn width(words: &str) -> f64 {
    7.0 * words.chars().count() as f64
}

/// `words` cut to at most `most` characters.
pub(super) fn cut(words: &str, most: usize) -> String {
    if words.chars().count() <= most {
        return words.to_owned();
    }
    words.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_becomes_markup_or_forbidden_characters() {
        assert_eq!(escaped("<b a=\"'\">&\u{0}\u{1b}\n\u{202e}ü"), "&lt;b a=&quot;&#39;&quot;&gt;&amp;\u{fffd}\u{fffd} \u{fffd}ü");
        assert_eq!((cut("abcdef", 4), cut("abcd", 4)), ("abc…".to_owned(), "abcd".to_owned()));
    }

    #[test]
    fn a_picture_is_named_and_described() {
        let picture = Picture {
            id: "p".to_owned(),
            title: "T <1>".to_owned(),
            description: "D".to_owned(),
            size: [10.0, 20.0],
            body: "<g/>".to_owned(),
        };
        let inline = picture.inline();
        assert!(inline.contains("<title id=\"p-t\">T &lt;1&gt;</title><desc id=\"p-d\">D</desc>"), "{inline}");
        assert!(inline.contains("viewBox=\"0 0 10 20\"") && !inline.contains("<style>"));
        let alone = picture.alone(".x{}");
        assert!(alone.contains("<style>.x{}</style>") && alone.contains("viewBox=\"0 -34 10 54\""), "{alone}");
    }
}
