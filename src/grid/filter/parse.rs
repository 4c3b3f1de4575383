//! The grammar of filter expressions.
//!
//! ```text
//! any   := all (("or" | "||") all)*
//! all   := term (("and" | "&&") term)*
//! term  := "(" any ")" | ("not" | "!") term | "causal" | "full" | "plain" | "scores" | feature | field operator value
//! value := word | 'quoted' | "quoted"; after `in` and `not in`: "(" value ("," value)* [","] ")"
//! ```
//!
//! The first word of every rule determines it, so a rule that has begun never backtracks: its error is the one shown.

use super::{Check, Node, Order, Test};
use crate::{
    kernel::{AxisWord, Feature, HeadDim, read_word},
    text::{Finding, suggestion, ticked},
};
use std::ops::Range;
use winnow::{
    LocatingSlice, ModalResult, Parser,
    ascii::multispace0,
    combinator::{alt, not, opt, preceded, separated, terminated},
    error::{ErrMode, ParserError},
    stream::{Location, Stream},
    token::{one_of, take_till, take_while},
};

/// Fields in the users' spelling, for messages.
const FIELDS: [&str; 12] = ["kind", "hdim", "head_dim", "qk", "v", "dtype", "causal", "full", "mask", "score", "target", "name"];

/// Nesting limit of parentheses and negations; far beyond normal use, and safe for the stack.
const MAX_DEPTH: u32 = 64;

type Input<'i> = LocatingSlice<&'i str>;

/// Parses a whole text.
pub(super) fn filter(text: &str) -> Result<Node, Finding> {
    let mut input = Input::new(text);
    let whole = |i: &mut Input<'_>| {
        let root = any(MAX_DEPTH).parse_next(i)?;
        multispace0.parse_next(i)?;
        if i.is_empty() {
            return Ok(root);
        }
        let at = rest_of_token(i);
        let help = if text[at.clone()].starts_with(')') {
            "remove it, or open it with `(`"
        } else {
            "join conditions with `and` or `or`"
        };
        Err(reject("the filter goes on after its end", at, "expected `and`, `or` or nothing more", help))
    };
    whole(&mut input).map_err(|error| match error {
        ErrMode::Backtrack(Reject(finding)) | ErrMode::Cut(Reject(finding)) => finding,
        // Only partial input is ever incomplete, and this input is complete.
        ErrMode::Incomplete(_) => Finding::new("the filter ends too early", text.len()..text.len(), "here", EXAMPLE),
    })
}

const EXAMPLE: &str = "a filter looks like `hdim >= 128 and dtype == bf16`";

/// The parser's error: the finding to show.
#[derive(Debug)]
struct Reject(Finding);

impl ParserError<Input<'_>> for Reject {
    type Inner = Self;

    fn from_input(input: &Input<'_>) -> Self {
        let at = input.current_token_start();
        Self(Finding::new("the filter cannot be read", at..at, "not expected here", EXAMPLE))
    }

    fn into_inner(self) -> Result<Self, Self> {
        Ok(self)
    }
}

fn reject(title: impl Into<String>, at: Range<usize>, label: impl Into<String>, help: impl Into<String>) -> ErrMode<Reject> {
    ErrMode::Cut(Reject(Finding::new(title, at, label, help)))
}

fn any<'i>(depth: u32) -> impl Parser<Input<'i>, Node, ErrMode<Reject>> {
    separated(1.., all(depth), alt((keyword("or"), symbol("||")))).map(|parts| joined(parts, Node::Any))
}

