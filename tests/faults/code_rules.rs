//! Examples of the code that the search for a fault compares.

use super::{
    Bodies,
    code::{code, places, replace_once},
};

pub fn rules() -> Bodies {
    vec![
        ("comments and white space are left out", comments_and_white_space),
        ("what looks like a comment in a string is code", comments_in_strings),
        ("quotes in quotes end nothing", nested_quotes),
        ("separated digits begin no literal", separated_digits),
        ("a lone quote ends with its line", lone_quotes),
        ("a comment within what is found is replaced too", comment_within),
        ("what stands around what is found stays", surroundings),
        ("text at the end is found", at_the_end),
        ("of two places none is chosen", two_places),
    ]
}

fn is(text: &str, expected: &str) -> Result<(), String> {
    equal(code(text).into_iter().map(|(_, c)| c).collect::<String>().as_str(), expected)
}

fn gives(text: &str, find: &str, replace: &str, expected: Result<&str, usize>) -> Result<(), String> {
    equal(&replace_once(text, find, replace).as_deref().map_err(|count| *count), &expected)
}

fn equal<T: PartialEq + std::fmt::Debug + ?Sized>(found: &T, expected: &T) -> Result<(), String> {
    if found == expected { Ok(()) } else { Err(format!("{found:?} instead of {expected:?}")) }
}

fn comments_and_white_space() -> Result<(), String> {
    is("a = b;  // no `c`\n\td();", "a=b;d();")?;
    is("a /* b\n * c */ + /**/ d /*/ e */ f", "a+df")?;
    is("a / b / *c", "a/b/*c")?;
    is("a; // the end", "a;")?;
    is("a; /* no end", "a;")
}

fn comments_in_strings() -> Result<(), String> {
    is(r#"say("// a") /* b */; c"#, r#"say("//a");c"#)?;
    is(r#"say("/* a */"); // b"#, r#"say("/*a*/");"#)
}

fn nested_quotes() -> Result<(), String> {
    is(r#"say("\"// a"); // b"#, r#"say("\"//a");"#)?;
    is(r#"say("it's // a"); // b"#, r#"say("it's//a");"#)?;
    is(r#"c == '"' // a"#, r#"c=='"'"#)?;
    is(r"c == '\'' || d == '\\' // a", r"c=='\''||d=='\\'")
}

fn separated_digits() -> Result<(), String> {
    is("n > 1'000  // it's a lot", "n>1'000")?;
    is("n > 0xff'ff'ff  // a\n + 'b' // c", "n>0xff'ff'ff+'b'")?;
    is("x1 == L'/'  // a", "x1==L'/'")
}

fn lone_quotes() -> Result<(), String> {
    is("#error don't  // a\nb  // c", "#errordon't//ab")
}

fn comment_within() -> Result<(), String> {
    let text = "wait<0>();  // all of K\n    sync();  // seen\n    go();";
    gives(text, "wait<0>(); sync();", "sync();", Ok("sync();  // seen\n    go();"))?;
    gives(text, "wait<0>();\n// of V\nsync();", "", Ok("  // seen\n    go();"))
}

fn surroundings() -> Result<(), String> {
    let text = "/* a */ f( x , y );  // b\n";
    gives(text, "(x,y)", "(y, x)", Ok("/* a */ f(y, x);  // b\n"))?;
    gives(text, "  f ", "größer", Ok("/* a */ größer( x , y );  // b\n"))
}

fn at_the_end() -> Result<(), String> {
    gives("a; ü", "ü", "b", Ok("a; b"))?;
    gives("a;", "a; b", "c", Err(0))
}

fn two_places() -> Result<(), String> {
    gives("f(); // g();\ng(); f();", "f();", "", Err(2))?;
    gives("f(); // g();\ng(); f();", "g();", "h();", Ok("f(); // g();\nh(); f();"))?;
    equal(&places("aaa", "a a")[..], &[0..2, 1..3])
}
