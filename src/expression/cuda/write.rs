//! Writes prepared expressions as C++ with the brackets that operator precedence requires.

use super::{Local, Spelling, Stage, Text, prepare::is_wide};
use crate::expression::tree::{Binary, Expr, Leaf, List, Relation, Type, Unary, Variable};
use std::collections::{HashMap, HashSet};

/// Precedence of a part of C++.
#[derive(Clone, Copy, Eq, Ord, PartialEq, PartialOrd)]
enum Level {
    Conditional,
    Or,
    And,
    Equality,
    Relational,
    Sum,
    Product,
    Unary,
    Primary,
}

struct Writer<'a> {
    spelling: &'a Spelling,
    /// Parts that occur more than once.
    shared: HashSet<Expr>,
    /// Names of parts that are locals.
    named: HashMap<Expr, String>,
    text: Text,
}

/// The code of prepared expressions whose results are computed at `stage`.
pub(super) fn text(expressions: &[Expr], stage: Stage, spelling: &Spelling) -> Text {
    let mut seen = HashSet::new();
    let mut shared = HashSet::new();
    for expr in expressions {
        find_shared(expr, &mut seen, &mut shared);
    }
    let text = Text { locals: Vec::new(), results: Vec::new(), helpers: false };
    let mut writer = Writer { spelling, shared, named: HashMap::new(), text };
    for expr in expressions {
        let result = writer.within(expr, Level::Conditional, stage);
        writer.text.results.push(result);
    }
    writer.text
}

/// True for a leaf, which has a name already; not for a table's element, which is loaded from memory.
fn has_no_work(expr: &Expr) -> bool {
    match expr {
        Expr::Leaf(Leaf::Named(named)) => named.list != List::Tables,
        Expr::Leaf(_) => true,
        _ => false,
    }
}

fn find_shared<'e>(expr: &'e Expr, seen: &mut HashSet<&'e Expr>, shared: &mut HashSet<Expr>) {
    if has_no_work(expr) {
        return;
    }
    if !seen.insert(expr) {
        shared.insert(expr.clone());
        return;
    }
    for part in expr.parts() {
        find_shared(part, seen, shared);
    }
}

