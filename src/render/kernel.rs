//! Renders a plan to a kernel file.

use super::{RenderError, Templates, engine::Engine, includes::Vocabulary};
use crate::{
    family,
    files::content_hash,
    kernel::{Dtype, Target, Variant, capability_text},
    plan::{self, Plan},
};
use serde::Serialize;
use tera::Context;

/// A rendered kernel.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Source {
    /// The plan from which the source was rendered.
    pub plan: Plan,
    /// The variant's name; the file is `name + ".cu"`.
    pub name: String,
    /// The file's text, without trailing white space, ending in one newline.
    #[serde(skip)]
    pub text: String,
    /// BLAKE3 of `text`, in hexadecimal.
    pub hash: String,
}

/// Renders plans to text. The output depends only on the plan and the templates, so it is the same on every machine.
pub struct Renderer {
    pub(super) engine: Engine,
    vocabulary: Vocabulary,
}

impl Renderer {
    /// Parses every template.
    ///
    /// # Errors
    /// [`RenderError::Syntax`] with Tera's report when one does not parse.
    pub fn new(templates: &Templates) -> Result<Self, RenderError> {
        let (engine, vocabulary) = rayon::join(|| Engine::of(templates.rendered()), || Vocabulary::new(templates));
        Ok(Self { engine: engine?, vocabulary })
    }

    /// The kernel of `plan`, for a file named after the variant beside `include/`.
    ///
    /// # Errors
    /// [`RenderError::Template`] when the template is missing or uses a variable that the context lacks.
    pub fn kernel(&self, plan: &Plan) -> Result<Source, RenderError> {
        self.kernel_in_file(plan, &file_name(&plan.variant))
    }

    /// Like [`kernel`](Self::kernel), for a file with another name: the compile line in its header comment uses that
    /// name.
    ///
    /// # Errors
    /// The errors of [`kernel`](Self::kernel).
    pub fn kernel_in_file(&self, plan: &Plan, file_name: &str) -> Result<Source, RenderError> {
        let name = plan.variant.name();
        let template = plan.template;
        let mut context = Context::new();
        context.insert("plan", plan);
        context.insert("name", &name);
        context.insert("target", &TargetWords::of(plan.compiled_for()));
        context.insert("template", template.rsplit('/').next().unwrap_or(template));
        context.insert("compile_line", &compile_line(plan, file_name));
        context.insert("dtype_constant", dtype_constant(plan.variant.dtype()));
        for (word, value) in family::of(plan.variant.kind()).words(plan) {
            context.insert(word, &value);
        }
        let mut text = self.vocabulary.include_into(&self.engine.render(template, context)?);
        if let Some(target) = plan.run_as {
            let note = format!(
                "//\n// Built to run as {target}: portable instructions only, to try this kernel on a GPU of another kind.\n"
            );
            text.insert_str(text.find('\n').map_or(0, |end| end + 1), &note);
        }
        let hash = content_hash(&text);
        Ok(Source { plan: plan.clone(), name, text, hash })
    }

    /// The text of a program that is no variant: of the template at a path below `templates/`, with these words.
    ///
    /// # Errors
    /// [`RenderError::Template`] when the template is missing or uses a variable that `words` lacks.
    pub fn program(&self, template: &str, words: &serde_json::Map<String, serde_json::Value>) -> Result<String, RenderError> {
        let mut context = Context::new();
        for (word, value) in words {
            context.insert(word.clone(), value);
        }
        Ok(self.vocabulary.include_into(&self.engine.render(template, context)?))
    }
}

/// A target's words for templates.
#[derive(Serialize)]
struct TargetWords {
    name: &'static str,
    /// `8.0`
    capability: String,
    /// `compute capability 8.0 and newer`, `compute capability 12.0 and 12.1`.
    runs_on: String,
}

impl TargetWords {
    fn of(target: Target) -> Self {
        let capability = capability_text(target.compute_capability());
        let runs_on = if target.carries_ptx() {
            format!("compute capability {capability} and newer")
        } else {
            format!("compute capability {}", plan::capabilities_of_machine_code(target).join(" and "))
        };
        Self { name: target.name(), capability, runs_on }
    }
}

/// File name of a kernel in a generated folder.
pub fn file_name(variant: &Variant) -> String {
    variant.name() + ".cu"
}

/// Command line that compiles `file_name` alone, run in the folder that contains it and `include/`.
pub(super) fn compile_line(plan: &Plan, file_name: &str) -> String {
    let mut words = compile_words(plan);
    words.extend(["-c".to_owned(), file_name.to_owned()]);
    plan::shell_words(&words)
}

/// nvcc with the flags for a kernel, without files.
pub(super) fn compile_words(plan: &Plan) -> Vec<String> {
    let mut words = vec!["nvcc".to_owned()];
    words.extend(plan::nvcc_flags(plan.compiled_for(), true));
    words.push("-Iinclude".to_owned());
    words
}

