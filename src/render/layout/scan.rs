//! Scans C++ for brackets, literals and spaces at which a line may be broken. The sources have a space on both sides of
//! each binary operator, which distinguishes it from a unary operator, a pointer and a template's bracket.

/// The code of a line and its trailing `//` comment.
pub(super) fn split_comment(line: &str) -> (&str, Option<&str>) {
    let mut at = 0;
    while at < line.len() {
        if line[at..].starts_with("//") {
            return (line[..at].trim_end(), Some(&line[at..]));
        }
        at += literal(line, at).unwrap_or_else(|| line[at..].chars().next().map_or(1, char::len_utf8));
    }
    (line, None)
}

/// The length of the string, character or block comment that starts at `at`.
pub(in crate::render) fn literal(text: &str, at: usize) -> Option<usize> {
    let rest = &text[at..];
    if rest.starts_with("/*") {
        return Some(rest.find("*/").map_or(rest.len(), |end| end + 2));
    }
    let quote = rest.chars().next().filter(|first| matches!(first, '"' | '\''))?;
    // `1'000` is a number.
    if quote == '\'' && text[..at].ends_with(|before: char| before.is_ascii_alphanumeric()) {
        return None;
    }
    let mut escaped = false;
    for (place, character) in rest.char_indices().skip(1) {
        if escaped {
            escaped = false;
        } else if character == '\\' {
            escaped = true;
        } else if character == quote {
            return Some(place + 1);
        }
    }
    Some(rest.len())
}

/// True if a line of code ends inside a statement.
pub(super) fn breaks_off(code: &str) -> bool {
    code.ends_with([',', '(', '[']) || code.rsplit(' ').next().is_some_and(joins)
}

/// True if a line of code starts with a token that continues a statement, or with an item of a list.
pub(super) fn follows_on(code: &str) -> bool {
    code.starts_with('{') || code.split(' ').next().is_some_and(joins)
}

/// The part of `next` that continues the statement left open by `code`; `None` if it starts another one or is not code.
pub(super) fn continuation<'a>(code: &str, next: &'a str) -> Option<&'a str> {
    let rest = next.trim();
    let is_code = split_comment(code).1.is_none()
        && split_comment(rest).1.is_none()
        && !rest.is_empty()
        && !rest.starts_with('#')
        && !rest.contains("/*")
        && !rest.ends_with('\\');
    let operator = |code: &str| code.rsplit(' ').next().is_some_and(joins);
    let is_continued = operator(code) || rest.split(' ').next().is_some_and(joins) || is_open(code);
    (is_code && is_continued && !code.ends_with(['{', ';'])).then_some(rest)
}

/// True if a bracket that opens in the code does not close in it.
fn is_open(code: &str) -> bool {
    let mut brackets = Brackets::default();
    let mut at = 0;
    while at < code.len() {
        at += match literal(code, at) {
            Some(length) => length,
            None => match brackets.step(code, at) {
                Some((length, _)) => length,
                None => code[at..].chars().next().map_or(1, char::len_utf8),
            },
        };
    }
    brackets.depth() > 0
}

/// True if a word is a binary operator.
fn joins(word: &str) -> bool {
    BINARY.iter().any(|(text, _)| *text == word) || ASSIGNMENTS.contains(&word) || matches!(word, "?" | ":")
}

/// Binary operators with their precedence.
const BINARY: &[(&str, u32)] = &[
    ("||", 4),
    ("&&", 5),
    ("|", 6),
    ("^", 6),
    ("&", 6),
    ("==", 8),
    ("!=", 8),
    ("<", 8),
    (">", 8),
    ("<=", 8),
    (">=", 8),
    ("<<", 9),
    (">>", 9),
    ("+", 10),
    ("-", 10),
    ("*", 12),
    ("/", 12),
    ("%", 12),
];
const ASSIGNMENTS: &[&str] = &["=", "+=", "-=", "*=", "/=", "%=", "|=", "&=", "^=", "<<=", ">>="];

/// Kind of a place at which a line may be broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Comma,
    /// After a binary operator of this precedence.
    Operator(u32),
    Assign,
    Return,
    /// Before `?`.
    Question,
    /// Before the `:` of a `?`.
    Colon,
    /// After an opening bracket without a space.
    Open,
    /// After `template <...>`.
    TemplateHead,
    /// Between string literals.
    Strings,
    /// Before the `:` of an `asm`.
    Operands,
    /// Any other space.
    Other,
}

/// A part of a line without a possible break inside.
#[derive(Debug)]
pub(super) struct Piece<'a> {
    pub(super) text: &'a str,
    /// The place between it and the previous piece.
    pub(super) kind: Kind,
    /// Number of brackets around its start.
    pub(super) depth: usize,
    /// Number of those that should not be broken: `[]` and a template's `<>`.
    pub(super) tight_depth: usize,
    /// Depth in a chain of `?:` operators: number of `:` before the piece at its bracket depth.
    pub(super) chain: usize,
    /// Brackets in the piece: (end offset in bytes, whether it opens).
    pub(super) brackets: Vec<(usize, bool)>,
}

impl Piece<'_> {
    /// An empty piece that starts inside these brackets.
    fn starting(kind: Kind, brackets: &Brackets) -> Self {
        let depth = brackets.depth();
        Self {
            text: "",
            kind,
            depth,
            tight_depth: brackets.open.iter().filter(|bracket| matches!(bracket, '<' | '[')).count(),
            chain: brackets.chained.iter().filter(|chained| **chained == depth).count(),
            brackets: Vec::new(),
        }
    }
}

