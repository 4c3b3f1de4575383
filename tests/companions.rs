//! The files beside a kernel of `kgen generate --output x.cu`: the test compiles by its own compile line and runs on
//! the emulator, passes, and fails if the kernel is wrong.

use assert_cmd::Command;
use predicates::{prelude::PredicateBooleanExt, str::contains};
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
    process::{self, Output},
    sync::OnceLock,
};
use tempfile::TempDir;

const NAME: &str = "flash_fwd_hdim64_fp16_causal_sm80";

fn kgen(folder: &Path, line: &str) -> assert_cmd::assert::Assert {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("kgen"));
    command.current_dir(folder).env_remove("KGEN_VARIANTS").env_remove("KGEN_TEMPLATES");
    command.args(line.split_whitespace()).assert()
}

/// A folder with a kernel in `my.cu`.
fn generated(selection: &str) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    kgen(folder.path(), &format!("generate {selection} --output my.cu")).success();
    folder
}

/// Runs a line in a shell.
fn shell(folder: &Path, line: &str) -> Output {
    process::Command::new("sh").args(["-c", line]).current_dir(folder).output().expect("a shell")
}

/// Runs a line that must succeed.
fn succeeds(folder: &Path, line: &str) {
    let done = shell(folder, line);
    assert!(done.status.success(), "{line}: {}", String::from_utf8_lossy(&done.stderr));
}

/// The words after `g++` of the line in the test's head that compiles it for the emulator.
fn compile_words(folder: &Path) -> String {
    let text = fs::read_to_string(folder.join("my_test.cpp")).expect("a test");
    let line = text.lines().find_map(|line| line.trim_start_matches([' ', '*']).strip_prefix("g++ "));
    line.expect("its compile line").to_owned()
}

/// The emulator's runtime as an object, compiled once: it is the same beside all kernels.
fn runtime(folder: &Path, flags: &str) -> &'static Path {
    static OBJECT: OnceLock<PathBuf> = OnceLock::new();
    OBJECT.get_or_init(|| {
        let object = Path::new(env!("CARGO_TARGET_TMPDIR")).join("companion_runtime.o");
        let own = object.with_extension(process::id().to_string());
        succeeds(folder, &format!("c++ {flags} -c emulator/runtime.cpp -o {}", own.display()));
        fs::rename(own, &object).expect("renamed");
        object
    })
}

/// A kernel and its test. Objects that bugs do not change are compiled once.
struct Tested {
    folder: TempDir,
    /// The flags of the compile line.
    flags: String,
    /// Those for the kernel and its test, which run for less time than `-O1` takes to compile them.
    quick: String,
    kernel: String,
}

impl Tested {
    fn of(selection: &str) -> Self {
        let folder = generated(selection);
        let words = compile_words(folder.path());
        let flags = words.split_once(" my.cu ").expect("flags, then files").0.to_owned();
        let quick = flags.replace("-O1", "-Og");
        succeeds(folder.path(), &format!("c++ {quick} -c my_test.cpp -o my_test.o"));
        let kernel = fs::read_to_string(folder.path().join("my.cu")).expect("a kernel");
        Self { folder, flags, quick, kernel }
    }

    /// What the test says of a kernel with this text, in cases whose names contain `case`.
    fn said_of(&self, kernel: &str, case: &str) -> (Option<i32>, String) {
        let (folder, quick) = (self.folder.path(), &self.quick);
        fs::write(folder.join("my.cu"), kernel).expect("written");
        let runtime = runtime(folder, &self.flags).display();
        succeeds(folder, &format!("c++ {quick} -c my.cu -o my.o && c++ my.o my_test.o {runtime} -o my_test"));
        let done = shell(folder, &format!("./my_test '{case}'"));
        (done.status.code(), String::from_utf8_lossy(&done.stdout).into_owned())
    }
}

