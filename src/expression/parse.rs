//! The grammar of expressions.
//!
//! ```text
//! either     := both ("or" both)*
//! both       := negation ("and" negation)*
//! negation   := "not" negation | comparison
//! comparison := sum [("<" | "<=" | ">" | ">=" | "==" | "!=") sum]
//! sum        := product (("+" | "-") product)*
//! product    := factor (("*" | "/" | "//" | "%") factor)*
//! factor     := "-" factor | number | name | name "[" either "]" | name "(" either ("," either)* ")" | "(" either ")"
//! ```
//!
//! The first token of every rule determines it, so a rule that has begun never backtracks: its error is the one shown.

use super::{
    syntax::{Node, Operator, Syntax},
    tree::{Number, Relation},
};
use crate::text::Finding;
use std::ops::Range;
use winnow::{
    LocatingSlice, ModalResult, Parser,
    ascii::{digit0, digit1, multispace0},
    combinator::{not, opt, peek, preceded, terminated},
    error::{ErrMode, ParserError},
    stream::Location,
    token::{one_of, take_while},
};

/// Nesting limit of brackets and signs; far beyond normal use, and safe for the stack.
const MAX_DEPTH: u32 = 64;

/// Longest text (bytes).
const MAX_LENGTH: usize = 1000;

/// Maximum number of operations, names and numbers. A derivative may have the square of it.
const MAX_PARTS: usize = 200;

const EXAMPLE: &str = "an expression looks like `s - decay * abs(q - k)`";

type Input<'i> = LocatingSlice<&'i str>;

/// Parses a whole text.
pub(super) fn parse(text: &str) -> Result<Syntax, Finding> {
    if text.len() > MAX_LENGTH {
        let title = format!("the expression is longer than {MAX_LENGTH} bytes");
        let last = (0..=MAX_LENGTH).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        return Err(Finding::new(title, last..last, "too long from here on", "write it shorter"));
    }
    let mut input = Input::new(text);
    let whole = |i: &mut Input<'_>| {
        let root = either(i, MAX_DEPTH)?;
        multispace0.parse_next(i)?;
        if i.is_empty() { Ok(root) } else { Err(trailing_text(i, text)) }
    };
    let root = whole(&mut input).map_err(|error| match error {
        ErrMode::Backtrack(Reject(finding)) | ErrMode::Cut(Reject(finding)) => finding,
        // Only partial input is ever incomplete, and this input is complete.
        ErrMode::Incomplete(_) => Finding::new("the expression ends too early", text.len()..text.len(), "here", EXAMPLE),
    })?;
    let parts = root.parts();
    if parts > MAX_PARTS {
        let label = format!("{parts} operations, names and numbers");
        return Err(Finding::new("the expression is too large", root.span, label, format!("use at most {MAX_PARTS}")));
    }
    Ok(root)
}

/// The parser's error: the finding to show.
#[derive(Debug)]
struct Reject(Finding);

impl ParserError<Input<'_>> for Reject {
    type Inner = Self;

    fn from_input(input: &Input<'_>) -> Self {
        let at = input.current_token_start();
        Self(Finding::new("the expression cannot be read", at..at, "not expected here", EXAMPLE))
    }

    fn into_inner(self) -> Result<Self, Self> {
        Ok(self)
    }
}

fn reject(title: impl Into<String>, at: Range<usize>, label: impl Into<String>, help: impl Into<String>) -> ErrMode<Reject> {
    ErrMode::Cut(Reject(Finding::new(title, at, label, help)))
}

/// The error for text after a complete expression: often a spelling from another language.
fn trailing_text(i: &Input<'_>, text: &str) -> ErrMode<Reject> {
    let at = token(i);
    let (label, help) = match &text[at.clone()] {
        ")" | "]" => ("nothing to close here", "remove it, or open the bracket"),
        "," => ("no list here", "values are listed only in a function, as in `min(a, b)`"),
        "=" => ("not an operator", "write `==` for equality"),
        "&&" | "&" => ("not an operator", "write `and`"),
        "||" | "|" => ("not an operator", "write `or`"),
        "**" | "^" => ("not an operator", "write `x * x` for a square"),
        "?" => ("not an operator", "write `select(condition, a, b)`"),
        "mod" => ("not an operator", "write `%`"),
        "[" => ("only a table has an index", "declare a table and write `slope[h]`"),
        "(" => ("an operator is missing", "write `*` to multiply"),
        _ => ("expected an operator", "join values with an operator such as `*`, `<` or `and`"),
    };
    reject("the expression goes on after its end", at, label, help)
}

fn either(i: &mut Input<'_>, depth: u32) -> ModalResult<Syntax, Reject> {
    chain(i, depth, both, &[("or", Operator::Or)])
}

fn both(i: &mut Input<'_>, depth: u32) -> ModalResult<Syntax, Reject> {
    chain(i, depth, negation, &[("and", Operator::And)])
}