fn all<'i>(depth: u32) -> impl Parser<Input<'i>, Node, ErrMode<Reject>> {
    separated(1.., move |i: &mut Input<'i>| term(i, depth), alt((keyword("and"), symbol("&&"))))
        .map(|parts| joined(parts, Node::All))
}

/// A single part stays itself, so that parentheses do not appear in the tree.
fn joined(mut parts: Vec<Node>, join: fn(Vec<Node>) -> Node) -> Node {
    if parts.len() == 1 { parts.remove(0) } else { join(parts) }
}

fn term(i: &mut Input<'_>, depth: u32) -> ModalResult<Node, Reject> {
    multispace0.parse_next(i)?;
    let Some(deeper) = depth.checked_sub(1) else {
        let at = rest_of_token(i);
        return Err(reject("the filter is nested too deeply", at, format!("more than {MAX_DEPTH} levels"), "write it flatter"));
    };
    if opt(symbol("(")).parse_next(i)?.is_some() {
        let inner = any(deeper).parse_next(i)?;
        require(i, ")", "expected `)`, `and` or `or`", "close the parenthesis with `)`")?;
        return Ok(inner);
    }
    if opt(alt((keyword("not"), symbol("!")))).parse_next(i)?.is_some() {
        return Ok(Node::Not(Box::new(term(i, deeper)?)));
    }
    condition(i)
}

/// A field, its operator and its values.
fn condition(i: &mut Input<'_>) -> ModalResult<Node, Reject> {
    let Some((field, at)) = opt(word.with_span()).parse_next(i)? else {
        let at = rest_of_token(i);
        return Err(reject("a condition is missing", at, "expected a condition", EXAMPLE));
    };
    let field = field.to_ascii_lowercase();
    let alone = alone(&field);
    if alone.is_none() && !FIELDS.contains(&field.as_str()) {
        let all: Vec<&str> =
            FIELDS.into_iter().chain(Feature::ALL.iter().map(|feature| feature.name())).chain(["plain", "scores"]).collect();
        let known = format!("fields: {}", ticked(&all));
        let help = suggestion(&field, &all).unwrap_or(known);
        return Err(reject(format!("unknown field `{field}`"), at, "no field of a variant", help));
    }
    multispace0.parse_next(i)?;
    let operator_at = rest_of_token(i);
    let operator = opt(operator).parse_next(i)?;
    if field == "full" && operator.is_some() {
        return Err(reject("`full` takes no operator", operator_at, "no operator here", "write `full`, or `mask == full`"));
    }
    if let Some(test) = alone {
        if operator.is_some() {
            let help = format!("write `{field}`, or `not {field}`");
            return Err(reject(format!("`{field}` takes no operator"), operator_at, "no operator here", help));
        }
        return Ok(Node::Test(test));
    }
    let Some((relation, negated)) = operator else {
        return match field.as_str() {
            "causal" | "full" => Ok(Node::Test(Test::Causal(vec![field == "causal"]))),
            _ => Err(operator_missing(&field, operator_at, i)),
        };
    };
    check_operator(&field, relation, operator_at)?;
    let values = values(i, relation, &field)?;
    let test = Node::Test(test(&field, relation, &values)?);
    Ok(if negated { Node::Not(Box::new(test)) } else { test })
}

/// The test of a word that takes no operator.
fn alone(word: &str) -> Option<Test> {
    match word {
        "plain" => return Some(Test::Plain),
        "scores" => return Some(Test::Scores),
        _ => {}
    }
    let head_dim = word.strip_prefix("hdim").and_then(pair).map(|pair| Test::HeadDims(vec![pair]));
    head_dim.or_else(|| word.parse().ok().map(Test::Feature))
}

/// A head dim such as `64` or `192_128`, not necessarily a valid one.
fn pair(text: &str) -> Option<HeadDim> {
    let number = |digits: &str| digits.parse::<u32>().ok();
    match text.split_once('_') {
        None => number(text).map(HeadDim::equal),
        Some((qk, v)) => Some(HeadDim { qk: number(qk)?, v: number(v)? }),
    }
}

fn operator_missing(field: &str, at: Range<usize>, i: &Input<'_>) -> ErrMode<Reject> {
    let title = format!("`{field}` needs an operator");
    if i.starts_with('=') {
        return reject(title, at, "expected `==`", "write `==` for equality");
    }
    reject(title, at, format!("expected one of {}", operators(field)), EXAMPLE)
}

/// The operators a field has, for messages.
fn operators(field: &str) -> &'static str {
    match field {
        "hdim" | "head_dim" | "qk" | "v" | "target" => "`==`, `!=`, `<`, `<=`, `>`, `>=`, `in`, `not in`",
        "name" => "`==`, `!=`, `~`, `!~`, `in`, `not in`",
        _ => "`==`, `!=`, `in`, `not in`",
    }
}