/// An error in a kernel: a case that must fail, a text, and what replaces it where it is first.
type Bug = (&'static str, &'static str, &'static str);

/// The test of a kernel passes, and the case of each error fails with the error.
fn passes_and_finds(selection: &str, bugs: &[Bug]) {
    let tested = Tested::of(selection);
    let (code, said) = tested.said_of(&tested.kernel, "");
    assert!(code == Some(0) && said.contains(": 0 of "), "{said}");
    for case in ["tails", "not aligned", "V not aligned", "lengths, padded", "lengths, packed", "more queries than keys"] {
        assert!(said.contains(case), "{case}: {said}");
    }
    for (case, find, replace) in bugs {
        assert!(tested.kernel.contains(find), "{selection} has no `{find}`");
        let (code, said) = tested.said_of(&tested.kernel.replacen(find, replace, 1), case);
        assert!(code == Some(1) && said.contains("FAIL"), "{selection}, `{find}`, `{replace}`: {said}");
    }
}

#[test]
fn the_compile_line_in_the_head_makes_a_program_that_selects_cases() {
    let folder = generated(NAME);
    succeeds(folder.path(), &format!("c++ {}", compile_words(folder.path())));
    let run = |argument: &str| shell(folder.path(), &format!("./my_test {argument}"));
    let said = |done: &Output| String::from_utf8_lossy(&done.stdout).into_owned();
    let (all, one, none) = (run(""), run("tails"), run("nothing"));
    assert!(all.status.success() && said(&all).ends_with(&format!("{NAME}: 0 of 8 cases failed\n")), "{all:?}");
    assert!(one.status.success() && said(&one).ends_with(&format!("{NAME}: 0 of 1 cases failed\n")), "{one:?}");
    assert!(none.status.code() == Some(2) && String::from_utf8_lossy(&none.stderr).contains("no case"), "{none:?}");
}

#[test]
fn forward_for_ampere() {
    let bugs = [
        ("tails", "LN_2 = 0.69314", "LN_2 = 0.69414"),
        ("more queries", "diagonal + warp_row", "diagonal + 1 + warp_row"),
        ("one query", "min(keys.rows, diagonal)) / BLOCK_N", "min(keys.rows, diagonal) + 1) / BLOCK_N"),
        ("one query", "head / (p.num_heads / p.num_heads_k)", "head % p.num_heads_k"),
        ("tails", "p.softmax_scale * LOG2_E", "0.125f * LOG2_E"),
        // Strides of K and V.
        ("tails", "(to, v, p.v_row_stride", "(to, v, p.k_row_stride"),
        ("tails", "head_k, p.v_batch_stride", "head_k, p.k_batch_stride"),
        ("tails", "p.v_row_stride, p.v_head_stride", "p.v_row_stride, p.k_head_stride"),
        // Rows without keys: LSE, and O.
        ("padded", "sum == 0.0f ? -infinity() :", "sum == 0.0f ? 0.0f :"),
        ("packed", "sum == 0.0f ? 0.0f : reciprocal", "reciprocal"),
        ("V not aligned", "fwd_is_aligned(params) ? attention<true> : attention<false>", "attention<true>"),
        // Lengths, reads and writes beyond the end.
        ("padded", "p.cu_seqlens_k, p.seqused_k", "p.cu_seqlens_k, nullptr"),
        ("tails", "(to, k, p.k_row_stride, tile * BLOCK_N, keys.rows)", "(to, k, p.k_row_stride, tile * BLOCK_N, 1 << 30)"),
        ("tails", "warp_row, valid_rows);", "warp_row, BLOCK_M);"),
        ("packed", "(queries.packed ? queries.first_row : batch * p.lse_batch_stride)", "batch * p.lse_batch_stride"),
        ("tails", "head * p.lse_head_stride", "head * p.seqlen_q"),
    ];
    passes_and_finds(NAME, &bugs);
}

#[test]
fn forward_for_hopper() {
    let bugs = [("one query", "LN_2 = 0.69314", "LN_2 = 0.69414"), ("whole tiles", "LOG2_E = 1.4", "LOG2_E = 1.3")];
    passes_and_finds("flash_fwd_hdim64_bf16_sm90", &bugs);
}

#[test]
fn forward_with_all_masks_and_scores() {
    let bugs = [
        ("tails", "LN_2 = 0.69314", "LN_2 = 0.69914"),
        ("tails", "batch * p.features.alibi_batch_stride", "0 * p.features.alibi_batch_stride"),
        ("tails", "position - p.features.window_left :", "position - p.features.window_left + 1 :"),
        ("tails", "LOG2_E * read_sink(p, head)", "LOG2_E * read_sink(p, 0)"),
    ];
    passes_and_finds("flash_fwd_hdim64_bf16_window_softcap_alibi_sinks_sm80", &bugs);
}

#[test]
fn forward_with_pages() {
    let bugs = [
        ("one query", "work.head / (p.num_heads / p.num_heads_k)", "work.head % p.num_heads_k"),
        ("padded", "work.head * p.lse_head_stride + row, -infinity()", "work.head * p.lse_head_stride + row, 0.0f"),
        ("tails", "work.head, p.o_batch_stride", "work.head, p.q_batch_stride"),
        // A counter that the next call finds wrong.
        ("one query", "atomic_exchange(counter + 1, 0u)", "atomic_exchange(counter + 1, 1u)"),
    ];
    passes_and_finds("flash_fwd_hdim64_bf16_causal_paged_sm90", &bugs);
}

#[test]
fn forward_with_caches() {
    let bugs = [("tails", "batch, head_k, p.v_batch_stride", "batch, head_k, p.k_batch_stride")];
    passes_and_finds("--head-dim 64 --dtype bf16 --causal --kind fwd --features cache --target sm80", &bugs);
    let bugs = [
        (
            "whole tiles",
            "descale_of(p.k_descale, batch, head_k, p.k_descale_batch_stride",
            "descale_of(p.k_descale, 0, head_k, 0",
        ),
        ("tails", "multiply_columns(s, descales_of(tile));", ""),
        ("tails", "descales_of(tile) + DESCALES_BYTES, descales.v", "descales_of(tile) + DESCALES_BYTES, descales.k"),
    ];
    let selection = "--head-dim 64 --dtype bf16 --causal --kind fwd --features paged,kv_e4m3,page_descale --target sm80";
    passes_and_finds(selection, &bugs);
}

#[test]
fn forward_in_fp8() {
    let bugs = [
        ("whole tiles", "v_descale * reciprocal(sum)", "reciprocal(sum)"),
        (
            "whole tiles",
            "descale_of(p.q_descale, batch, head_k, p.q_descale_batch",
            "descale_of(p.k_descale, batch, head_k, p.k_descale_batch",
        ),
        ("tails", "p.v_descale_batch_stride, p.v_descale_head_stride", "p.v_descale_batch_stride, p.k_descale_head_stride"),
        ("tails", "- P_EXPONENT", ""),
        ("V not aligned", "fwd_is_aligned(params, sizeof(e4m3))", "fwd_is_aligned(params)"),
    ];
    passes_and_finds("flash_fwd_hdim64_fp8_sm89", &bugs);
    passes_and_finds("flash_fwd_hdim64_fp8_sm90", &[("tails", "LOG2_E = 1.44", "LOG2_E = 1.43")]);
}

#[test]
fn forward_with_a_bias_and_dropout() {
    let bugs = [
        ("tails", "read_bias(p, batch, head,", "read_bias(p, 0, head,"),
        ("tails", "head, queries.rows, keys.rows", "head, 1 << 20, 1 << 20"),
        ("tails", "read_dropout(p, batch, head)", "read_dropout(p, 0, head)"),
        ("tails", "factor_of_kept(p) * inverse_of_sum(sum)", "inverse_of_sum(sum)"),
    ];
    passes_and_finds("--head-dim 64 --dtype bf16 --full --kind fwd --features bias,dropout --target sm80", &bugs);
}

#[test]
fn short_forward() {
    passes_and_finds("flash_fwd_short_hdim64_bf16_causal_sm90", &[("tails", "LN_2 = 0.69314", "LN_2 = 0.69414")]);
}

#[test]
fn split() {
    let bugs = [
        ("tails", "LN_2 = 0.69314", "LN_2 = 0.69414"),
        ("keys split", "weight(of_split) * inverse", "inverse"),
        ("keys split", "if (last) reduce_add(arrived", "if (false) reduce_add(arrived"),
        ("V not aligned", "aligned ? attention_split<true> : attention_split<false>", "attention_split<true>"),
    ];
    passes_and_finds("flash_fwd_split_hdim64_bf16_causal_sm80", &bugs);
    passes_and_finds("flash_fwd_split_hdim128_bf16_causal_paged_sm80", &[]);
}

#[test]
fn split_that_appends_to_an_fp8_cache() {
    let bugs = [
        ("tails", "p.v_head_stride, p.v_batch_stride", "p.v_head_stride, p.k_batch_stride"),
        ("tails", "row * p.v_new_row_stride", "row * p.k_new_row_stride"),
        ("tails", "tables.interleaved, 1.0f / descale", "tables.interleaved, 1.0f"),
        ("padded", "tables.interleaved, 1.0f / descale", "false, 1.0f / descale"),
        ("tails", "? -1 : rotary_position(", "? -1 : 1 + rotary_position("),
        ("packed", "append_rows(INT32_MIN, INT32_MAX, in_turn);", ""),
        (
            "padded",
            "split_lse(p, partial_row(p, work, queries, row)), -infinity()",
            "split_lse(p, partial_row(p, work, queries, row)), 0.0f",
        ),
    ];
    let selection = "--head-dim 64 --dtype bf16 --causal --kind fwd_split --features paged,kv_e4m3,append --target sm80";
    passes_and_finds(selection, &bugs);
}

#[test]
fn split_with_queries_of_two_parts() {
    let bugs = [("tails", "head, p.qv_batch_stride", "head, p.q_batch_stride")];
    passes_and_finds("--head-dim 64_512 --dtype bf16 --causal --kind fwd_split --features qv --target sm90", &bugs);
}

#[test]
fn backward() {
    let bugs = [
        ("one query", "LOG2_E = 1.4", "LOG2_E = 1.3"),
        ("one query", "block / n_blocks % p.num_heads_k", "0 * p.num_heads_k"),
        ("one query", "load_global(at) * p.softmax_scale", "load_global(at) * 0.125f"),
        ("one query", "head_k, p.v_batch_stride", "head_k, p.k_batch_stride"),
        ("one query", "batch, head, p.o_batch_stride", "batch, head, p.dout_batch_stride"),
        ("one query", "row_stride = p.dv_row_stride", "row_stride = p.dk_row_stride"),
        // The gradient of LSE, which is NaN for rows without keys.
        ("one query", "p.dlse != nullptr", "false"),
        ("one query", "head * p.dlse_head_stride", "head * p.lse_head_stride"),
        ("more queries", "&& row_lse != -infinity()", ""),
        ("V not aligned", "bwd_is_aligned(p)", "true"),
        // The deterministic dQ.
        ("one query", "head / (p.num_heads / p.num_heads_k)", "head % p.num_heads_k"),
        ("more queries", "diagonal + warp_row + h * 8", "diagonal + 1 + warp_row + h * 8"),
        ("one query", "(dq, p.softmax_scale", "(dq, 0.125f"),
    ];
    passes_and_finds("flash_bwd_hdim64_bf16_causal_sm80", &bugs);
    let bugs = [
        ("tails", "key + 1 + p.features.window_left", "key + p.features.window_left"),
        ("tails", "? key - p.features.window_right :", "? key - p.features.window_right + 1 :"),
    ];
    passes_and_finds("flash_bwd_hdim64_bf16_window_softcap_alibi_sinks_sm80", &bugs);
}

/// A score and a mask that use all that a call passes.
const DECLARED: &str = "--head-dim 64 --dtype bf16 --full --target sm80 --score s-decay*slope[h]*abs(q-k)+0.1*s*s --mask \
                        q-k<width --scalars decay --integers width --tables slope";

#[test]
fn forward_with_a_declared_score() {
    let bugs = [
        ("tails", "p.score.scalars[0]", "p.score.scalars[1]"),
        ("tails", "p.score.tables[0] + head", "p.score.tables[0]"),
        ("tails", "0.1f * s * s", "0.1f * s"),
        ("unequal lengths, packed", "static_cast<float>(abs(q - k))", "static_cast<float>(abs(q + 1 - k))"),
        // The first key that a query sees.
        ("one query", "q - declared.width + 1", "q - declared.width"),
    ];
    passes_and_finds(&format!("{DECLARED} --kind fwd"), &bugs);
}

#[test]
fn backward_with_a_declared_score() {
    let bugs = [
        // The derivative alone.
        ("one query", "1.0f + (element0 + element0)", "1.0f + element0"),
        ("one query", "p.score.tables[0] + head", "p.score.tables[0]"),
        ("one query", "return q - k < declared.width", "return q - k <= declared.width"),
        // The first key that a query sees, for the deterministic dQ.
        ("not aligned", "q - declared.width + 1", "q - declared.width + 2"),
    ];
    passes_and_finds(&format!("{DECLARED} --kind bwd"), &bugs);
}

#[test]
fn backward_with_a_bias_dropout_and_sinks() {
    let bugs = [
        ("one query", "is_value_warp ? factor_of_kept(p)", "is_value_warp ? 1.0f"),
        ("one query", "read_dropout(p, again.batch, head)", "read_dropout(p, 0, head)"),
        ("one query", "drop(dp, dropped, warp_query, first_key);", ""),
        ("one query", "p.dbias + batch * p.dbias_batch_stride", "p.dbias"),
        ("padded", "if (bias_rows > 0) {", "if (false) {"),
        ("one query", "store_global(p.dsinks + head, -sum)", "store_global(p.dsinks + head, sum)"),
    ];
    let selection = "--head-dim 64 --dtype bf16 --causal --kind bwd --features bias,dropout,sinks --target sm80";
    passes_and_finds(selection, &bugs);
}

#[test]
fn predictions_and_the_explanation_are_those_of_the_commands() {
    let folder = generated(NAME);
    let read = |file: &str| fs::read_to_string(folder.path().join(file)).expect("readable");
    let prediction: Value = serde_json::from_str(&read("my.prediction.json")).expect("JSON");
    let calls = prediction["calls"].as_array().expect("a list");
    assert!(calls.iter().all(|call| call["name"] == NAME) && calls.iter().any(|call| call["gpu"] == "a100"), "{calls:?}");
    assert!(!calls.iter().any(|call| call["gpu"] == "h100"), "its machine code does not run there");
    let printed = kgen(folder.path(), &format!("predict {NAME} --gpu a100 --format json")).success();
    let printed: Value = serde_json::from_slice(&printed.get_output().stdout).expect("JSON");
    let of_card: Vec<&Value> = calls.iter().filter(|call| call["gpu"] == "a100").collect();
    assert_eq!(of_card, printed["calls"].as_array().expect("a list").iter().collect::<Vec<_>>());
    let page = read("my.md");
    assert!(page.starts_with(&format!("# {NAME}\n")) && page.contains("## Why this tile"), "{page}");
    assert!(page.contains("## Optimisations") && page.contains("K-012"), "{page}");
}

#[test]
fn a_kernel_without_a_test_has_a_note_that_says_why() {
    let folder = tempfile::tempdir().expect("a folder");
    for (file, selection, why) in [
        ("combine", "flash_fwd_combine_sm80", "kernels of the kind `fwd_combine`"),
        ("norm", "rmsnorm_bf16_sm80", "kernels of the kind `rmsnorm`"),
    ] {
        let done = kgen(folder.path(), &format!("generate {selection} --output {file}.cu")).success();
        done.stderr(contains(format!("no `{file}_test.cpp` of")).and(contains(format!("{why} have no test of their own"))));
        assert!(!folder.path().join(format!("{file}_test.cpp")).exists());
        assert!(folder.path().join(format!("{file}.md")).exists());
    }
    assert!(!folder.path().join("combine.prediction.json").exists());
    assert!(folder.path().join("norm.prediction.json").exists());
}

#[test]
fn companions_are_left_out_compared_and_never_overwritten_if_they_are_not_kgens() {
    let folder = tempfile::tempdir().expect("a folder");
    let line = format!("generate {NAME} --output my.cu");
    kgen(folder.path(), &format!("{line} --no-companions")).success();
    for absent in ["my.md", "my_test.cpp", "my.prediction.json", "emulator"] {
        assert!(!folder.path().join(absent).exists(), "{absent}");
    }
    kgen(folder.path(), &format!("{line} --no-companions --check")).success();
    kgen(folder.path(), &format!("{line} --check")).code(1).stdout(contains("`my_test.cpp` is missing"));
    for file in ["my_test.cpp", "my.md", "my.prediction.json"] {
        fs::write(folder.path().join(file), "mine\n").expect("written");
        kgen(folder.path(), &line).code(2).stderr(contains(format!("`{file}`")));
        assert_eq!(fs::read(folder.path().join(file)).expect("readable"), b"mine\n");
        fs::remove_file(folder.path().join(file)).expect("removed");
    }
    kgen(folder.path(), &line).success();
    kgen(folder.path(), &format!("{line} --check")).success();
    kgen(folder.path(), &line).success().stdout(contains("0 files written"));
    let test = folder.path().join("my_test.cpp");
    let edited = fs::read_to_string(&test).expect("a test") + "// mine\n";
    fs::write(&test, &edited).expect("written");
    kgen(folder.path(), &line).success();
    assert_eq!(fs::read_to_string(folder.path().join("my_test.cpp.edited")).expect("a copy"), edited);
    // Another kernel in the file replaces them, and none is taken for edited.
    kgen(folder.path(), "generate flash_fwd_hdim64_fp16_sm80 --output my.cu").success();
    assert!(!folder.path().join("my.md.edited").exists() && !folder.path().join("my_test.cpp.edited-2").exists());
    // A kernel that has no test does not keep that of the kernel before.
    kgen(folder.path(), "generate rmsnorm_bf16_sm80 --output my.cu").success();
    assert!(!test.exists() && folder.path().join("my.md").exists());
}
