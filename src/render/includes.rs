//! Computes a kernel's `#include`s from the names that it uses.

use super::{Templates, layout};
use std::collections::{BTreeMap, BTreeSet};

/// Placeholder line for the `#include`s in a kernel's template.
const MARK: &str = "/* @includes */";

/// The C interface. Every kernel includes it first, because it declares the launcher's parameters.
const INTERFACE: &str = "kgen.h";

/// Keywords that can precede a name without declaring it.
const NOT_TYPES: &[&str] = &[
    "case",
    "class",
    "const",
    "constexpr",
    "delete",
    "else",
    "extern",
    "inline",
    "new",
    "return",
    "sizeof",
    "static",
    "throw",
    "typename",
];

/// Names declared by the device headers, each with the headers that declare it.
pub(super) struct Vocabulary {
    headers_of: BTreeMap<String, BTreeSet<String>>,
}

impl Vocabulary {
    /// Vocabulary of the headers below `include/kgen/`: names at namespace scope and macros.
    pub(super) fn new(templates: &Templates) -> Self {
        let mut headers_of = BTreeMap::<String, BTreeSet<String>>::new();
        for (path, text) in templates.include_files().filter(|(path, _)| *path != INTERFACE) {
            for name in declared_names(text) {
                headers_of.entry(name).or_default().insert(path.to_owned());
            }
        }
        Self { headers_of }
    }

    /// The headers that declare a name used in the text, sorted. If several headers overload a name, all of them are
    /// included, since only the compiler can resolve the overload. Names that the text declares itself are skipped.
    pub(super) fn headers_used_by(&self, text: &str) -> BTreeSet<&str> {
        let code = code_of(text);
        let tokens = tokens(&code);
        let at = |i: usize| tokens.get(i).copied().unwrap_or_default();
        let (mut used, mut own) = (BTreeSet::new(), BTreeSet::new());
        for (i, token) in tokens.iter().enumerate().filter(|(_, token)| self.headers_of.contains_key(**token)) {
            let before = if i == 0 { "" } else { at(i - 1) };
            let is_member =
                before == "." || (i > 1 && before == ">" && at(i - 2) == "-") || (before == "::" && at(i.max(2) - 2) != "kgen");
            let follows_type = is_name(before) && !NOT_TYPES.contains(&before) && !before.starts_with("KGEN_");
            let is_type = is_name(at(i + 1)) || ["<", "&", "*", "::"].contains(&at(i + 1));
            let follows_another = before == "," && ["=", ";"].contains(&at(i + 1));
            if (follows_type && !is_type) || follows_another {
                own.insert(*token);
            } else if !is_member {
                used.insert(*token);
            }
        }
        used.difference(&own).flat_map(|name| &self.headers_of[*name]).map(String::as_str).collect()
    }

    /// Replaces the placeholder with the `#include`s. A text without the placeholder is returned unchanged.
    pub(super) fn include_into(&self, text: &str) -> String {
        if !text.contains(MARK) {
            return text.to_owned();
        }
        let headers = std::iter::once(INTERFACE).chain(self.headers_used_by(text));
        let lines: Vec<String> = headers.map(|header| format!("#include \"{header}\"")).collect();
        text.replacen(MARK, &lines.join("\n"), 1)
    }
}

/// Names declared at namespace scope of a header, and macros that it does not undefine.
fn declared_names(text: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let code = code_of(text).replace("\\\n", " ");
    let mut lines = Vec::new();
    for line in code.lines() {
        let Some(directive) = line.trim_start().strip_prefix('#') else {
            lines.push(line);
            continue;
        };
        let mut words = directive.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty());
        match (words.next(), words.next()) {
            (Some("define"), Some(name)) => drop(names.insert(name.to_owned())),
            (Some("undef"), Some(name)) => drop(names.remove(name)),
            _ => {}
        }
    }
    let code = lines.join("\n");
    let tokens = tokens(&code);
    let mut at = 0;
    while at < tokens.len() {
        at = declaration(&tokens, at, &mut names);
    }
    names
}

