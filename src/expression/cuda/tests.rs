//! Tests of the text, and that compiled C++ computes the reference's values with it.

use super::{HELPERS, Spelling, Stage, Text};
use crate::expression::{
    Expr, Goal,
    testing::{self, Values, expression},
    tree::{Binary, Leaf, Type, Unary},
};
use std::{fmt::Write, fs, process::Command};

#[track_caller]
fn text(goal: Goal, text: &str) -> Text {
    Text::of(&[&expression(goal, text)], &Spelling::default())
}

#[test]
fn the_text_is_what_a_person_would_write() {
    for (written, expected) in [
        ("s - decay * abs(q - k)", "s - decay * static_cast<float>(abs(q - k))"),
        ("20 * tanh(s / 20)", "20.0f * tanhf(s * 0.05f)"),
        ("(s + a) * (s - a)", "(s + a) * (s - a)"),
        ("s - (a - s * 2)", "s - (a - s * 2.0f)"),
        ("min(s, a) + exp(-s)", "fminf(s, a) + expf(-s)"),
        ("-(-1.5 * s)", "-(-1.5f * s)"),
        ("select(k <= q, s, log(s))", "k <= q ? s : logf(s)"),
        ("select(k <= q, s, a) * s", "(k <= q ? s : a) * s"),
        ("s + (q - k) * (q - k) / 4096 * a", "s + element0 * element0 * 0.00024414063f * a"),
    ] {
        let text = text(Goal::Score, written);
        assert_eq!(text.results[0], expected, "`{written}`");
    }
    for (written, expected) in [
        ("k <= q and (q - k < 4096 or k < n)", "k <= q && (q - k < 4096 || column0)"),
        ("k <= q or q - k < 5 and k == n", "k <= q || (q - k < 5 && column0)"),
        ("not (k < q and a * k < decay * q)", "!(k < q && column0 < row0)"),
        ("q * 16 - k * 16 < n", "row0 - column0 < n"),
    ] {
        assert_eq!(text(Goal::Mask, written).results[0], expected, "`{written}`");
    }
}

#[test]
fn what_is_known_before_a_loop_is_computed_before_it() {
    let text = text(Goal::Score, "a * tanh(s / a) - slope[h] * real(q) + exp(c * k) * log(q - k)");
    let declared: Vec<(Stage, String)> = text.locals.iter().map(|local| (local.stage, local.declaration())).collect();
    assert_eq!(
        declared,
        [
            (Stage::Block, "const float block0 = 1.0f / a;".to_owned()),
            (Stage::Block, "const float block1 = slope[h];".to_owned()),
            (Stage::Row, "const float row0 = block1 * static_cast<float>(q);".to_owned()),
            (Stage::Column, "const float column0 = expf(c * static_cast<float>(k));".to_owned()),
        ]
    );
    assert_eq!(text.results, ["a * tanhf(s * block0) - row0 + column0 * logf(static_cast<float>(q - k))"]);
    assert!(text.locals[1].per_head && text.locals[2].per_head && !text.locals[0].per_head && !text.helpers);
}

#[test]
fn a_score_and_its_derivative_share_what_both_need() {
    let score = expression(Goal::Score, "a * tanh(s / a)");
    let text =
        Text::of(&[&score, &score.derivative()], &Spelling { named: "user.".into(), local: "u_".into(), ..Spelling::default() });
    let declared: Vec<String> = text.locals.iter().map(super::Local::declaration).collect();
    assert_eq!(declared, ["const float u_block0 = 1.0f / user.a;", "const float u_element0 = tanhf(s * u_block0);"]);
    assert_eq!(text.results, ["user.a * u_element0", "1.0f - u_element0 * u_element0"]);
}

#[test]
fn integers_that_may_not_fit_32_bits_have_64() {
    let text = text(Goal::Mask, "k * 16 + h <= q and (q * 8) // n == 0");
    let all = format!("{text:?}");
    assert!(all.contains("int64_t{k} * 16 + h") && all.contains("floor_div(int64_t{q} * 8, int64_t{n})"), "{all}");
    assert!(text.helpers);
}

/// A value, and a bound on its error in fp32: the sum of the rounding errors, each propagated by the derivatives.
struct Bounded {
    value: f64,
    error: f64,
}

