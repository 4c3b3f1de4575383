//! Chooses the line breaks of a statement with the least cost: outside as many brackets as possible, at the operators
//! with the lowest precedence.

use super::{
    COLUMNS, INDENT,
    scan::{Kind, Piece, pieces},
    width,
};

/// Columns of continuation lines inside a bracket.
#[derive(Clone, Copy)]
struct Frame {
    /// Column of items after a comma.
    items: usize,
    /// Column of the current item's operands.
    operands: usize,
    /// Column of the current item's first `?`; the `:` of a chain are aligned with it.
    question: Option<usize>,
}

impl Frame {
    fn at(column: usize) -> Self {
        Self { items: column, operands: column, question: None }
    }
}

/// The cheapest sequence of breaks found that ends before a piece.
#[derive(Clone)]
struct Way {
    cost: u32,
    /// (first piece of the previous line, index of the way to it).
    from: (usize, usize),
    /// The column of the line that starts here.
    column: usize,
    frames: Vec<Frame>,
}

/// Cost of a line that is too long, plus a tenth of it per excess character.
const TOO_LONG: u32 = 10_000;
/// Maximum number of ways kept per break; they differ in the column of the next line.
const WAYS: usize = 4;

/// Breaks `code`, whose first line starts at `indent`. `inside`: it continues a statement of the previous line.
pub(super) fn break_lines(code: &str, indent: usize, inside: bool) -> Vec<String> {
    let parts = pieces(code);
    let base = Frame::at(if !inside {
        indent + INDENT
    } else if code.starts_with("? ") || code.starts_with(": ") {
        indent + 2
    } else {
        indent
    });
    let start = Way { cost: 0, from: (0, 0), column: indent, frames: vec![base; parts[0].depth + 1] };
    let mut ways: Vec<Vec<Way>> = vec![Vec::new(); parts.len() + 1];
    ways[0].push(start);
    for from in 0..parts.len() {
        for rank in 0..ways[from].len() {
            let (before, after) = ways.split_at_mut(from + 1);
            follow(&parts, (from, rank), &before[from][rank], indent, after);
        }
    }
    collect(&parts, &ways)
}

/// Tries each end of the line that starts at the end of `way`, and adds the results to `after`, the ways to later
/// pieces.
fn follow(parts: &[Piece], place: (usize, usize), way: &Way, indent: usize, after: &mut [Vec<Way>]) {
    let (mut frames, mut column) = (way.frames.clone(), way.column);
    for (taken, part) in parts[place.0..].iter().enumerate() {
        column = advance(part, column, &mut frames, taken == 0);
        if column > COLUMNS && taken > 0 {
            break;
        }
        let excess = u32::try_from(column.saturating_sub(COLUMNS)).unwrap_or(1_000);
        let too_long = if excess > 0 { TOO_LONG + TOO_LONG / 10 * excess } else { 0 };
        let next = parts.get(place.0 + taken + 1);
        let cost = way.cost + too_long + next.map_or(0, price);
        let found = &mut after[taken];
        if found.len() == WAYS && found[WAYS - 1].cost < cost {
            continue;
        }
        let (column, frames) = match next {
            Some(next) => begin(next, way.column, indent, &frames),
            None => (0, frames.clone()),
        };
        let new = Way { cost, from: place, column, frames };
        // On a tie the later way wins, so that the first lines are filled.
        match found.iter().position(|other| other.column == column) {
            Some(same) if found[same].cost < cost => continue,
            Some(same) => found[same] = new,
            None => found.push(new),
        }
        found.sort_by_key(|way| way.cost);
        found.truncate(WAYS);
    }
}

/// The lines of the cheapest way to the end.
fn collect(parts: &[Piece], ways: &[Vec<Way>]) -> Vec<String> {
    let mut lines = Vec::new();
    let (mut to, mut way) = (parts.len(), ways[parts.len()].first());
    while to > 0 {
        let Some((from, rank)) = way.map(|way| way.from) else { break };
        way = ways[from].get(rank);
        let mut line = " ".repeat(way.map_or(0, |way| way.column));
        for (place, part) in parts[from..to].iter().enumerate() {
            if place > 0 && part.kind != Kind::Open {
                line.push(' ');
            }
            line.push_str(part.text);
        }
        lines.push(line);
        to = from;
    }
    lines.reverse();
    lines
}

/// Appends a piece to a line that ends at `column`; returns the new end.
fn advance(part: &Piece, column: usize, frames: &mut Vec<Frame>, starts_line: bool) -> usize {
    let column = if starts_line || part.kind == Kind::Open { column } else { column + 1 };
    if let Some(frame) = frames.last_mut() {
        match part.kind {
            Kind::Question => {
                frame.question = frame.question.or(Some(column));
                frame.operands = column + 2;
            }
            Kind::Colon => frame.operands = column + 2,
            Kind::Comma | Kind::Assign | Kind::Return => {
                frame.operands = column;
                frame.question = None;
            }
            Kind::Operator(_) | Kind::Open | Kind::TemplateHead | Kind::Strings | Kind::Operands | Kind::Other => {}
        }
    }
    for &(end, opens) in &part.brackets {
        if opens {
            frames.push(Frame::at(column + width(&part.text[..end])));
        } else if frames.len() > 1 {
            frames.pop();
        }
    }
    column + width(part.text)
}

/// The column and the frames of a line that starts with `part`, after a line that starts at `line`.
fn begin(part: &Piece, line: usize, indent: usize, frames: &[Frame]) -> (usize, Vec<Frame>) {
    let mut frames = frames.to_vec();
    let Some(frame) = frames.last_mut() else { return (indent, frames) };
    let column = match part.kind {
        Kind::Comma | Kind::Assign | Kind::Operands => frame.items,
        Kind::Operator(_) | Kind::Return | Kind::Strings | Kind::Other => frame.operands,
        Kind::Question => frame.operands + INDENT,
        Kind::Colon => frame.question.unwrap_or(frame.operands),
        Kind::TemplateHead => indent,
        Kind::Open => {
            *frame = Frame::at(line + INDENT);
            line + INDENT
        }
    };
    (column, frames)
}

/// Cost of a break before a piece.
fn price(part: &Piece) -> u32 {
    let depth = |levels: usize| u32::try_from(levels).unwrap_or(1_000);
    let kind = match part.kind {
        Kind::Operands => 0,
        Kind::Comma | Kind::Strings => 1,
        Kind::TemplateHead => 2,
        // The text after a `:` is nested in it.
        Kind::Question => 3 + 2 * depth(part.chain),
        Kind::Colon => 2 * depth(part.chain),
        Kind::Operator(firmness) => firmness,
        Kind::Assign => 35,
        Kind::Open => 30,
        Kind::Other => 500,
        Kind::Return => 800,
    };
    kind + 20 * depth(part.depth) + 30 * depth(part.tight_depth)
}