fn sum(i: &mut Input<'_>, depth: u32) -> ModalResult<Syntax, Reject> {
    chain(i, depth, product, &[("+", Operator::Add), ("-", Operator::Subtract)])
}

fn product(i: &mut Input<'_>, depth: u32) -> ModalResult<Syntax, Reject> {
    let operators = [("//", Operator::FloorDivide), ("/", Operator::Divide), ("*", Operator::Multiply), ("%", Operator::Modulo)];
    chain(i, depth, factor, &operators)
}

/// Operands joined by operators of one precedence, grouped from the left.
fn chain(
    i: &mut Input<'_>,
    depth: u32,
    part: fn(&mut Input<'_>, u32) -> ModalResult<Syntax, Reject>,
    operators: &[(&'static str, Operator)],
) -> ModalResult<Syntax, Reject> {
    let mut left = part(i, depth)?;
    while let Some((operator, at)) = one_of_these(i, operators)? {
        let right = part(i, depth)?;
        let span = left.span.start..right.span.end;
        left = Syntax { node: Node::Binary(operator, at, Box::new(left), Box::new(right)), span };
    }
    Ok(left)
}

/// The next operator and its position.
fn one_of_these(
    i: &mut Input<'_>,
    operators: &[(&'static str, Operator)],
) -> ModalResult<Option<(Operator, Range<usize>)>, Reject> {
    multispace0.parse_next(i)?;
    for (symbol, operator) in operators {
        let found = if symbol.starts_with(|c: char| c.is_ascii_alphabetic()) {
            opt(keyword(symbol).span()).parse_next(i)?
        } else {
            opt(punctuation(symbol).span()).parse_next(i)?
        };
        if let Some(at) = found {
            return Ok(Some((*operator, at)));
        }
    }
    Ok(None)
}

fn deeper(i: &Input<'_>, depth: u32) -> ModalResult<u32, Reject> {
    depth.checked_sub(1).ok_or_else(|| {
        reject("the expression is nested too deeply", token(i), format!("more than {MAX_DEPTH} levels"), "write it flatter")
    })
}

fn negation(i: &mut Input<'_>, depth: u32) -> ModalResult<Syntax, Reject> {
    multispace0.parse_next(i)?;
    let start = i.current_token_start();
    if opt(keyword("not")).parse_next(i)?.is_none() {
        return comparison(i, depth);
    }
    let inner = negation(i, deeper(i, depth)?)?;
    let span = start..inner.span.end;
    Ok(Syntax { node: Node::Not(Box::new(inner)), span })
}

fn comparison(i: &mut Input<'_>, depth: u32) -> ModalResult<Syntax, Reject> {
    let relations = [Relation::AtMost, Relation::AtLeast, Relation::Less, Relation::Greater, Relation::Equal, Relation::Unequal];
    let operators = relations.map(|relation| (relation.symbol(), Operator::Compare(relation)));
    let left = sum(i, depth)?;
    let Some((operator, at)) = one_of_these(i, &operators)? else { return Ok(left) };
    let right = sum(i, depth)?;
    if let Some((_, second)) = one_of_these(i, &operators)? {
        let help = "write `a < b and b < c`";
        return Err(reject("comparisons cannot be chained", second, "a second comparison", help));
    }
    let span = left.span.start..right.span.end;
    Ok(Syntax { node: Node::Binary(operator, at, Box::new(left), Box::new(right)), span })
}

fn factor(i: &mut Input<'_>, depth: u32) -> ModalResult<Syntax, Reject> {
    multispace0.parse_next(i)?;
    let start = i.current_token_start();
    if opt('-').parse_next(i)?.is_some() {
        let inner = factor(i, deeper(i, depth)?)?;
        let span = start..inner.span.end;
        return Ok(Syntax { node: Node::Negate(Box::new(inner)), span });
    }
    if opt('(').parse_next(i)?.is_some() {
        let inner = either(i, deeper(i, depth)?)?;
        close(i, ")", start)?;
        return Ok(Syntax { node: inner.node, span: start..i.previous_token_end() });
    }
    if let Some((text, at)) = opt(number_text.with_span()).parse_next(i)? {
        let node = number(i, text, &at)?;
        return Ok(Syntax { node, span: at });
    }
    match opt(name.with_span()).parse_next(i)? {
        Some((name, at)) => named(i, name, at, depth),
        None => Err(value_missing(i)),
    }
}

fn value_missing(i: &Input<'_>) -> ErrMode<Reject> {
    let rest: &str = i.as_ref();
    let at = token(i);
    let help = match rest.chars().next() {
        Some('!') => "write `not`",
        Some('+') => "a sign `+` is not needed; remove it",
        Some('\'' | '"') => "the language has no texts; remove the quotes",
        _ => EXAMPLE,
    };
    reject("a value is missing", at, "expected a number, a name or `(`", help)
}

/// A function call, an element of a table, or a plain name.
fn named(i: &mut Input<'_>, name: &str, at: Range<usize>, depth: u32) -> ModalResult<Syntax, Reject> {
    if matches!(name, "and" | "or" | "not") {
        let help = if name == "not" { "put brackets around it: `(not …)`" } else { EXAMPLE };
        return Err(reject(format!("a value is missing before `{name}`"), at, "expected a number, a name or `(`", help));
    }
    multispace0.parse_next(i)?;
    let start = i.current_token_start();
    let name = name.to_owned();
    if opt('[').parse_next(i)?.is_some() {
        let index = either(i, deeper(i, depth)?)?;
        close(i, "]", start)?;
        let span = at.start..i.previous_token_end();
        return Ok(Syntax { node: Node::Index(name, at, Box::new(index)), span });
    }
    if opt('(').parse_next(i)?.is_none() {
        return Ok(Syntax { node: Node::Name(name), span: at });
    }
    let inner = deeper(i, depth)?;
    let mut values = Vec::new();
    if opt(peek(preceded(multispace0, ')'))).parse_next(i)?.is_none() {
        values.push(either(i, inner)?);
        while opt(punctuation(",")).parse_next(i)?.is_some() {
            values.push(either(i, inner)?);
        }
    }
    close(i, ")", start)?;
    let span = at.start..i.previous_token_end();
    Ok(Syntax { node: Node::Call(name, at, values), span })
}

/// The bracket that closes the one at `opened`.
fn close(i: &mut Input<'_>, bracket: &'static str, opened: usize) -> ModalResult<(), Reject> {
    if opt(punctuation(bracket)).parse_next(i)?.is_some() {
        return Ok(());
    }
    multispace0.parse_next(i)?;
    let help = format!("close the bracket with `{bracket}`, or put an operator between the values");
    let finding = Finding::new(format!("`{bracket}` is missing"), token(i), format!("expected an operator or `{bracket}`"), help);
    Err(ErrMode::Cut(Reject(finding.with_context(opened..opened + 1, "opened here"))))
}

/// The characters of a number.
fn number_text<'i>(i: &mut Input<'i>) -> ModalResult<&'i str, Reject> {
    let exponent = (one_of(['e', 'E']), opt(one_of(['+', '-'])), digit1);
    let begins = peek((opt('.'), digit1));
    (begins, digit0, opt(('.', digit0)), opt(exponent)).take().parse_next(i)
}

fn number(i: &Input<'_>, text: &str, at: &Range<usize>) -> ModalResult<Node, Reject> {
    let rest: &str = i.as_ref();
    if rest.starts_with(|c: char| is_of_name(c) || c == '.') {
        let end = rest.find(|c: char| !is_of_name(c) && c != '.').unwrap_or(rest.len());
        let help = format!("write `{text}` alone, or `{text} * …` to multiply");
        return Err(reject(format!("`{text}{}` is no number", &rest[..end]), at.start..at.end + end, "not a number", help));
    }
    if text.bytes().all(|b| b.is_ascii_digit()) {
        let largest = i64::from(i32::MAX);
        let value = text.parse().ok().filter(|value| *value <= largest);
        let help = format!("integers go up to {largest}; write `{text}.0` for a real number");
        return value.map(Node::Integer).ok_or_else(|| reject(format!("`{text}` is too large"), at.clone(), "too large", help));
    }
    let value = text.parse::<f64>().ok().filter(|value| Number::new(*value).is_some());
    let help = "fp32 holds magnitudes from 1.2e-38 to 3.4e38, and 0";
    value.map(Node::Real).ok_or_else(|| reject(format!("`{text}` does not fit fp32"), at.clone(), "too large or too small", help))
}

fn name<'i>(i: &mut Input<'i>) -> ModalResult<&'i str, Reject> {
    take_while(1.., is_of_name).parse_next(i)
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// A word of the language.
fn keyword<'i>(expected: &'static str) -> impl Parser<Input<'i>, (), ErrMode<Reject>> {
    name.verify(move |found: &str| found == expected).void()
}

/// A sign that is not the start of a longer one with another meaning: `*` is not half of `**`.
fn punctuation<'i>(expected: &'static str) -> impl Parser<Input<'i>, (), ErrMode<Reject>> {
    let longer = not(one_of(move |c: char| matches!((expected, c), ("*", '*') | ("/", '/') | ("<" | ">", '='))));
    terminated(preceded(multispace0, expected), longer).void()
}

/// Position of the next word or run of punctuation; empty at the end of the text. Expects no white space before it.
fn token(i: &Input<'_>) -> Range<usize> {
    let start = i.current_token_start();
    let rest: &str = i.as_ref();
    let length = match rest.chars().next() {
        None => 0,
        Some(c) if is_of_name(c) => rest.find(|c| !is_of_name(c)).unwrap_or(rest.len()),
        Some(c) if "=!<>&|*".contains(c) => rest.find(|c| !"=!<>&|*".contains(c)).unwrap_or(rest.len()),
        Some(c) => c.len_utf8(),
    };
    start..start + length
}
