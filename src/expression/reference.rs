//! An expression as C++ for the reference of a test: as it was written, without what the kernel's text does to be fast.

use super::tree::{Binary, Expr, Leaf, List, Unary};

impl Expr {
    /// C++ of the value in the number type `T`, in brackets throughout; integers are `int64_t`. It takes the variables
    /// by their names in the language, `SCALARS[i]`, `INTEGERS[i]` and `table(i, h)` in the order of declaration, and
    /// `tanh`, `exp`, `log`, `magnitude`, `smaller`, `larger`, `floor_div` and `floor_mod`.
    pub fn reference(&self) -> String {
        match self {
            Self::Leaf(leaf) => of_leaf(leaf),
            Self::Unary(op, a) => {
                let a = a.reference();
                match op {
                    Unary::Negate => format!("(-{a})"),
                    Unary::Not => format!("(!{a})"),
                    Unary::Real => format!("T(static_cast<double>({a}))"),
                    Unary::Abs => format!("magnitude({a})"),
                    Unary::Exp => format!("exp({a})"),
                    Unary::Tanh => format!("tanh({a})"),
                    Unary::Log => format!("log({a})"),
                }
            }
            Self::Binary(op, a, b) => {
                let (a, b) = (a.reference(), b.reference());
                let infix = |symbol: &str| format!("({a} {symbol} {b})");
                let call = |function: &str| format!("{function}({a}, {b})");
                match op {
                    Binary::Add => infix("+"),
                    Binary::Subtract => infix("-"),
                    Binary::Multiply => infix("*"),
                    Binary::Divide => infix("/"),
                    Binary::And => infix("&&"),
                    Binary::Or => infix("||"),
                    Binary::Compare(relation) => infix(relation.symbol()),
                    Binary::FloorDivide => call("floor_div"),
                    Binary::Modulo => call("floor_mod"),
                    Binary::Min => call("smaller"),
                    Binary::Max => call("larger"),
                }
            }
            Self::Select(c, a, b) => format!("({} ? {} : {})", c.reference(), a.reference(), b.reference()),
        }
    }
}

fn of_leaf(leaf: &Leaf) -> String {
    match leaf {
        Leaf::Real(number) => format!("T({:?})", number.get()),
        Leaf::Integer(value) => format!("int64_t{{{value}}}"),
        Leaf::Boolean(value) => value.to_string(),
        Leaf::Variable(variable) => variable.name().to_owned(),
        Leaf::Named(named) => match named.list {
            List::Scalars => format!("T(SCALARS[{}])", named.index),
            List::Integers => format!("INTEGERS[{}]", named.index),
            List::Tables => format!("T(table({}, h))", named.index),
        },
    }
}

#[cfg(test)]
mod tests {
    use crate::expression::{Goal, testing::expression};

    #[test]
    fn it_is_what_was_written_with_every_bracket() {
        for (text, expected) in [
            ("s - a * abs(q - k)", "(s - (T(SCALARS[0]) * T(static_cast<double>(magnitude((q - k))))))"),
            ("slope[h] * tanh(s / 2.5)", "(T(table(0, h)) * tanh((s / T(2.5))))"),
            ("select(q // n == 3, s, -c)", "((floor_div(q, INTEGERS[0]) == int64_t{3}) ? s : (-T(SCALARS[1])))"),
        ] {
            assert_eq!(expression(Goal::Score, text).reference(), expected);
        }
        let mask = expression(Goal::Mask, "k <= max(q, 0) and (not k % n == b or k < seqlen_k)").reference();
        assert!(mask.starts_with("((k <= larger(q, int64_t{0})) && (") && mask.contains("(k < seqlen_k)"), "{mask}");
    }
}