/// `None` if rounding decides a comparison, or a function is too steep for a first-order bound.
fn bounded(expr: &Expr, values: &Values) -> Option<Bounded> {
    let ulp = f64::from(f32::EPSILON);
    let value = expr.value(&values.at());
    let rounded = |error: f64, ulps: f64| {
        let ok = value.is_finite() && value.abs() < 1e30 && error <= 1e-2 * value.abs().max(1e-3);
        ok.then_some(Bounded { value, error: error + ulps * ulp * value.abs() + 1e-37 })
    };
    if expr.kind() == Type::Integer {
        // Conditions inside may depend on real numbers.
        return expr.parts().into_iter().all(|part| bounded(part, values).is_some()).then_some(Bounded { value, error: 0.0 });
    }
    match expr {
        Expr::Leaf(Leaf::Boolean(_)) => Some(Bounded { value, error: 0.0 }),
        Expr::Leaf(_) => rounded(0.0, 1.0),
        Expr::Unary(op, a) => {
            let a = bounded(a, values)?;
            match op {
                Unary::Not => Some(Bounded { value, error: 0.0 }),
                Unary::Negate | Unary::Abs => rounded(a.error, 0.0),
                // A wide integer is converted before it is added or multiplied.
                Unary::Real => rounded(a.error + ulp * 1e5, 2.0),
                Unary::Exp => rounded(a.error * value * 1.1, 4.0),
                Unary::Tanh => rounded(a.error, 4.0),
                Unary::Log => rounded(a.error / a.value.abs() * 1.1 + ulp, 4.0),
            }
        }
        Expr::Binary(op, left, right) => {
            let (a, b) = (bounded(left, values)?, bounded(right, values)?);
            match op {
                Binary::Add | Binary::Subtract => rounded(a.error + b.error, 1.0),
                Binary::Multiply => rounded(a.error * b.value.abs() + a.value.abs() * b.error + a.error * b.error, 2.0),
                Binary::Divide => rounded((a.error + value.abs() * b.error) / b.value.abs() * 1.1, 4.0),
                Binary::Min | Binary::Max => rounded(a.error.max(b.error), 0.0),
                Binary::Compare(_) => {
                    let clear = left.kind() == Type::Integer || (a.value - b.value).abs() > 2.0 * (a.error + b.error);
                    clear.then_some(Bounded { value, error: 0.0 })
                }
                _ => Some(Bounded { value, error: 0.0 }),
            }
        }
        Expr::Select(c, a, b) => {
            let taken = if bounded(c, values)?.value > 0.0 { a } else { b };
            bounded(taken, values)
        }
    }
}

/// A C++ function that returns every result of `text`.
fn function(name: &str, text: &Text) -> String {
    let mut code = format!("static void {name}(const values& v, double* out) {{\n");
    code +=
        "    const float s = v.s; const int q = v.q, k = v.k, h = v.h, b = v.b, seqlen_q = v.seqlen_q, seqlen_k = v.seqlen_k;\n";
    code += "    const float a = v.scalars[0], c = v.scalars[1], decay = v.scalars[2]; const int n = v.integers[0], m = v.integers[1];\n";
    code += "    const float* slope = v.slope;\n";
    code += "    (void)s; (void)q; (void)k; (void)h; (void)b; (void)seqlen_q; (void)seqlen_k;\n";
    code += "    (void)a; (void)c; (void)decay; (void)n; (void)m; (void)slope;\n";
    for stage in [Stage::Block, Stage::Row, Stage::Column, Stage::Element] {
        for local in text.at(stage) {
            writeln!(code, "    {}", local.declaration()).unwrap();
        }
    }
    for (index, result) in text.results.iter().enumerate() {
        writeln!(code, "    out[{index}] = {result};").unwrap();
    }
    code + "}\n"
}

const PREAMBLE: &str = "#include <algorithm>\n#include <cmath>\n#include <cstdint>\n#include <cstdio>\n#include <cstdlib>\n\
    #define __device__\n#define __forceinline__ inline\nusing std::abs; using std::max; using std::min;\n\
    struct values { float s; int q, k, h, b, seqlen_q, seqlen_k; float scalars[3]; int integers[2]; float slope[3]; };\n";

fn literal(values: &Values) -> String {
    let reals = |list: &[f64]| list.iter().map(|value| format!("{:?}f", *value as f32)).collect::<Vec<_>>().join(", ");
    let Values { q, k, h, b, seqlen_q, seqlen_k, .. } = values;
    let (s, scalars, slope) = (reals(&[values.s]), reals(&values.scalars), reals(&values.slopes));
    let [n, m] = [values.integers[0], values.integers[1]];
    format!("{{{s}, {q}, {k}, {h}, {b}, {seqlen_q}, {seqlen_k}, {{{scalars}}}, {{{n}, {m}}}, {{{slope}}}}}")
}