/// Reads the declaration that starts at a token, or a brace of a namespace. Returns the index of the next declaration.
fn declaration(tokens: &[&str], mut at: usize, names: &mut BTreeSet<String>) -> usize {
    let token = |at: usize| tokens.get(at).copied().unwrap_or_default();
    match token(at) {
        "namespace" => {
            while !["{", ""].contains(&token(at)) {
                at += 1;
            }
            return at + 1;
        }
        "}" | ";" => return at + 1,
        // A macro that defines functions; its first argument is the function name.
        name if name.starts_with("KGEN_DEFINE_") => {
            names.insert(token(at + 2).to_owned());
            return skipped(tokens, at + 1);
        }
        _ => {}
    }
    while token(at) == "template" {
        at = skipped(tokens, at + 1);
    }
    let kind = token(at);
    let mut name = "";
    // The declared name is the last name before the token that ends the declarator.
    while !["(", "=", "{", ";", "[", ":", ""].contains(&token(at)) {
        at = match token(at) {
            "alignas" | "__align__" => skipped(tokens, at + 1),
            "<" => {
                name = ""; // a specialisation, or a type with template arguments
                skipped(tokens, at)
            }
            word => {
                name = if is_name(word) { word } else { "" };
                at + 1
            }
        };
    }
    let is_directive = kind == "using" && token(at) == ";";
    if !(is_directive || ["", "static_assert", "operator"].contains(&name)) {
        names.insert(name.to_owned());
    }
    // Skip to the semicolon, or past the function body.
    let is_function = token(at) == "(";
    while at < tokens.len() {
        match token(at) {
            ";" => return at + 1,
            "{" if is_function => return skipped(tokens, at),
            "{" | "(" | "[" => at = skipped(tokens, at),
            _ => at += 1,
        }
    }
    at
}

/// Index after the bracket that closes the bracket at a token.
fn skipped(tokens: &[&str], at: usize) -> usize {
    let (mut depth, mut parentheses) = (0_usize, 0_usize);
    let opening = tokens.get(at).copied().unwrap_or_default();
    let closing = match opening {
        "<" => ">",
        "(" => ")",
        "[" => "]",
        _ => "}",
    };
    for (place, token) in tokens.iter().enumerate().skip(at) {
        match *token {
            "(" if opening == "<" => parentheses += 1,
            ")" if opening == "<" => parentheses -= 1,
            token if token == opening && parentheses == 0 => depth += 1,
            token if token == closing && parentheses == 0 => {
                depth -= 1;
                if depth == 0 {
                    return place + 1;
                }
            }
            _ => {}
        }
    }
    tokens.len()
}

/// The text without comments and with empty literals.
fn code_of(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        if rest.starts_with("//") {
            at += rest.find('\n').unwrap_or(rest.len());
        } else if let Some(length) = layout::literal(text, at) {
            code.push_str(if rest.starts_with("/*") { " " } else { "\"\"" });
            at += length;
        } else {
            let next = rest.chars().next().unwrap_or(' ');
            code.push(next);
            at += next.len_utf8();
        }
    }
    code
}

/// Tokens of the text: names, numbers, `::`, and each other character on its own.
fn tokens(code: &str) -> Vec<&str> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = Vec::new();
    let mut rest = code.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = if is_word(first) {
            rest.find(|c| !is_word(c)).unwrap_or(rest.len())
        } else if rest.starts_with("::") {
            2
        } else {
            first.len_utf8()
        };
        let (token, after) = rest.split_at(length);
        found.push(token);
        rest = after.trim_start();
    }
    found
}