impl Writer<'_> {
    /// `expr` as an operand within precedence `around`, known at `stage`.
    fn within(&mut self, expr: &Expr, around: Level, stage: Stage) -> String {
        let (text, level) = self.part(expr, stage);
        if level < around { format!("({text})") } else { text }
    }

    fn part(&mut self, expr: &Expr, around: Stage) -> (String, Level) {
        if let Some(name) = self.named.get(expr) {
            return (name.clone(), Level::Primary);
        }
        let stage = Stage::of(expr);
        let is_early = stage != Stage::Element && stage != around;
        if has_no_work(expr) || !(is_early || self.shared.contains(expr)) {
            return self.plain(expr, around);
        }
        let (value, _) = self.plain(expr, stage);
        let prefix = match stage {
            Stage::Block => "block",
            Stage::Row => "row",
            Stage::Column => "column",
            Stage::Element => "element",
        };
        let name = format!("{}{prefix}{}", self.spelling.local, self.text.at(stage).count());
        let kind = match expr.kind() {
            Type::Real => "float",
            Type::Boolean => "bool",
            Type::Integer if is_wide(expr) => "int64_t",
            Type::Integer => "int",
        };
        let per_head = expr.uses(Variable::H) || uses_table(expr);
        self.text.locals.push(Local { stage, kind, name: name.clone(), value, per_head });
        self.named.insert(expr.clone(), name.clone());
        (name, Level::Primary)
    }

    fn plain(&mut self, expr: &Expr, stage: Stage) -> (String, Level) {
        match expr {
            Expr::Leaf(leaf) => self.leaf(leaf),
            Expr::Unary(op, a) => self.unary(*op, a, stage),
            Expr::Binary(op, a, b) => self.binary(*op, expr, a, b, stage),
            Expr::Select(c, a, b) => {
                let wide = is_wide(expr);
                let c = self.within(c, Level::Or, stage);
                let a = self.operand(a, wide, Level::Or, stage);
                let b = self.operand(b, wide, Level::Conditional, stage);
                (format!("{c} ? {a} : {b}"), Level::Conditional)
            }
        }
    }

    fn leaf(&self, leaf: &Leaf) -> (String, Level) {
        let spelling = self.spelling;
        let of = |name: &String| (name.clone(), Level::Primary);
        let signed = |text: String| if text.starts_with('-') { (text, Level::Unary) } else { (text, Level::Primary) };
        match leaf {
            Leaf::Real(number) => signed(format!("{:?}f", number.get() as f32)),
            Leaf::Integer(value) if i32::try_from(*value).is_ok() => signed(value.to_string()),
            Leaf::Integer(value) => (format!("int64_t{{{value}}}"), Level::Primary),
            Leaf::Boolean(value) => (value.to_string(), Level::Primary),
            Leaf::Variable(variable) => match variable {
                Variable::S => of(&spelling.s),
                Variable::Q => of(&spelling.q),
                Variable::K => of(&spelling.k),
                Variable::H => of(&spelling.h),
                Variable::B => of(&spelling.b),
                Variable::SeqlenQ => of(&spelling.seqlen_q),
                Variable::SeqlenK => of(&spelling.seqlen_k),
            },
            Leaf::Named(named) if named.list == List::Tables && !spelling.tables_of_head => {
                (format!("{}{}[{}]", spelling.named, named.name, spelling.h), Level::Primary)
            }
            Leaf::Named(named) => (format!("{}{}", spelling.named, named.name), Level::Primary),
        }
    }

    fn unary(&mut self, op: Unary, a: &Expr, stage: Stage) -> (String, Level) {
        let is_real = a.kind() == Type::Real;
        let function = match op {
            // Two signs would be a decrement.
            Unary::Negate | Unary::Not => {
                let sign = if op == Unary::Not { "!" } else { "-" };
                let (text, level) = self.part(a, stage);
                let closed = level < Level::Unary || text.starts_with('-');
                return (if closed { format!("{sign}({text})") } else { format!("{sign}{text}") }, Level::Unary);
            }
            Unary::Abs if is_real => "fabsf",
            Unary::Abs => "abs",
            Unary::Exp => "expf",
            Unary::Tanh => "tanhf",
            Unary::Log => "logf",
            Unary::Real => "static_cast<float>",
        };
        (format!("{function}({})", self.within(a, Level::Conditional, stage)), Level::Primary)
    }

    fn binary(&mut self, op: Binary, whole: &Expr, a: &Expr, b: &Expr, stage: Stage) -> (String, Level) {
        let (symbol, level) = match op {
            Binary::Add => ("+", Level::Sum),
            Binary::Subtract => ("-", Level::Sum),
            Binary::Multiply => ("*", Level::Product),
            Binary::Divide => ("/", Level::Product),
            Binary::Compare(relation @ (Relation::Equal | Relation::Unequal)) => (relation.symbol(), Level::Equality),
            Binary::Compare(relation) => (relation.symbol(), Level::Relational),
            Binary::And | Binary::Or => return self.junction(op, a, b, stage),
            Binary::FloorDivide | Binary::Modulo | Binary::Min | Binary::Max => return self.call(op, whole, a, b, stage),
        };
        // One 64-bit operand is enough.
        let needs_cast = is_wide(whole) && !is_wide(a) && !is_wide(b);
        let tighter = match level {
            Level::Product => Level::Unary,
            Level::Sum => Level::Product,
            _ => Level::Sum,
        };
        let left = self.operand(a, needs_cast, if tighter == Level::Sum { Level::Sum } else { level }, stage);
        let right = self.within(b, tighter, stage);
        (format!("{left} {symbol} {right}"), level)
    }

    /// An operand, cast to 64 bits if it is `wide` and is narrower.
    fn operand(&mut self, expr: &Expr, wide: bool, around: Level, stage: Stage) -> String {
        if wide && !is_wide(expr) {
            return format!("int64_t{{{}}}", self.within(expr, Level::Conditional, stage));
        }
        self.within(expr, around, stage)
    }

    /// `&&` and `||`; one inside the other gets brackets, to avoid compiler warnings.
    fn junction(&mut self, op: Binary, a: &Expr, b: &Expr, stage: Stage) -> (String, Level) {
        let (symbol, level) = if op == Binary::And { ("&&", Level::And) } else { ("||", Level::Or) };
        let mut side = |part: &Expr| {
            let is_same = matches!(part, Expr::Binary(inner, ..) if *inner == op);
            self.within(part, if is_same { level } else { Level::Equality }, stage)
        };
        let (a, b) = (side(a), side(b));
        (format!("{a} {symbol} {b}"), level)
    }

    fn call(&mut self, op: Binary, whole: &Expr, a: &Expr, b: &Expr, stage: Stage) -> (String, Level) {
        let is_real = whole.kind() == Type::Real;
        let function = match op {
            Binary::Min if is_real => "fminf",
            Binary::Max if is_real => "fmaxf",
            Binary::Min => "min",
            Binary::Max => "max",
            Binary::FloorDivide => "floor_div",
            _ => "floor_mod",
        };
        self.text.helpers |= function.starts_with("floor");
        let wide = is_wide(whole);
        let a = self.operand(a, wide, Level::Conditional, stage);
        let b = self.operand(b, wide, Level::Conditional, stage);
        (format!("{function}({a}, {b})"), Level::Primary)
    }
}

fn uses_table(expr: &Expr) -> bool {
    expr.any_leaf(&|leaf| matches!(leaf, Leaf::Named(named) if named.list == List::Tables))
}