/// The brackets that are open at a position.
#[derive(Default)]
pub(super) struct Brackets {
    open: Vec<char>,
    /// Bracket depth of each `?` without a `:` so far.
    questions: Vec<usize>,
    /// Bracket depth of each `?` with a `:`, in items that have not ended.
    chained: Vec<usize>,
}

impl Brackets {
    /// The bracket at `at`: (its length, whether it opens).
    pub(super) fn step(&mut self, text: &str, at: usize) -> Option<(usize, bool)> {
        let (before, rest) = (&text[..at], &text[at..]);
        let first = rest.chars().next()?;
        let opens = match first {
            '(' | '[' | '{' => Some((1, first)),
            '<' if rest.starts_with("<<<") => Some((3, 'k')),
            '<' if before.ends_with("template ")
                || before.ends_with(|c: char| c.is_alphanumeric() || c == '_')
                    && !rest.starts_with("<<")
                    && !rest.starts_with("<=") =>
            {
                Some((1, '<'))
            }
            _ => None,
        };
        if let Some((length, bracket)) = opens {
            self.open.push(bracket);
            return Some((length, true));
        }
        let closes = match (first, self.open.last()) {
            (')' | ']' | '}', _) => 1,
            ('>', Some('k')) if rest.starts_with(">>>") => 3,
            ('>', Some('<')) if !before.ends_with([' ', '-']) => 1,
            _ => return None,
        };
        self.open.pop();
        self.chained.retain(|depth| *depth <= self.open.len());
        Some((closes, false))
    }

    pub(super) fn depth(&self) -> usize {
        self.open.len()
    }
}

/// Splits a line's code into pieces. The code may close brackets that open on earlier lines.
pub(super) fn pieces(code: &str) -> Vec<Piece<'_>> {
    let outside = unopened(code);
    let mut brackets = Brackets { open: vec!['('; outside], ..Brackets::default() };
    let mut found = Vec::new();
    let (mut start, mut at) = (0, 0);
    let mut piece = Piece::starting(Kind::Other, &brackets);
    let is_template = code.starts_with("template <");
    while at < code.len() {
        if let Some(length) = literal(code, at) {
            at += length;
            continue;
        }
        let next = match brackets.step(code, at) {
            Some((length, opens)) => {
                at += length;
                piece.brackets.push((at - start, opens));
                let empty = code[at..].starts_with([')', ']', '}', '>', ' ']) || code[..at].ends_with(['[', '<']);
                (opens && !empty && at < code.len()).then_some((Kind::Open, at))
            }
            None if code[at..].starts_with(' ') => {
                at += 1;
                let head_ends = is_template
                    && brackets.depth() == outside
                    && code[..at].ends_with("> ")
                    && found.iter().all(|piece: &Piece| piece.kind != Kind::TemplateHead);
                let kind = if head_ends { Some(Kind::TemplateHead) } else { space(&code[..at - 1], &code[at..], &mut brackets) };
                kind.map(|kind| (kind, at - 1))
            }
            None => {
                at += code[at..].chars().next().map_or(1, char::len_utf8);
                None
            }
        };
        if let Some((kind, end)) = next {
            piece.text = &code[start..end];
            found.push(std::mem::replace(&mut piece, Piece::starting(kind, &brackets)));
            start = at;
        }
    }
    piece.text = &code[start..];
    found.push(piece);
    found
}

/// Number of brackets that close in the code but open before it.
pub(super) fn unopened(code: &str) -> usize {
    let mut brackets = Brackets::default();
    let (mut at, mut unopened) = (0, 0);
    while at < code.len() {
        if let Some(length) = literal(code, at) {
            at += length;
            continue;
        }
        let open = brackets.depth();
        match brackets.step(code, at) {
            Some((length, opens)) => {
                unopened += usize::from(!opens && open == 0);
                at += length;
            }
            None => at += code[at..].chars().next().map_or(1, char::len_utf8),
        }
    }
    unopened
}

/// Kind of the space between two texts; `None` if the line must not be broken there.
fn space(before: &str, after: &str, brackets: &mut Brackets) -> Option<Kind> {
    let last = before.rsplit(' ').next().unwrap_or(before);
    let next = after.split(' ').next().unwrap_or(after);
    let depth = brackets.depth();
    if before.ends_with([',', ';']) {
        brackets.questions.retain(|question| *question < depth);
        brackets.chained.retain(|question| *question < depth);
        return Some(Kind::Comma);
    }
    if next == "?" {
        brackets.questions.push(depth);
        return Some(Kind::Question);
    }
    if next == ":" && brackets.questions.last() == Some(&depth) {
        brackets.questions.pop();
        brackets.chained.push(depth);
        return Some(Kind::Colon);
    }
    if before.ends_with('"') && after.starts_with('"') {
        return Some(Kind::Strings);
    }
    if next.starts_with(':') && after.contains('"') {
        return Some(Kind::Operands);
    }
    if last == "return" {
        return Some(Kind::Return);
    }
    if ASSIGNMENTS.contains(&last) {
        return Some(Kind::Assign);
    }
    if let Some((_, firmness)) = BINARY.iter().find(|(text, _)| *text == last) {
        return Some(Kind::Operator(*firmness));
    }
    let is_plain = !joins(last) && !joins(next) && last != "template" && next != "template";
    (is_plain && !after.starts_with(['{', '}']) && !before.ends_with(['{', '}'])).then_some(Kind::Other)
}
