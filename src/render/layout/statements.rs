//! Splits lines with several statements.

use super::{
    COLUMNS, INDENT,
    breaks::break_lines,
    scan::{Brackets, literal},
    width,
};

/// Lays out a line's code. `inside`: it continues a statement of the previous line.
pub(super) fn lay_out(code: &str, indent: usize, inside: bool) -> Vec<String> {
    if indent + width(code) <= COLUMNS {
        return vec![" ".repeat(indent) + code];
    }
    let parts = if inside { Vec::new() } else { statements(code) };
    if parts.len() < 2 {
        return break_lines(code, indent, inside);
    }
    parts.into_iter().flat_map(|(levels, part)| lay_out(part, indent + levels * INDENT, false)).collect()
}

/// Splits a line into (additional levels of indentation, statement): at a `;`, at the braces of a block, or after a
/// condition.
fn statements(code: &str) -> Vec<(usize, &str)> {
    let marks = marks(code);
    for (place, &(at, mark)) in marks.iter().enumerate() {
        let (before, after) = (code[..=at].trim_end(), code[at + 1..].trim_start());
        match mark {
            Mark::End if !after.is_empty() => return vec![(0, before), (0, after)],
            Mark::Block => {
                let Some(&(close, _)) = marks[place + 1..].iter().find(|(_, mark)| *mark == Mark::BlockEnd) else { continue };
                let mut parts = vec![(0, before)];
                parts.extend(each(code[at + 1..close].trim()).into_iter().map(|part| (1, part)));
                let (end, rest) = after_block(code, close);
                parts.push((0, end));
                if !rest.is_empty() {
                    parts.push((0, rest));
                }
                return parts;
            }
            Mark::Condition if !after.is_empty() && !after.starts_with('{') => return vec![(0, before), (1, after)],
            _ => {}
        }
    }
    if let Some(rest) = code.strip_prefix("else ").filter(|rest| !rest.starts_with(['{', 'i'])) {
        return vec![(0, "else"), (1, rest)];
    }
    Vec::new()
}

/// The closing brace at `close` with the text that belongs to it, and the statement after it.
fn after_block(code: &str, close: usize) -> (&str, &str) {
    let rest = &code[close + 1..];
    if rest.starts_with([';', ',', ')', '(']) || rest.trim_start().starts_with("else") {
        return (&code[close..], "");
    }
    (&code[close..=close], rest.trim_start())
}

/// The statements of a block's body.
fn each(body: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = body;
    while let Some(&(at, _)) = marks(rest).iter().find(|(at, mark)| *mark == Mark::End && !rest[at + 1..].trim().is_empty()) {
        parts.push(rest[..=at].trim());
        rest = rest[at + 1..].trim();
    }
    parts.push(rest);
    parts
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    /// The `;` of a statement.
    End,
    /// The `{` of a block that ends on the line.
    Block,
    BlockEnd,
    /// The `)` of the condition that the line starts with.
    Condition,
}

/// Separators of statements outside all brackets: (position, kind).
fn marks(code: &str) -> Vec<(usize, Mark)> {
    let mut brackets = Brackets::default();
    let mut found = Vec::new();
    // Braces are a block if a `;` is directly inside them.
    let (mut brace, mut has_statement) = (0, false);
    let mut starts_with_condition = starts_with_condition(code);
    let mut at = 0;
    while at < code.len() {
        if let Some(length) = literal(code, at) {
            at += length;
            continue;
        }
        let depth = brackets.depth();
        if code[at..].starts_with(';') {
            if depth == 0 {
                found.push((at, Mark::End));
            }
            has_statement |= depth == 1 && code[brace..].starts_with('{');
        }
        match brackets.step(code, at) {
            Some((length, true)) => {
                if depth == 0 {
                    (brace, has_statement) = (at, false);
                }
                at += length;
            }
            Some((length, false)) => {
                if depth == 1 && has_statement {
                    found.extend([(brace, Mark::Block), (at, Mark::BlockEnd)]);
                    has_statement = false;
                }
                if depth == 1 && starts_with_condition {
                    found.push((at, Mark::Condition));
                    starts_with_condition = false;
                }
                at += length;
            }
            None => at += code[at..].chars().next().map_or(1, char::len_utf8),
        }
    }
    found
}

/// True if the line is `if (...)` or the like.
fn starts_with_condition(code: &str) -> bool {
    let code = code.strip_prefix("} ").unwrap_or(code);
    let code = code.strip_prefix("else ").unwrap_or(code);
    ["if (", "if constexpr (", "for (", "while ("].iter().any(|start| code.starts_with(start))
}