/// The constant of an element type in `kgen.h`; for a kernel that serves all types, the constant with value 0.
pub(super) fn dtype_constant(dtype: Option<Dtype>) -> &'static str {
    match dtype.unwrap_or(Dtype::Fp16) {
        Dtype::Fp16 => "KGEN_DTYPE_FP16",
        Dtype::Bf16 => "KGEN_DTYPE_BF16",
        Dtype::Fp8 => "KGEN_DTYPE_FP8_E4M3",
        Dtype::Fp32 => "KGEN_DTYPE_FP32",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        family::attention::{Kind, Point, TileChange},
        kernel::{Features, HeadDim},
    };

    fn plan(head_dim: u32, dtype: Dtype, causal: bool) -> Plan {
        let variant = Point {
            kind: Kind::Fwd,
            head_dim: HeadDim::equal(head_dim),
            dtype,
            causal,
            features: Features::NONE,
            target: Target::Sm80,
        };
        Plan::new(variant, None).expect("has a plan")
    }

    fn renderer() -> Renderer {
        Renderer::new(&Templates::embedded()).expect("templates parse")
    }

    #[test]
    fn every_head_dim_dtype_mask_and_pipeline_renders_to_tidy_text() {
        let renderer = renderer();
        for head_dim in (16..=256).step_by(8) {
            for (dtype, causal, stages) in [(Dtype::Fp16, false, 1), (Dtype::Bf16, true, 2)] {
                let variant = Point {
                    kind: Kind::Fwd,
                    head_dim: HeadDim::equal(head_dim),
                    dtype,
                    causal,
                    features: Features::NONE,
                    target: Target::Sm80,
                };
                let narrow = TileChange {
                    m: Some(64),
                    n: Some(32),
                    warps: Some(4),
                    stages: Some(stages),
                    min_blocks_per_sm: Some(1),
                    ..TileChange::default()
                };
                let plan = Plan::changed(variant, &narrow).expect("fits");
                let source = renderer.kernel(&plan).expect("renders");
                assert!(source.text.lines().all(|line| line == line.trim_end()), "{}", source.name);
                assert!(source.text.ends_with("}\n") && !source.text.ends_with("\n\n"), "{}", source.name);
                assert!(!source.text.contains("{{") && !source.text.contains("{%"), "{}", source.name);
                assert!(source.text.contains(&format!("extern \"C\" int {}(", source.name)));
            }
        }
    }

    #[test]
    fn a_kernel_built_to_run_elsewhere_keeps_its_name_and_says_so() {
        let plan = plan(64, Dtype::Bf16, false).to_run_as(Target::Sm90).expect("has a portable form");
        let text = renderer().kernel(&plan).expect("renders").text;
        assert!(text.starts_with("// flash_fwd_hdim64_bf16_sm80\n//\n// Built to run as sm90: "), "{text}");
        assert!(text.contains("-gencode arch=compute_90a,code=sm_90a") && text.contains("int flash_fwd_hdim64_bf16_sm80("));
    }

    #[test]
    fn rendering_is_pure() {
        let plan = plan(128, Dtype::Bf16, true);
        let (first, second) = (renderer().kernel(&plan).expect("renders"), renderer().kernel(&plan).expect("renders"));
        assert_eq!(first, second);
        assert_eq!(first.hash, content_hash(&first.text));
    }

    #[test]
    fn the_identity_of_a_kernel_is_what_its_plan_says() {
        let causal = renderer().kernel(&plan(72, Dtype::Fp16, true)).expect("renders").text;
        assert!(
            causal.contains("\"flash_fwd_hdim72_fp16_causal_sm80\", HEAD_DIM, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL}"),
            "{causal}"
        );
        let full = renderer().kernel(&plan(64, Dtype::Bf16, false)).expect("renders").text;
        assert!(full.contains("KGEN_DTYPE_BF16, 0}"), "{full}");
    }

    #[test]
    fn only_first_stage_regions_become_constants() {
        let variant = Point {
            kind: Kind::Fwd,
            head_dim: HeadDim::equal(64),
            dtype: Dtype::Bf16,
            causal: false,
            features: Features::NONE,
            target: Target::Sm80,
        };
        let two = TileChange { n: Some(64), stages: Some(2), ..TileChange::default() };
        let text = renderer().kernel(&Plan::changed(variant, &two).expect("fits")).expect("renders").text;
        for constant in ["Q_OFFSET", "K_OFFSET", "V_OFFSET"] {
            assert_eq!(text.matches(&format!("constexpr uint32_t {constant} = ")).count(), 1, "{constant}");
        }
        assert!(text.contains("K (second stage) at "), "the comment names every region");
    }

    #[test]
    fn the_compile_line_names_the_file_it_stands_in() {
        let plan = plan(64, Dtype::Bf16, false);
        let line = "//   nvcc -O3 -std=c++17 -gencode \"arch=compute_80,code=[sm_80,compute_80]\" -Iinclude -c ";
        let text = renderer().kernel(&plan).expect("renders").text;
        assert!(text.contains(&format!("{line}flash_fwd_hdim64_bf16_sm80.cu\n")), "{text}");
        let text = renderer().kernel_in_file(&plan, "my own.cu").expect("renders").text;
        assert!(text.contains(&format!("{line}\"my own.cu\"\n")), "{text}");
    }

    #[test]
    fn a_word_a_template_is_not_given_is_an_error_that_shows_the_line() {
        let folder = tempfile::tempdir().expect("temporary folder");
        for (path, text) in [
            ("include/kgen.h", ""),
            ("bindings/kgen_dispatch.cpp.tera", ""),
            ("attention/fwd_sm80.cu.tera", "fine\n{{ plan.no_such_number }}\n"),
        ] {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().expect("has one")).expect("created");
            std::fs::write(path, text).expect("written");
        }
        let templates = Templates::from_dir(folder.path()).expect("complete");
        let error = Renderer::new(&templates).expect("parses").kernel(&plan(64, Dtype::Bf16, false)).expect_err("unknown word");
        let message = error.to_string();
        assert!(message.contains("fwd_sm80.cu.tera") && message.contains("no_such_number"), "{message}");
    }
}