/// Code of `main` that calls a function with each of `values` and prints its results.
fn calls(name: &str, values: &[Values], results: usize) -> String {
    let values = values.iter().map(literal).collect::<Vec<_>>().join(", ");
    let print = "for (int i = 0; i < RESULTS; ++i) std::printf(\"%.17g\\n\", out[i]);".replace("RESULTS", &results.to_string());
    format!(
        "    static const values {name}_at[] = {{{values}}};\n    for (const values& v : {name}_at) {{ {name}(v, out); {print} }}\n"
    )
}

/// Compiles a program with g++, runs it, and returns the numbers it prints.
fn run(code: &str) -> Vec<f64> {
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("test.cpp"), folder.path().join("test"));
    fs::write(&source, code).unwrap();
    let flags = ["-std=c++17", "-O1", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror", "-Wno-unused-variable"];
    let flags = flags.iter().chain(&["-Wno-tautological-compare", "-Wno-bool-compare"]);
    let made = Command::new("g++").args(flags).arg("-o").arg(&program).arg(&source).output().expect("g++ starts");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let output = Command::new(&program).output().expect("it starts");
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap().split_whitespace().map(|number| number.parse().unwrap()).collect()
}

const TRIALS: usize = 12;

/// Integers of more than 32 bits as real numbers, which random expressions rarely contain.
const WIDE: [&str; 5] = [
    "s + abs(q * 4096 - k * 64)",
    "s - -(q * 64) * c",
    "s + min(q * 64, n - k * 64)",
    "s + max(q * 64, n - k * 64) * 0.5",
    "s + select(h < 2, q * 64, k) + q * 64 // 7",
];

#[test]
fn compiled_text_computes_what_the_reference_computes() {
    let mut random = testing::random(31);
    let mut code = format!("{PREAMBLE}{HELPERS}");
    let mut main = "int main() {\n    double out[2];\n".to_owned();
    let mut cases: Vec<(Expr, Vec<Expr>, Vec<Values>)> = Vec::new();
    for index in 0..500 {
        let (expr, results) = if let Some(wide) = WIDE.get(index) {
            let score = expression(Goal::Score, wide);
            (score.clone(), vec![score.clone(), score.derivative()])
        } else if index % 3 == 2 {
            let mask = testing::random_mask(&mut random, 4);
            (mask.clone(), vec![mask])
        } else {
            let score = testing::random_score(&mut random, 4);
            (score.clone(), vec![score.clone(), score.derivative()])
        };
        let text = Text::of(&results.iter().collect::<Vec<_>>(), &Spelling::default());
        code += &function(&format!("f{index}"), &text);
        let values: Vec<Values> = (0..TRIALS).map(|_| Values::random(&mut random)).collect();
        main += &calls(&format!("f{index}"), &values, results.len());
        cases.push((expr, results, values));
    }
    let numbers = run(&format!("{code}{main}}}\n"));
    let (mut numbers, mut compared, mut all) = (numbers.into_iter(), 0, 0);
    for (expr, results, values) in &cases {
        for values in values {
            for result in results {
                let found = numbers.next().unwrap();
                all += 1;
                let Some(Bounded { value, error }) = bounded(result, values) else { continue };
                compared += 1;
                let holds = (found - value).abs() <= 4.0 * error;
                assert!(holds, "`{expr}`\n`{result}` is {found}, not {value} within {error:e}\n{values:?}");
            }
        }
    }
    assert!(numbers.next().is_none());
    assert!(compared * 10 > all * 7, "{compared} of {all} could be compared");
}

#[test]
fn compiled_bounds_are_those_of_the_reference() {
    let mut random = testing::random(32);
    let mut code = format!("{PREAMBLE}{HELPERS}");
    let mut main = "int main() {\n    double out[2];\n".to_owned();
    let mut expected = Vec::new();
    while expected.len() < 300 * 2 * TRIALS {
        let mask = testing::random_mask(&mut random, 4);
        let Some(found) = mask.interval() else { continue };
        let name = format!("f{}", expected.len());
        code += &function(&name, &Text::per_row(&[&found.low, &found.high], &Spelling::default()));
        let values: Vec<Values> = (0..TRIALS).map(|_| Values::random(&mut random)).collect();
        main += &calls(&name, &values, 2);
        for values in values {
            for bound in [&found.low, &found.high] {
                // Rounding may decide a condition on real numbers.
                let clear = bounded(bound, &values).is_some();
                expected.push((mask.to_string(), clear.then(|| bound.value(&values.at()))));
            }
        }
    }
    for (found, (mask, value)) in run(&format!("{code}{main}}}\n")).into_iter().zip(expected) {
        assert!(value.is_none_or(|value| (value - found).abs() < 0.5), "`{mask}`: {found}, not {value:?}");
    }
}
