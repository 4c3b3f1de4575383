//! Snapshots of rendered text: the beginning of a generated file, its header and constants.
//!
//! After an intended change of a template or a default tile: `INSTA_UPDATE=always cargo test --test render`, and read
//! the difference. The body is not in the snapshots; it is compiled and run by other tests.

use kgen::{
    family::attention::{Kind, Point},
    kernel::{Dtype, Features, HeadDim, Target},
    plan::Plan,
    render::{Renderer, Templates},
};

fn render(head_dim: u32, dtype: Dtype, causal: bool) -> String {
    render_for(Target::Sm80, head_dim, dtype, causal)
}

fn render_for(target: Target, head_dim: u32, dtype: Dtype, causal: bool) -> String {
    let variant = Point { kind: Kind::Fwd, head_dim: HeadDim::equal(head_dim), dtype, causal, features: Features::NONE, target };
    let plan = Plan::new(variant, None).expect("has a plan");
    Renderer::new(&Templates::embedded()).expect("templates parse").kernel(&plan).expect("renders").text
}

/// The text up to the first definition, without the version, which changes with every release.
fn opening(text: &str) -> String {
    let is_definition = |line: &str| ["struct ", "template", "KGEN_DEVICE"].iter().any(|word| line.starts_with(word));
    let lines: Vec<&str> = text.lines().take_while(|line| !is_definition(line)).collect();
    lines.join("\n").replace(env!("CARGO_PKG_VERSION"), "<version>")
}

#[test]
fn head_dim_64_bf16_full() {
    insta::assert_snapshot!(opening(&render(64, Dtype::Bf16, false)));
}

#[test]
fn head_dim_128_bf16_causal() {
    insta::assert_snapshot!(opening(&render(128, Dtype::Bf16, true)));
}

#[test]
fn head_dim_72_fp16_full() {
    insta::assert_snapshot!(opening(&render(72, Dtype::Fp16, false)));
}

#[test]
fn head_dim_224_fp8_causal_sm121() {
    insta::assert_snapshot!(opening(&render_for(Target::Sm121, 224, Dtype::Fp8, true)));
}

#[test]
fn head_dim_40_fp8_full_sm89() {
    insta::assert_snapshot!(opening(&render_for(Target::Sm89, 40, Dtype::Fp8, false)));
}

#[test]
fn every_header_a_kernel_includes_is_there() {
    let templates = Templates::embedded();
    let text = render(128, Dtype::Bf16, true);
    let included: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("#include \"")?.strip_suffix('"')).collect();
    assert!(included.contains(&"kgen.h"));
    for header in included {
        assert!(templates.include_files().any(|(path, _)| path == header), "{header}");
    }
}

#[test]
fn only_a_causal_kernel_speaks_of_the_diagonal() {
    assert!(render(128, Dtype::Bf16, true).contains("diagonal"));
    assert!(!render(128, Dtype::Bf16, false).contains("diagonal"));
}