/// The relation of an operator, without negation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Relation {
    /// `==` and `!=`.
    Equal,
    /// `in` and `not in`.
    In,
    /// `~` and `!~`.
    Like,
    /// `<`, `<=`, `>`, `>=`.
    Compare(Order),
}

/// An operator: its relation, and true for the negated form.
fn operator(i: &mut Input<'_>) -> ModalResult<(Relation, bool), Reject> {
    let order = alt((
        symbol("<=").value(Order::AtMost),
        symbol(">=").value(Order::AtLeast),
        symbol("<").value(Order::Less),
        symbol(">").value(Order::Greater),
    ));
    alt((
        symbol("==").value((Relation::Equal, false)),
        symbol("!=").value((Relation::Equal, true)),
        symbol("!~").value((Relation::Like, true)),
        symbol("~").value((Relation::Like, false)),
        keyword("in").value((Relation::In, false)),
        (keyword("not"), keyword("in")).value((Relation::In, true)),
        order.map(|order| (Relation::Compare(order), false)),
    ))
    .parse_next(i)
}

fn check_operator(field: &str, relation: Relation, at: Range<usize>) -> ModalResult<(), Reject> {
    let ordered = matches!(field, "hdim" | "head_dim" | "qk" | "v" | "target");
    let problem = match relation {
        Relation::Compare(_) if !ordered => format!("`{field}` has no order"),
        Relation::Like if field != "name" => "only `name` takes a pattern".to_owned(),
        _ => return Ok(()),
    };
    let label = format!("expected one of {}", operators(field));
    Err(reject(problem, at, label, "use an operator this field has"))
}

/// A value and its position.
type Value = (String, Range<usize>);

/// One value, or a list of them after `in`.
fn values(i: &mut Input<'_>, relation: Relation, field: &str) -> ModalResult<Vec<Value>, Reject> {
    if relation != Relation::In {
        return Ok(vec![value(i, field)?]);
    }
    require(i, "(", "expected `(`", "write a list as `in (64, 128)`")?;
    let mut list = vec![value(i, field)?];
    while opt(symbol(",")).parse_next(i)?.is_some() {
        if opt(winnow::combinator::peek(symbol(")"))).parse_next(i)?.is_some() {
            break;
        }
        list.push(value(i, field)?);
    }
    require(i, ")", "expected `,` or `)`", "write a list as `in (64, 128)`")?;
    Ok(list)
}

fn value(i: &mut Input<'_>, field: &str) -> ModalResult<Value, Reject> {
    multispace0.parse_next(i)?;
    if let Some(quote) = opt(one_of(['\'', '"'])).parse_next(i)? {
        let start = i.previous_token_end() - 1;
        let (text, at) = take_till(0.., quote).with_span().parse_next(i)?;
        if i.next_token().is_none() {
            return Err(reject("a quote is not closed", start..at.end, "opened here", format!("close it with `{quote}`")));
        }
        return Ok((text.to_owned(), at));
    }
    match opt(word.with_span()).parse_next(i)? {
        Some((text, at)) => Ok((text.to_owned(), at)),
        None => Err(reject(format!("`{field}` needs a value"), rest_of_token(i), expected(field), EXAMPLE)),
    }
}

/// Description of the values of `field`, for messages.
fn expected(field: &str) -> &'static str {
    match field {
        "hdim" | "head_dim" | "qk" | "v" => "expected a number such as 128",
        "causal" => "expected `true` or `false`",
        "mask" => "expected `causal` or `full`",
        "kind" => "expected a kind such as `fwd`",
        "dtype" => "expected a dtype such as `bf16`",
        "target" => "expected a target such as `sm80`",
        "score" => "expected the name of a declared score, or `none`",
        _ => "expected a name or a pattern such as 'flash_fwd_*'",
    }
}

