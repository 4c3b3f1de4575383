//! Tests of the layout of statements, and that it changes only white space and comments of the grid's kernels.

use super::{COLUMNS, layout, width};
use crate::{
    grid::Grid,
    plan::Plan,
    render::{Renderer, Templates},
};

/// The code of a text without white space outside strings, and the words of its comments.
fn content(text: &str) -> (String, Vec<&str>) {
    let (mut code, mut words) = (String::new(), Vec::new());
    for line in text.lines() {
        let (mut in_string, mut escaped) = (false, false);
        for (at, character) in line.char_indices() {
            if !in_string && line[at..].starts_with("//") {
                words.extend(line[at..].trim_start_matches('/').split_whitespace());
                break;
            }
            in_string ^= character == '"' && !escaped;
            escaped = character == '\\' && !escaped;
            if in_string || !character.is_whitespace() {
                code.push(character);
            }
        }
    }
    (code, words)
}

#[test]
fn kernels_of_the_grid_fit_and_differ_from_their_templates_text_in_white_space_only() {
    let laid_out = Renderer::new(&Templates::embedded()).expect("templates parse");
    let mut unlaid = Renderer::new(&Templates::embedded()).expect("templates parse");
    unlaid.engine.lay_out = str::to_owned;
    let grid = Grid::builtin();
    for variant in grid.variants() {
        let plan = Plan::new(*variant, grid.tile_override(variant).as_ref()).expect("fits");
        let before = unlaid.kernel(&plan).expect("renders").text;
        let after = laid_out.kernel(&plan).expect("renders").text;
        assert!(content(&before) == content(&after), "{}", variant.name());
        assert_eq!(layout(&after), after, "{}", variant.name());
        let wide: Vec<&str> = after.lines().filter(|line| width(line) > COLUMNS).collect();
        assert!(wide.is_empty(), "{}: {wide:#?}", variant.name());
    }
}

#[test]
fn headers_have_been_laid_out() {
    let templates = Templates::embedded();
    for (path, text) in templates.include_files().filter(|(path, _)| *path != "kgen.h") {
        let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("templates/include").join(path);
        if std::env::var_os("KGEN_UPDATE_LAYOUT").is_some() {
            std::fs::write(file, layout(text)).expect("writable");
        } else {
            assert_eq!(layout(text), text, "KGEN_UPDATE_LAYOUT=1 cargo test --lib layout: {path}");
        }
    }
}

#[track_caller]
fn becomes(before: &str, after: &str) {
    assert_eq!(layout(before), after);
    assert_eq!(content(before), content(after));
    assert_eq!(layout(after), after, "a second time");
}

#[test]
fn lines_that_fit_stay() {
    let text = "  f( a,b );  // as it is\n#define X(a) \\\n    a\n\n/* so\n   long */\n";
    becomes(text, text);
}

#[test]
fn a_call_breaks_at_its_commas() {
    becomes(
        "    copy_tile<query_tile, HEAD_DIM, THREADS, VECTOR>(stage + DOUT_OFFSET, dout, \
             p.dout_row_stride, tile * BLOCK_M, rows);\n",
        concat!(
            "    copy_tile<query_tile, HEAD_DIM, THREADS, VECTOR>(stage + DOUT_OFFSET, dout, \
             p.dout_row_stride, tile * BLOCK_M,\n",
            "                                                     rows);\n",
        ),
    );
}

#[test]
fn a_statement_goes_behind_its_condition() {
    becomes(
        "    if (p.features.sinks_dtype == KGEN_DTYPE_FP32) return load_global(static_cast<const \
             float*>(p.features.sinks) + head_q);\n",
        concat!(
            "    if (p.features.sinks_dtype == KGEN_DTYPE_FP32)\n",
            "        return load_global(static_cast<const float*>(p.features.sinks) + head_q);\n",
        ),
    );
}

#[test]
fn a_block_on_one_line_gets_lines_of_its_own() {
    becomes(
        "extern \"C\" size_t flash_bwd_hdim96_bf16_sm100_workspace(const kgen_bwd_params* given) { return \
             workspace(given, SELF, TILING); }\n",
        concat!(
            "extern \"C\" size_t flash_bwd_hdim96_bf16_sm100_workspace(const kgen_bwd_params* given) {\n",
            "    return workspace(given, SELF, TILING);\n",
            "}\n",
        ),
    );
}

#[test]
fn an_expression_breaks_outside_its_calls() {
    becomes(
        "    const float* lse = p.lse + (queries.packed ? queries.first_row : batch * p.lse_batch_stride) \
             + head * p.lse_head_stride;\n",
        concat!(
            "    const float* lse = p.lse + (queries.packed ? queries.first_row : batch * p.lse_batch_stride) \
             +\n",
            "                       head * p.lse_head_stride;\n",
        ),
    );
}

#[test]
fn a_statement_of_several_lines_is_laid_out_as_a_whole() {
    becomes(
        concat!(
            "        return fail(KGEN_ERROR_INVALID_VALUE, \"%s: batch %d, seqlen_q %d, seqlen_k %d must lie \
             in 0 .. %d\", name, params.batch,\n",
            "                    params.seqlen_q, longest);\n",
        ),
        concat!(
            "        return fail(KGEN_ERROR_INVALID_VALUE, \"%s: batch %d, seqlen_q %d, seqlen_k %d must lie \
             in 0 .. %d\", name,\n",
            "                    params.batch, params.seqlen_q, longest);\n",
        ),
    );
}

#[test]
fn a_comment_behind_a_long_line_goes_above_it_and_strings_stay_whole() {
    becomes(
        "    f(\"a // b\");  // a string that looks like a comment and a comment that is longer than its \
             line has room for at its end\n",
        concat!(
            "    // a string that looks like a comment and a comment that is longer than its line has room \
             for at its end\n",
            "    f(\"a // b\");\n",
        ),
    );
}

#[test]
fn a_comment_wraps_into_the_line_that_goes_on_with_it() {
    let words = "word ".repeat(23);
    becomes(
        &format!("// {words}another one\n// and the end.\n// Next.\n"),
        &format!("// {words}\n// another one and the end.\n// Next.\n").replace(" \n", "\n"),
    );
}

#[test]
fn the_dispatcher_for_a_compiler_alone_differs_in_white_space_only() {
    let templates = Templates::embedded();
    let grid = Grid::builtin();
    let plans: Vec<Plan> = grid.variants()[..40].iter().map(|variant| Plan::new(*variant, None).expect("fits")).collect();
    let laid_out = Renderer::new(&templates).and_then(|renderer| renderer.dispatcher(&plans)).expect("renders");
    let plain = crate::render::dispatcher(&templates, &plans).expect("renders");
    assert!(plain != laid_out && content(&plain) == content(&laid_out));
}