fn is_name(token: &str) -> bool {
    token.starts_with(|first: char| first.is_alphabetic() || first == '_')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{grid::Grid, plan::Plan, render::Renderer};
    use itertools::Itertools;

    fn names(text: &str) -> Vec<String> {
        declared_names(text).into_iter().collect()
    }

    #[test]
    fn names_at_namespace_scope_and_macros_are_declared() {
        let header = "#pragma once\n#include \"kgen/a.cuh\"\n#define MACRO(x) (x)\n#define GONE\n#undef GONE\nnamespace kgen {\n\
             // void comment();\n\
             using same = float;\nstruct alignas(16) shape {\n    int member;\n    int of() { return 0; }\n};\n\
             enum class kind : int { one, two };\ninline constexpr int COUNT = 3, *NOT = nullptr;\n\
             template <int N, class T = shape>\nKGEN_DEVICE int apply(const T& t, int x = N) { return other(t, x); }\n\
             template <>\nKGEN_DEVICE int apply<1>(int);\nint later(int);\nusing namespace std;\n}\n";
        assert_eq!(names(header), ["COUNT", "MACRO", "apply", "kind", "later", "same", "shape"]);
        let macros =
            "#define KGEN_DEFINE_X(name, type) type name();\nKGEN_DEFINE_X(first, int)\n#undef KGEN_DEFINE_X\nint second();\n";
        assert_eq!(names(macros), ["first", "second"]);
    }

    #[test]
    fn names_that_a_kernel_uses_choose_the_headers() {
        let headers_of =
            [("copy", "kgen/copy.cuh"), ("tile", "kgen/tile.cuh"), ("span", "kgen/span.cuh"), ("clear", "kgen/clear.cuh")];
        let headers_of = headers_of.map(|(name, header)| (name.to_owned(), BTreeSet::from([header.to_owned()])));
        let vocabulary = Vocabulary { headers_of: headers_of.into() };
        let used = |text| vocabulary.headers_used_by(text).into_iter().collect::<Vec<_>>();
        assert_eq!(used("KGEN_DEVICE tile f(const tile& t) { return copy(t); }"), ["kgen/copy.cuh", "kgen/tile.cuh"]);
        assert_eq!(used("// copy(x)\nint x = y.span + z->tile; f(\"clear\");"), Vec::<&str>::new());
        assert_eq!(used("KGEN_UNROLL\nfor (;;) clear(x); kgen::span(y); other::tile z;"), ["kgen/clear.cuh", "kgen/span.cuh"]);
        // Names declared in the text: a function, a variable, the second declarator, a lambda.
        assert_eq!(
            used("void clear(int) {}\nfloat span = 0, tile;\nconst auto copy = [] {}; copy(); clear(span);"),
            Vec::<&str>::new()
        );
        assert_eq!(
            vocabulary.include_into("a;\n/* @includes */\ncopy();\n"),
            "a;\n#include \"kgen.h\"\n#include \"kgen/copy.cuh\"\ncopy();\n"
        );
        assert_eq!(vocabulary.include_into("copy();\n"), "copy();\n");
    }

    #[test]
    fn kernels_of_the_grid_include_what_declares_the_names_that_they_use_and_nothing_else() {
        let templates = Templates::embedded();
        let (vocabulary, renderer) = (Vocabulary::new(&templates), Renderer::new(&templates).expect("templates parse"));
        let grid = Grid::builtin();
        for variant in grid.variants() {
            let plan = Plan::new(*variant, grid.tile_override(variant).as_ref()).expect("fits");
            let text = renderer.kernel(&plan).expect("renders").text;
            let included = text.lines().filter_map(|line| line.strip_prefix("#include \"")?.strip_suffix('"'));
            assert!(included.eq(std::iter::once(INTERFACE).chain(vocabulary.headers_used_by(&text))), "{}", variant.name());
        }
    }

    /// Otherwise a call of an overloaded name would include unrelated headers.
    #[test]
    fn few_names_are_declared_by_several_headers() {
        let vocabulary = Vocabulary::new(&Templates::embedded());
        assert!(vocabulary.headers_of.len() > 300, "{}", vocabulary.headers_of.len());
        let several = vocabulary.headers_of.iter().filter(|(_, headers)| headers.len() > 1).map(|(name, _)| name).join(" ");
        assert_eq!(several, "KGEN_HOST_DEVICE copy_piece load_global store_global store_shared tma_takes");
    }
}