/// Parses the values as the field's type.
fn test(field: &str, relation: Relation, values: &[Value]) -> ModalResult<Test, Reject> {
    let wrong = |(text, at): &Value| {
        let help = "head dims are multiples of 8 from 16 to 256; `192_128` is that of Q and K, then that of V and O";
        reject(format!("`{text}` is no head dim"), at.clone(), expected(field), help)
    };
    let number = |value: &Value| value.0.parse::<u32>().map_err(|_| wrong(value));
    let head_dim = |value: &Value| pair(&value.0).ok_or_else(|| wrong(value));
    Ok(match field {
        "kind" => Test::Kind(axis_values(values)?),
        "dtype" => Test::Dtype(axis_values(values)?),
        "target" => Test::Target(check(relation, axis_values(values)?)),
        "hdim" | "head_dim" => match relation {
            Relation::Compare(order) => Test::HeadDimLimit(order, number(&values[0])?),
            _ => Test::HeadDims(values.iter().map(head_dim).collect::<ModalResult<_, Reject>>()?),
        },
        "qk" => Test::Qk(check(relation, values.iter().map(number).collect::<ModalResult<_, Reject>>()?)),
        "v" => Test::V(check(relation, values.iter().map(number).collect::<ModalResult<_, Reject>>()?)),
        "causal" => Test::Causal(one_of_two(field, values, "true", "false")?),
        "mask" => Test::Causal(one_of_two(field, values, "causal", "full")?),
        "score" => Test::Score(values.iter().map(|(text, _)| text.clone()).collect()),
        _ if relation == Relation::Like => Test::NameLike(values[0].0.clone()),
        _ => Test::Name(values.iter().map(|(text, _)| text.clone()).collect()),
    })
}

fn check<T: Copy>(relation: Relation, values: Vec<T>) -> Check<T> {
    match relation {
        Relation::Compare(order) => Check::Compare(order, values[0]),
        _ => Check::OneOf(values),
    }
}

fn axis_values<T: AxisWord>(values: &[Value]) -> ModalResult<Vec<T>, Reject> {
    values
        .iter()
        .map(|(text, at)| read_word(text).map_err(|misread| reject(misread.title, at.clone(), "not known", misread.help)))
        .collect()
}

fn one_of_two(field: &str, values: &[Value], yes: &str, no: &str) -> ModalResult<Vec<bool>, Reject> {
    let read = |(text, at): &Value| match text.to_ascii_lowercase() {
        word if word == yes => Ok(true),
        word if word == no => Ok(false),
        _ => {
            let help = format!("`{field}` is `{yes}` or `{no}`");
            Err(reject(format!("`{text}` is no value of `{field}`"), at.clone(), expected(field), help))
        }
    };
    values.iter().map(read).collect()
}

/// A bare word: the characters of axis names, numbers, variant names and simple patterns.
fn word<'i>(i: &mut Input<'i>) -> ModalResult<&'i str, Reject> {
    preceded(multispace0, take_while(1.., is_word)).parse_next(i)
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '*' | '?')
}

/// A keyword of the language, in any case.
fn keyword<'i>(expected: &'static str) -> impl Parser<Input<'i>, (), ErrMode<Reject>> {
    word.verify(move |found: &str| found.eq_ignore_ascii_case(expected)).void()
}

/// Punctuation. `!` is a negation only if it does not begin `!=` or `!~`.
fn symbol<'i>(expected: &'static str) -> impl Parser<Input<'i>, (), ErrMode<Reject>> {
    let not_longer = not(one_of(move |c: char| expected == "!" && matches!(c, '=' | '~')));
    terminated(preceded(multispace0, expected), not_longer).void()
}

/// Required punctuation.
fn require(i: &mut Input<'_>, expected: &'static str, label: &str, help: &str) -> ModalResult<(), Reject> {
    if opt(symbol(expected)).parse_next(i)?.is_some() {
        return Ok(());
    }
    multispace0.parse_next(i)?;
    Err(reject(format!("`{expected}` is missing"), rest_of_token(i), label, help))
}

/// Position of the next word or run of punctuation; empty at the end of the text. Expects no white space before it.
fn rest_of_token(i: &Input<'_>) -> Range<usize> {
    let start = i.current_token_start();
    let rest: &str = i.as_ref();
    let length = match rest.chars().next() {
        None => 0,
        Some(c) if is_word(c) => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
        Some('=' | '!' | '<' | '>' | '~') => rest.find(|c| !"=!<>~".contains(c)).unwrap_or(rest.len()),
        Some(c) => c.len_utf8(),
    };
    start..start + length
}
