//! Plants each fault of `tests/emulator/*faults.toml` in generated kernels and asserts that `kgen check` on the
//! emulator rejects it the way the fault is expected to show. This is what a pass on the emulator is worth.

use kgen::{
    check::{CheckOptions, CheckRequest, DEFAULT_SEED, Kernel, Level, Status, Tiling, Verdict, run},
    device::EmulatorKit,
    family::attention::Kind,
    grid::{Dtype, Grid, Variant},
    plan::Plan,
    render::{Renderer, Templates},
    toolchain::{Cancel, host_compiler},
};
use serde::Deserialize;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
    time::Duration,
};

/// One entry of the file, which explains the keys.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Fault {
    name: String,
    file: Files,
    find: String,
    replace: String,
    expect: String,
    layout: Option<String>,
    kernel: Option<String>,
    also: Option<[String; 2]>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum Files {
    One(String),
    Several(Vec<String>),
}

impl Files {
    fn all(&self) -> &[String] {
        match self {
            Self::One(file) => std::slice::from_ref(file),
            Self::Several(files) => files,
        }
    }
}

#[derive(Deserialize)]
struct Faults {
    fault: Vec<Fault>,
}

/// Everything the tests share.
struct Laboratory {
    templates: Templates,
    /// One kernel of each shape of the template that `kernels.toml` declares.
    kernels: Vec<(Plan, String)>,
    faults: Vec<Fault>,
    /// The same kernels with what a part renders between marks, for each part that a fault names.
    marked: BTreeMap<String, Vec<String>>,
    kit: EmulatorKit,
    cache: PathBuf,
}

fn laboratory() -> &'static Laboratory {
    static LABORATORY: OnceLock<Laboratory> = OnceLock::new();
    LABORATORY.get_or_init(|| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/emulator");
        let faults = fault_lists(&folder);
        let templates = Templates::embedded();
        let renderer = Renderer::new(&templates).expect("the templates parse");
        let grid = Grid::load(&folder.join("kernels.toml")).expect("the grid of the kernels reads");
        let one_a_shape =
            |v: &&Variant| v.kind() != Kind::Fwd.into() || v.causal() == Some(true) && v.dtype() != Some(Dtype::Bf16);
        let kernels = grid.variants().iter().filter(one_a_shape).map(|variant| {
            let plan = Plan::new(*variant, grid.tile_override(variant).as_ref()).expect("it has a plan");
            let text = renderer.kernel(&plan).expect("it renders").text;
            (plan, text)
        });
        let kernels: Vec<(Plan, String)> = kernels.collect();
        let named = faults.iter().flat_map(|fault| fault.file.all()).filter(|file| is_part(file)).cloned();
        let marked = named.collect::<BTreeSet<_>>().into_iter().map(|part| {
            let renderer = Renderer::new(&with_marks(&part)).expect("the templates parse");
            let texts = kernels.iter().map(|(plan, _)| renderer.kernel(plan).expect("it renders").text);
            (part, texts.collect())
        });
        let marked = marked.collect();
        let host = host_compiler().expect("a host compiler");
        // Kept between runs of the tests: everything in it is found by its content.
        let cache = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("faults");
        let (include, emulator) = (templates.include_files(), templates.emulator_files());
        let kit = EmulatorKit::new(&cache, include, emulator, &host, &Cancel::default()).expect("the emulator compiles");
        Laboratory { templates, kernels, faults, marked, kit, cache }
    })
}

/// The faults of every list, in the order of the lists' names.
fn fault_lists(folder: &Path) -> Vec<Fault> {
    let files = std::fs::read_dir(folder).expect("the folder is there").map(|entry| entry.expect("it can be read").path());
    let is_list = |path: &PathBuf| path.to_str().is_some_and(|path| path.ends_with("faults.toml"));
    let lists: BTreeSet<PathBuf> = files.filter(is_list).collect();
    let faults = lists.iter().flat_map(|list| {
        let text = std::fs::read_to_string(list).expect("the list of faults is there");
        toml::from_str::<Faults>(&text).expect("the list of faults reads as the header of faults.toml says").fault
    });
    faults.collect()
}

/// Whether a file of `templates/` is included by templates of kernels: it is none of them, nor a header.
fn is_part(file: &str) -> bool {
    Path::new(file).extension().is_some_and(|extension| extension == "tera") && !file.ends_with(".cu.tera")
}

/// What encloses the text that a part renders. Templates and C++ know neither.
const MARKS: [char; 2] = ['\u{1}', '\u{2}'];

/// The templates, with marks around what `part` renders.
fn with_marks(part: &str) -> Templates {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("templates");
    let folder = tempfile::tempdir().expect("temporary folder");
    let mut todo = vec![PathBuf::new()];
    while let Some(path) = todo.pop() {
        std::fs::create_dir_all(folder.path().join(&path)).expect("created");
        for entry in std::fs::read_dir(own.join(&path)).expect("the templates are there") {
            let path = path.join(entry.expect("it can be read").file_name());
            if own.join(&path).is_dir() {
                todo.push(path);
            } else {
                std::fs::copy(own.join(&path), folder.path().join(&path)).expect("copied");
            }
        }
    }
    let path = folder.path().join(part);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("a fault names `{part}`: {error}"));
    std::fs::write(&path, format!("{}{text}{}", MARKS[0], MARKS[1])).expect("written");
    Templates::from_dir(folder.path()).expect("complete")
}

/// The text with `find` replaced, wherever white space stands in either; `None` unless it occurs once.
fn replace_once(text: &str, [find, replace]: &[String; 2]) -> Option<String> {
    let kept: Vec<(usize, char)> = text.char_indices().filter(|(_, c)| !c.is_whitespace()).collect();
    let wanted: Vec<char> = find.chars().filter(|c| !c.is_whitespace()).collect();
    let starts = kept.windows(wanted.len()).enumerate().filter(|(_, window)| window.iter().map(|(_, c)| c).eq(&wanted));
    let [(first, _)] = starts.collect::<Vec<_>>()[..] else { return None };
    let (last, c) = kept[first + wanted.len() - 1];
    Some(format!("{}{replace}{}", &text[..kept[first].0], &text[last + c.len_utf8()..]))
}

impl Laboratory {
    fn check(&self, plan: &Plan, text: String, case: Option<&str>) -> Verdict {
        let options = CheckOptions {
            level: Level::Smoke,
            filter: case.map(str::to_owned),
            seed: DEFAULT_SEED,
            schedule: None,
            jobs: 1,
            gpu_jobs: 1,
            time_limit: Duration::from_secs(60),
            fresh: true,
            cache: self.cache.clone(),
            kit: Some(self.kit.clone()),
            gpu: None,
            program: PathBuf::from(env!("CARGO_BIN_EXE_kgen")),
        };
        let request = CheckRequest {
            variant: plan.variant,
            tiling: Tiling::of(plan),
            compiled_for: plan.compiled_for(),
            kernel: Kernel::Source(text),
        };
        run(&[request], &options, &()).pop().expect("one verdict")
    }

    /// A kernel with the fault of `file` in it; `None` where the fault does not concern it. A fault in a header is
    /// planted in a copy that takes the place of its `#include`.
    fn plant(&self, fault: &Fault, file: &str, place: usize) -> Option<String> {
        let (plan, kernel) = &self.kernels[place];
        let once = |text: &str| replace_once(text, &[fault.find.clone(), fault.replace.clone()]);
        let planted = if let Some(header) = file.strip_prefix("include/") {
            let (_, text) = self.templates.include_files().find(|(path, _)| *path == header).expect("the header is there");
            let line = format!("#include \"{header}\"\n");
            kernel.contains(&line).then_some(())?;
            kernel.replace(&line, &once(text)?)
        } else if is_part(file) {
            // Of several texts that a part renders in a kernel one must hold it.
            let pieces: Vec<&str> = self.marked[file][place].split(MARKS).collect();
            let planted = pieces.iter().enumerate().skip(1).step_by(2).filter_map(|(at, piece)| Some((at, once(piece)?)));
            let [(at, piece)] = &planted.collect::<Vec<_>>()[..] else { return None };
            let piece_at = |place: usize| if place == *at { piece.as_str() } else { pieces[place] };
            (0..pieces.len()).map(piece_at).collect()
        } else {
            (plan.template == file).then(|| once(kernel))??
        };
        match &fault.also {
            Some(also) => replace_once(&planted, also),
            None => Some(planted),
        }
    }

    /// The kernels with the fault in them: of every template that it concerns the first, and of a header's the first at
    /// all.
    fn planted(&self, fault: &Fault) -> Vec<(&Plan, String)> {
        let mut planted: Vec<(&Plan, String)> = Vec::new();
        for file in fault.file.all() {
            let mut concerned = BTreeSet::new();
            for (place, (plan, _)) in self.kernels.iter().enumerate() {
                let template = if file.starts_with("include/") { "" } else { plan.template };
                let is_asked = fault.kernel.as_ref().is_none_or(|part| plan.variant.name().contains(part));
                if !is_asked || concerned.contains(template) {
                    continue;
                }
                let Some(text) = self.plant(fault, file, place) else { continue };
                concerned.insert(template);
                planted.push((plan, text));
            }
            assert!(!concerned.is_empty(), "the fault concerns a kernel that has `{file}`: its `find` occurs once");
        }
        planted
    }

    /// Asserts that the check rejects the kernels that the fault concerns, and rejects them as expected.
    fn assert_caught(&self, name: &str) {
        let fault = self.faults.iter().find(|fault| fault.name == name).expect("a list holds it");
        for (plan, text) in self.planted(fault) {
            self.assert_rejected(fault, plan, text);
        }
    }

    fn assert_rejected(&self, fault: &Fault, plan: &Plan, text: String) {
        // "steep" asks for logits whose maximum grows with every tile, "low" for such far below zero.
        let case = fault.layout.as_ref().map(|layout| if layout == "low" { " low" } else { "falling" });
        let verdict = self.check(plan, text, case);
        let variant = plan.variant;
        let (status, sign) = match fault.expect.as_str() {
            "wrong numbers" => (Status::Fail, "elements are wrong".to_owned()),
            "trap" => (Status::Crash, "an index lies beyond the bounds of one of the kernel's arrays".to_owned()),
            "refusal" => (Status::Fail, "the launcher must refuse this and say `".to_owned()),
            kind => (Status::Fail, format!("{kind}: ")),
        };
        assert_eq!(verdict.status, status, "{variant}: {}", verdict.message);
        assert!(verdict.message.contains(&sign), "{variant}: expected `{sign}` in: {}", verdict.message);
    }
}

#[test]
fn unharmed_kernels_pass() {
    let laboratory = laboratory();
    for (plan, text) in &laboratory.kernels {
        let verdict = laboratory.check(plan, text.clone(), None);
        assert!(verdict.passed(), "{}: {}", plan.variant, verdict.message);
    }
}

/// On five multiprocessors each head is a group of its own.
#[test]
fn the_work_of_several_groups_of_heads_is_done() {
    let laboratory = laboratory();
    let all = "heads_a_group(p, params.blocks, static_cast<uint32_t>(m_blocks))".to_owned();
    let grouped = |text: &str, heads: &str| replace_once(text, &[all.clone(), heads.to_owned()]);
    let stays = laboratory.kernels.iter().find(|(_, text)| grouped(text, "1").is_some());
    let (plan, text) = stays.expect("a kernel whose blocks stay for all work");
    for heads in ["2", "3", "5", "params.heads"] {
        let verdict = laboratory.check(plan, grouped(text, heads).expect("it has groups"), None);
        assert!(verdict.passed(), "{}, groups of {heads}: {}", plan.variant, verdict.message);
    }
}

/// The checks' longest sequences are nine tiles of 32 keys: with so few, O moves to its total once, or twice or more
/// often where that is due earlier.
#[test]
fn o_may_move_to_its_total_after_any_number_of_tiles() {
    let laboratory = laboratory();
    let every = |text: &str, tiles: u32| {
        let found = ["constexpr int FOLD = 4;".to_owned(), format!("constexpr int FOLD = {tiles};")];
        replace_once(text, &found)
    };
    let kernels: Vec<_> = laboratory.kernels.iter().filter(|(_, text)| every(text, 1).is_some()).collect();
    assert!(!kernels.is_empty(), "a kernel has a total");
    for ((plan, text), tiles) in itertools::iproduct!(kernels, 1..=3) {
        let verdict = laboratory.check(plan, every(text, tiles).expect("it has a total"), None);
        assert!(verdict.passed(), "{}, every {tiles} tiles: {}", plan.variant, verdict.message);
    }
}

/// Compiles and runs a program of `tests/emulator/` that states what words of the device vocabulary, and rules of the
/// machine, mean.
fn assert_all_statements_hold(statements: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(statements);
    let mut compiler = Command::new(host_compiler().expect("a host compiler").path);
    compiler.args(["-std=c++17", "-ffp-contract=off", "-O1", "-Wall", "-Wextra", "-Werror"]);
    compiler.arg("-I").arg(root.join("templates/emulator")).arg("-I").arg(root.join("templates/include"));
    compiler.arg(root.join(format!("tests/emulator/{statements}.cpp"))).arg(root.join("templates/emulator/runtime.cpp"));
    assert!(compiler.arg("-o").arg(&program).status().expect("it starts").success());
    let done = Command::new(&program).output().expect("it starts");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
}

#[test]
fn every_word_of_the_emulator_means_what_its_test_says() {
    assert_all_statements_hold("words");
}

#[test]
fn mbarriers_and_copies_by_tma_mean_what_their_test_says() {
    assert_all_statements_hold("tma_words");
}

#[test]
fn clusters_mean_what_their_test_says() {
    assert_all_statements_hold("cluster_words");
}

#[test]
fn products_of_warpgroups_mean_what_their_test_says() {
    assert_all_statements_hold("wgmma_words");
}

/// Declares a test for each fault, and one that all of them are declared.
macro_rules! faults {
    ($($test:ident: $name:literal,)+) => {
        $(
            #[test]
            fn $test() {
                laboratory().assert_caught($name);
            }
        )+

        #[test]
        fn every_fault_of_the_list_has_its_test() {
            let declared = [$($name),+];
            let missing: Vec<&str> =
                laboratory().faults.iter().map(|fault| fault.name.as_str()).filter(|name| !declared.contains(name)).collect();
            assert!(missing.is_empty(), "add to `faults!` in tests/faults.rs: {missing:?}");
        }
    };
}

faults! {
    two_stages_nobody_waits_for_the_tile: "two stages: nobody waits for the tile",
    one_stage_nobody_waits_for_k: "one stage: nobody waits for K",
    one_stage_nobody_waits_for_v: "one stage: nobody waits for V",
    q_in_registers_nobody_waits_for_q: "Q in registers: nobody waits for Q",
    q_in_registers_q_is_waited_for_with_one_group_too_many_in_flight: "Q in registers: Q is waited for with one group too many in flight",
    two_stages_the_next_tiles_copies_are_not_committed: "two stages: the next tile's copies are not committed",
    one_stage_a_copy_of_v_is_started_behind_the_last_tile_and_forgotten: "one stage: a copy of V is started behind the last tile and forgotten",
    two_stages_no_barrier_behind_the_wait: "two stages: no barrier behind the wait",
    one_stage_no_barrier_behind_the_wait_for_k: "one stage: no barrier behind the wait for K",
    one_stage_no_barrier_behind_the_wait_for_v: "one stage: no barrier behind the wait for V",
    q_in_registers_no_barrier_behind_the_wait_for_q: "Q in registers: no barrier behind the wait for Q",
    two_stages_the_next_tile_goes_where_this_one_lies: "two stages: the next tile goes where this one lies",
    epilogue_no_warp_sync_between_writing_o_to_shared_memory_and_reading_it: "epilogue: no warp_sync between writing O to shared memory and reading it",
    a_shuffle_in_half_of_the_lanes: "a shuffle in half of the lanes",
    one_warp_leaves_before_the_barriers: "one warp leaves before the barriers",
    tma_nobody_waits_for_k: "TMA: nobody waits for K",
    tma_nobody_waits_for_v: "TMA: nobody waits for V",
    tma_a_wait_for_ks_mbarrier_where_v_is_wanted: "TMA: a wait for K's mbarrier where V is wanted",
    tma_the_wrong_phase: "TMA: the wrong phase",
    tma_the_phase_never_changes: "TMA: the phase never changes",
    tma_half_of_a_tiles_bytes_are_expected: "TMA: half of a tile's bytes are expected",
    tma_more_bytes_are_expected_than_come: "TMA: more bytes are expected than come",
    tma_a_panel_is_not_fetched: "TMA: a panel is not fetched",
    tma_every_warp_fetches: "TMA: every warp fetches",
    tma_v_is_counted_by_ks_mbarrier: "TMA: V is counted by K's mbarrier",
    tma_a_last_tile_by_cp_async_ends_no_phase: "TMA: a last tile by cp.async ends no phase",
    tma_one_stage_a_tile_of_v_is_not_fetched: "TMA: one stage: a tile of V is not fetched",
    tma_one_stage_no_barrier_before_v_is_fetched_where_v_lies: "TMA: one stage: no barrier before V is fetched where V lies",
    tma_one_stage_no_barrier_before_k_is_fetched_where_k_lies: "TMA: one stage: no barrier before K is fetched where K lies",
    tma_two_stages_no_barrier_before_a_tile_is_fetched_where_one_lies: "TMA: two stages: no barrier before a tile is fetched where one lies",
    tma_no_barrier_behind_the_mbarriers_initialisation: "TMA: no barrier behind the mbarriers' initialisation",
    tma_the_asynchronous_proxy_does_not_know_of_the_mbarriers: "TMA: the asynchronous proxy does not know of the mbarriers",
    tma_tiles_are_fetched_over_what_cp_async_has_brought_without_a_fence: "TMA: tiles are fetched over what cp.async has brought without a fence",
    tma_what_follows_a_sequence_is_used: "TMA: what follows a sequence is used",
    tma_a_packed_sequences_first_row_is_forgotten: "TMA: a packed sequence's first row is forgotten",
    tma_the_querys_head_is_fetched: "TMA: the query's head is fetched",
    tma_a_batch_entrys_keys_are_the_first_ones: "TMA: a batch entry's keys are the first one's",
    tma_a_panel_comes_without_its_swizzle: "TMA: a panel comes without its swizzle",
    no_mask: "no mask",
    the_mask_shows_one_key_too_many: "the mask shows one key too many",
    o_is_not_rescaled: "O is not rescaled",
    the_row_sum_is_not_rescaled: "the row sum is not rescaled",
    two_of_ps_fragments_change_places: "two of P's fragments change places",
    v_is_read_without_transposing: "V is read without transposing",
    query_heads_share_the_wrong_key_head: "query heads share the wrong key head",
    o_is_not_written: "O is not written",
    lanes_of_the_b_operand_in_the_order_of_the_a_operand: "lanes of the B operand in the order of the A operand",
    tiles_are_written_without_the_swizzle: "tiles are written without the swizzle",
    o_is_read_back_without_the_swizzle: "O is read back without the swizzle",
    one_row_too_many_is_read: "one row too many is read",
    one_row_too_many_is_written: "one row too many is written",
    one_log_sum_exp_too_many_is_written: "one log-sum-exp too many is written",
    tiles_run_out_of_shared_memory: "tiles run out of shared memory",
    registers_no_barrier_behind_putting_k: "registers: no barrier behind putting K",
    registers_no_barrier_behind_putting_v: "registers: no barrier behind putting V",
    registers_v_is_put_where_k_lies: "registers: V is put where K lies",
    registers_q_is_read_with_no_barrier_behind_putting_it: "registers: Q is read with no barrier behind putting it",
    registers_v_is_fetched_before_k_is_put: "registers: V is fetched before K is put",
    registers_the_next_k_is_not_fetched: "registers: the next K is not fetched",
    registers_one_row_too_many_is_fetched: "registers: one row too many is fetched",
    registers_rows_beyond_the_last_key_are_not_zeros: "registers: rows beyond the last key are not zeros",
    registers_a_panel_takes_the_pieces_of_the_panel_before_it: "registers: a panel takes the pieces of the panel before it",
    registers_tiles_are_put_down_without_the_swizzle: "registers: tiles are put down without the swizzle",
    m16n8k8_half_of_a_step_of_q_k_t_is_left_out: "m16n8k8: half of a step of Q K^T is left out",
    m16n8k8_a_step_of_q_k_t_takes_the_other_halfs_k: "m16n8k8: a step of Q K^T takes the other half's K",
    m16n8k8_a_step_of_p_v_takes_the_other_halfs_p: "m16n8k8: a step of P V takes the other half's P",
    fp8_v_is_read_without_transposing: "FP8: V is read without transposing",
    fp8_the_byte_permutations_of_even_and_odd_columns_change_places: "FP8: the byte permutations of even and odd columns change places",
    fp8_a_byte_permutation_takes_the_keys_in_another_order: "FP8: a byte permutation takes the keys in another order",
    fp8_v_is_stored_in_the_order_of_its_keys_where_bytes_are_transposed_by_ldmatrix: "FP8: V is stored in the order of its keys where bytes are transposed by ldmatrix",
    fp8_v_is_stored_in_the_order_of_p_where_bytes_are_permuted: "FP8: V is stored in the order of P where bytes are permuted",
    fp8_k_is_stored_in_the_order_of_p: "FP8: K is stored in the order of P",
    fp8_the_halves_of_a_byte_fragment_change_places: "FP8: the halves of a byte fragment change places",
    fp8_two_of_ps_four_bytes_change_places: "FP8: two of P's four bytes change places",
    fp8_the_rows_of_ps_registers_change_places: "FP8: the rows of P's registers change places",
    fp8_the_factor_of_q_is_forgotten: "FP8: the factor of Q is forgotten",
    fp8_the_factor_of_k_is_read_with_the_strides_of_qs: "FP8: the factor of K is read with the strides of Q's",
    fp8_the_factor_of_v_is_forgotten: "FP8: the factor of V is forgotten",
    fp8_the_factor_of_v_is_the_first_batch_entrys: "FP8: the factor of V is the first batch entry's",
    fp8_a_wrong_scale: "FP8: a wrong scale",
    fp8_a_wrong_byte_of_the_scales: "FP8: a wrong byte of the scales",
    fp8_the_log_sum_exp_keeps_the_factor_of_p: "FP8: the log-sum-exp keeps the factor of P",
    fp8_fp16_sums_of_a_p_that_fills_e4m3s_range: "FP8: fp16 sums of a P that fills E4M3's range",
    fp8_sixteen_bytes_are_copied_where_eight_are_left_of_a_row: "FP8: sixteen bytes are copied where eight are left of a row",
    fp8_a_chunk_of_v_is_taken_for_its_neighbour: "FP8: a chunk of V is taken for its neighbour",
    fp8_lanes_of_a_byte_transposition_in_the_order_of_the_a_operand: "FP8: lanes of a byte transposition in the order of the A operand",
    fp8_neighbours_do_not_exchange_their_columns_of_o: "FP8: neighbours do not exchange their columns of O",
    fp8_os_even_and_odd_columns_change_places: "FP8: O's even and odd columns change places",
    fp8_nobody_waits_for_v: "FP8: nobody waits for V",
    fp8_no_barrier_behind_the_wait_for_v: "FP8: no barrier behind the wait for V",
    split_nobody_waits_for_k: "split: nobody waits for K",
    split_nobody_waits_for_v: "split: nobody waits for V",
    split_k_is_waited_for_with_one_group_too_many_in_flight: "split: K is waited for with one group too many in flight",
    split_no_warp_sync_behind_the_wait_for_k: "split: no warp_sync behind the wait for K",
    split_no_warp_sync_behind_the_wait_for_v: "split: no warp_sync behind the wait for V",
    split_nobody_waits_for_q: "split: nobody waits for Q",
    split_no_barrier_behind_the_wait_for_q: "split: no barrier behind the wait for Q",
    split_the_next_k_goes_where_v_lies: "split: the next K goes where V lies",
    split_a_slice_behind_the_end_closes_no_group: "split: a slice behind the end closes no group",
    split_no_barrier_before_the_maxima_are_read: "split: no barrier before the maxima are read",
    split_no_barrier_before_the_warps_o_are_added: "split: no barrier before the warps' O are added",
    split_causal_the_mask_shows_one_key_too_many: "split: causal: the mask shows one key too many",
    split_full_keys_behind_the_end_of_the_split_are_not_hidden: "split: full: keys behind the end of the split are not hidden",
    split_the_warps_sums_are_added_without_their_factors: "split: the warps' sums are added without their factors",
    split_a_warps_o_is_not_brought_to_the_largest_maximum: "split: a warp's O is not brought to the largest maximum",
    split_a_warps_o_is_left_out: "split: a warp's O is left out",
    split_the_queries_of_another_group: "split: the queries of another group",
    split_partial_rows_lie_with_a_neighbouring_head: "split: partial rows lie with a neighbouring head",
    split_a_split_too_many_is_computed: "split: a split too many is computed",
    split_a_split_without_keys_says_nothing: "split: a split without keys says nothing",
    split_causal_a_tiles_keys_are_those_of_its_first_row: "split: causal: a tile's keys are those of its first row",
    split_one_row_of_q_too_many_is_read: "split: one row of Q too many is read",
    split_the_launcher_does_not_look_at_ks_alignment: "split: the launcher does not look at K's alignment",
    split_splits_overlap: "split: splits overlap",
    split_one_key_too_many_is_read: "split: one key too many is read",
    split_chunks_of_a_slice_change_places: "split: chunks of a slice change places",
    split_the_swizzle_of_a_slice_keeps_its_first_phase: "split: the swizzle of a slice keeps its first phase",
    combine_a_split_that_saw_no_key_is_weighed: "combine: a split that saw no key is weighed",
    combine_no_barrier_before_the_teams_parts_are_added: "combine: no barrier before the teams' parts are added",
    combine_a_teams_part_is_left_out: "combine: a team's part is left out",
    combine_each_lane_has_a_largest_log_sum_exp_of_its_own: "combine: each lane has a largest log-sum-exp of its own",
    combine_weights_are_not_divided_by_their_sum: "combine: weights are not divided by their sum",
    combine_the_log_sum_exp_is_the_largest_one: "combine: the log-sum-exp is the largest one",
    combine_infinity_is_taken_from_infinity: "combine: infinity is taken from infinity",
    combine_the_two_types_of_o_change_places: "combine: the two types of O change places",
    combine_the_launcher_does_not_look_at_os_alignment: "combine: the launcher does not look at O's alignment",
    combine_splits_are_read_that_a_sequence_does_not_have: "combine: splits are read that a sequence does not have",
    scheduler_a_sequence_counts_as_one_tile: "scheduler: a sequence counts as one tile",
    scheduler_no_barrier_before_the_other_warps_judgements_are_read: "scheduler: no barrier before the other warps' judgements are read",
    scheduler_a_rounds_flags_lie_where_the_last_rounds_lie: "scheduler: a round's flags lie where the last round's lie",
    scheduler_num_splits_does_not_bound_the_counts: "scheduler: num_splits does not bound the counts",
    scheduler_keys_that_nobody_attends_to_count: "scheduler: keys that nobody attends to count",
    scheduler_a_batch_that_fits_at_once_is_always_run_at_once: "scheduler: a batch that fits at once is always run at once",
    scheduler_lanes_keep_their_own_sums: "scheduler: lanes keep their own sums",
    bwd_two_stages_nobody_waits_for_the_queries: "two stages: nobody waits for the queries",
    bwd_two_stages_no_barrier_between_a_step_s_ds_and_the_next_step_s_dq: "two stages: no barrier between a step's dS and the next step's dQ",
    bwd_two_stages_no_barrier_before_the_last_dq: "two stages: no barrier before the last dQ",
    bwd_two_stages_the_next_queries_go_into_the_stage_in_use: "two stages: the next queries go into the stage in use",
    bwd_two_stages_dq_reads_the_weights_of_this_step: "two stages: dQ reads the weights of this step",
    bwd_one_stage_nobody_waits_for_the_queries: "one stage: nobody waits for the queries",
    bwd_one_stage_no_barrier_before_the_next_queries_are_copied: "one stage: no barrier before the next queries are copied",
    bwd_the_key_warp_does_not_wait_for_p: "the key warp does not wait for P",
    bwd_the_key_warp_waits_for_another_pair: "the key warp waits for another pair",
    bwd_the_value_warp_hands_nothing_over: "the value warp hands nothing over",
    bwd_ds_is_written_over_p_while_lanes_still_read_it: "dS is written over P while lanes still read it",
    bwd_gradients_are_written_over_k_while_it_is_read: "gradients are written over K while it is read",
    bwd_deterministic_dq_q_is_not_waited_for_when_no_key_is_seen: "deterministic dQ: Q is not waited for when no key is seen",
    bwd_queries_are_read_past_the_end_of_their_sequence: "queries are read past the end of their sequence",
    bwd_rows_of_dk_and_dv_behind_the_last_key_are_written: "rows of dK and dV behind the last key are written",
    bwd_too_little_workspace_is_asked_for: "too little workspace is asked for",
    bwd_full_keys_behind_the_last_one_are_not_hidden: "full: keys behind the last one are not hidden",
    bwd_delta_is_left_out: "delta is left out",
    bwd_the_sums_of_dq_do_not_start_at_zero: "the sums of dQ do not start at zero",
    bwd_the_second_head_of_a_group_uses_the_first_one_s_queries: "the second head of a group uses the first one's queries",
    bwd_the_second_head_of_a_group_adds_to_the_first_one_s_dq: "the second head of a group adds to the first one's dQ",
    bwd_dk_lacks_the_scale: "dK lacks the scale",
    bwd_causal_the_diagonal_is_one_off: "causal: the diagonal is one off",
    bwd_causal_the_walk_starts_a_tile_too_late: "causal: the walk starts a tile too late",
    bwd_p_goes_to_the_wrong_place_in_the_tile: "P goes to the wrong place in the tile",
    bwd_packed_sequences_share_a_tile_s_place_in_the_workspace: "packed sequences share a tile's place in the workspace",
    bwd_a_scale_of_zero_stays_zero: "a scale of zero stays zero",
    bwd_deterministic_dq_the_diagonal_is_one_off: "deterministic dQ: the diagonal is one off",
    bwd_deterministic_dq_keys_are_overwritten_while_they_are_read: "deterministic dQ: keys are overwritten while they are read",
    bwd_rows_that_see_no_key_keep_a_shift_of_infinity: "rows that see no key keep a shift of infinity",
    bwd_an_unaligned_dv_is_written_in_16_byte_pieces: "an unaligned dV is written in 16-byte pieces",
    wgmma_zeros_in_v_without_a_fence_for_the_asynchronous_proxy: "wgmma: zeros in V without a fence for the asynchronous proxy",
    wgmma_products_with_v_before_all_zeros_are_there: "wgmma: products with V before all zeros are there",
    wgmma_the_wrong_phase_of_k: "wgmma: the wrong phase of K",
    wgmma_the_wrong_phase_of_v: "wgmma: the wrong phase of V",
    wgmma_the_wrong_phase_of_an_empty_stage: "wgmma: the wrong phase of an empty stage",
    wgmma_nobody_waits_for_an_empty_stage: "wgmma: nobody waits for an empty stage",
    wgmma_o_is_rescaled_while_a_product_adds_to_it: "wgmma: O is rescaled while a product adds to it",
    wgmma_nobody_waits_for_p_v_before_o_is_rescaled: "wgmma: nobody waits for P V before O is rescaled",
    wgmma_nobody_waits_for_the_last_p_v: "wgmma: nobody waits for the last P V",
    wgmma_s_is_used_before_its_product_is_done: "wgmma: S is used before its product is done",
    wgmma_s_is_waited_for_with_one_group_too_many_unfinished: "wgmma: S is waited for with one group too many unfinished",
    wgmma_no_fence_before_q_k_t: "wgmma: no fence before Q K^T",
    wgmma_no_fence_before_p_v: "wgmma: no fence before P V",
    wgmma_a_group_that_nobody_commits: "wgmma: a group that nobody commits",
    wgmma_a_stage_of_k_is_released_before_its_product_is_done: "wgmma: a stage of K is released before its product is done",
    wgmma_a_stage_of_v_is_released_before_its_product_is_done: "wgmma: a stage of V is released before its product is done",
    wgmma_q_is_released_before_its_last_product_is_done: "wgmma: Q is released before its last product is done",
    wgmma_one_lane_releases_for_the_whole_warpgroup: "wgmma: one lane releases for the whole warpgroup",
    wgmma_a_hidden_tile_of_k_is_not_released: "wgmma: a hidden tile of K is not released",
    wgmma_a_hidden_tile_of_v_is_not_released: "wgmma: a hidden tile of V is not released",
    wgmma_a_hidden_tile_of_v_is_not_passed_over: "wgmma: a hidden tile of V is not passed over",
    wgmma_o_is_not_rescaled: "wgmma: O is not rescaled",
    wgmma_lanes_of_a_row_keep_maxima_of_their_own: "wgmma: lanes of a row keep maxima of their own",
    wgmma_two_pairs_of_lanes_of_a_row_keep_maxima_of_their_own: "wgmma: two pairs of lanes of a row keep maxima of their own",
    wgmma_the_second_row_of_a_lane_has_no_vote: "wgmma: the second row of a lane has no vote",
    wgmma_each_lane_votes_for_itself: "wgmma: each lane votes for itself",
    wgmma_the_row_sum_is_not_rescaled: "wgmma: the row sum is not rescaled",
    wgmma_rows_of_v_before_the_sequence_are_not_zeros: "wgmma: rows of V before the sequence are not zeros",
    wgmma_a_tile_too_many_is_taken_for_hidden: "wgmma: a tile too many is taken for hidden",
    wgmma_two_of_ps_registers_change_places: "wgmma: two of P's registers change places",
    wgmma_a_wrong_swizzle_in_a_descriptor: "wgmma: a wrong swizzle in a descriptor",
    wgmma_a_wrong_stride_in_a_descriptor: "wgmma: a wrong stride in a descriptor",
    wgmma_a_step_of_q_k_t_is_half_as_far_along_a_row_as_it_should_be: "wgmma: a step of Q K^T is half as far along a row as it should be",
    wgmma_every_warpgroup_takes_the_first_ones_rows_of_q: "wgmma: every warpgroup takes the first one's rows of Q",
    wgmma_every_warpgroup_takes_the_first_ones_place_of_q: "wgmma: every warpgroup takes the first one's place of Q",
    wgmma_a_product_of_q_k_t_keeps_what_s_held: "wgmma: a product of Q K^T keeps what S held",
    wgmma_a_panel_of_v_is_the_one_before: "wgmma: a panel of V is the one before",
    wgmma_a_step_of_p_v_is_half_as_many_rows_further_as_it_should_be: "wgmma: a step of P V is half as many rows further as it should be",
    wgmma_the_work_is_said_before_the_last_one_is_done_with: "wgmma: the work is said before the last one is done with",
    wgmma_lanes_still_read_the_work_when_one_says_that_the_warp_is_done: "wgmma: lanes still read the work when one says that the warp is done",
    wgmma_a_tile_without_keys_is_not_announced: "wgmma: a tile without keys is not announced",
    wgmma_nobody_says_that_no_work_is_left: "wgmma: nobody says that no work is left",
    wgmma_a_warpgroup_keeps_its_turn: "wgmma: a warpgroup keeps its turn",
    wgmma_no_turn_is_passed_at_a_hidden_tile: "wgmma: no turn is passed at a hidden tile",
    wgmma_a_warpgroup_without_rows_passes_no_turn: "wgmma: a warpgroup without rows passes no turn",
    wgmma_a_warpgroup_without_rows_keeps_k: "wgmma: a warpgroup without rows keeps K",
    wgmma_a_warpgroup_without_rows_keeps_v: "wgmma: a warpgroup without rows keeps V",
    wgmma_a_warpgroup_without_rows_does_not_wait_for_v: "wgmma: a warpgroup without rows does not wait for V",
    wgmma_a_warpgroup_without_rows_keeps_q: "wgmma: a warpgroup without rows keeps Q",
    wgmma_a_warpgroup_without_rows_does_not_come_where_foreign_rows_of_v_are_cleared:
        "wgmma: a warpgroup without rows does not come where foreign rows of V are cleared",
    wgmma_the_barrier_where_foreign_rows_of_v_are_cleared_belongs_to_no_stage:
        "wgmma: the barrier where foreign rows of V are cleared belongs to no stage",
    wgmma_how_many_threads_clear_foreign_rows_of_v_depends_on_the_piece_of_work:
        "wgmma: how many threads clear foreign rows of V depends on the piece of work",
    wgmma_a_warpgroup_of_one_row_is_taken_for_one_without_rows: "wgmma: a warpgroup of one row is taken for one without rows",
    wgmma_the_first_query_is_announced_a_warpgroup_too_early: "wgmma: the first query is announced a warpgroup too early",
    wgmma_a_warpgroup_keeps_its_turn_at_the_exponentials: "wgmma: a warpgroup keeps its turn at the exponentials",
    wgmma_nobody_waits_for_a_turn_at_the_exponentials: "wgmma: nobody waits for a turn at the exponentials",
    wgmma_what_is_added_to_exponents_is_not_cleared: "wgmma: what is added to exponents is not cleared",
    wgmma_the_first_turn_is_nobodys: "wgmma: the first turn is nobody's",
    wgmma_the_mbarriers_are_used_before_they_are_made: "wgmma: the mbarriers are used before they are made",
    wgmma_an_empty_stage_counts_warpgroups: "wgmma: an empty stage counts warpgroups",
    wgmma_more_registers_than_a_multiprocessor_has: "wgmma: more registers than a multiprocessor has",
    wgmma_registers_are_handed_over_and_nobody_claims_them: "wgmma: registers are handed over, and nobody claims them",
    wgmma_query_heads_share_the_wrong_key_head: "wgmma: query heads share the wrong key head",
    wgmma_packed_keys_start_at_the_batch_entrys_own_row: "wgmma: packed keys start at the batch entry's own row",
    wgmma_rows_of_o_before_the_sequence_are_written: "wgmma: rows of O before the sequence are written",
    wgmma_log_sum_exps_before_the_sequence_are_written: "wgmma: log-sum-exps before the sequence are written",
    wgmma_an_unaligned_o_is_written_in_16_byte_pieces: "wgmma: an unaligned O is written in 16-byte pieces",
    wgmma_words_of_a_quad_change_places: "wgmma: words of a quad change places",
    wgmma_neighbours_of_a_quad_store_each_others_words: "wgmma: neighbours of a quad store each other's words",
    wgmma_the_last_columns_of_a_row_are_not_written: "wgmma: the last columns of a row are not written",
    wgmma_a_blocks_last_round_is_not_taken: "wgmma: a block's last round is not taken",
    wgmma_odd_rounds_are_dealt_out_from_the_wrong_end: "wgmma: odd rounds are dealt out from the wrong end",
    wgmma_a_groups_rounds_go_on_where_the_last_ones_ended: "wgmma: a group's rounds go on where the last one's ended",
    wgmma_the_last_group_is_as_large_as_the_others: "wgmma: the last group is as large as the others",
    wgmma_the_heads_of_every_group_are_the_first_ones: "wgmma: the heads of every group are the first one's",
    fp8_wgmma_what_is_transposed_is_not_fenced_for_products: "FP8 wgmma: what is transposed is not fenced for products",
    fp8_wgmma_nobody_waits_for_v_before_it_is_transposed: "FP8 wgmma: nobody waits for V before it is transposed",
    fp8_wgmma_v_is_transposed_over_what_products_still_read: "FP8 wgmma: V is transposed over what products still read",
    fp8_wgmma_transposed_v_is_released_before_its_products_are_done: "FP8 wgmma: transposed V is released before its products are done",
    fp8_wgmma_nobody_waits_for_transposed_v: "FP8 wgmma: nobody waits for transposed V",
    fp8_wgmma_v_is_released_before_it_is_transposed: "FP8 wgmma: V is released before it is transposed",
    fp8_wgmma_foreign_rows_of_v_stay: "FP8 wgmma: foreign rows of V stay",
    fp8_wgmma_one_foreign_row_of_v_stays: "FP8 wgmma: one foreign row of V stays",
    fp8_wgmma_keys_are_transposed_in_another_order_than_ps: "FP8 wgmma: keys are transposed in another order than P's",
    fp8_wgmma_columns_of_v_change_places: "FP8 wgmma: columns of V change places",
    fp8_wgmma_even_and_odd_columns_of_o_change_places: "FP8 wgmma: even and odd columns of O change places",
    fp8_wgmma_columns_of_o_behind_the_head_dim_are_written: "FP8 wgmma: columns of O behind the head dim are written",
    fp8_wgmma_rows_of_o_before_the_sequence_are_written: "FP8 wgmma: rows of O before the sequence are written",
    fp8_wgmma_ks_factor_is_left_out: "FP8 wgmma: K's factor is left out",
    fp8_wgmma_the_last_step_of_q_k_t_is_left_out: "FP8 wgmma: the last step of Q K^T is left out",
    fp8_wgmma_o_keeps_the_old_maximum: "FP8 wgmma: O keeps the old maximum",
    fp8_wgmma_the_factor_of_a_tile_whose_maximum_does_not_grow_is_the_last_one: "FP8 wgmma: the factor of a tile whose maximum does not grow is the last one",
    fp8_wgmma_a_step_of_p_v_is_half_as_far_along_a_row_as_it_should_be: "FP8 wgmma: a step of P V is half as far along a row as it should be",
    fp8_wgmma_a_run_of_p_v_starts_in_the_wrong_row: "FP8 wgmma: a run of P V starts in the wrong row",
    fp8_wgmma_a_warpgroup_without_rows_passes_no_turn: "FP8 wgmma: a warpgroup without rows passes no turn",
    fp8_wgmma_a_warpgroup_without_rows_keeps_transposed_v: "FP8 wgmma: a warpgroup without rows keeps transposed V",
    fp8_wgmma_a_warpgroup_keeps_its_turn_at_the_exponentials: "FP8 wgmma: a warpgroup keeps its turn at the exponentials",
    fp8_wgmma_what_is_added_to_exponents_is_not_cleared: "FP8 wgmma: what is added to exponents is not cleared",
    fp8_wgmma_a_run_adds_columns_that_are_there_already: "FP8 wgmma: a run adds columns that are there already",
    cluster_an_empty_stage_counts_the_warps_of_one_block: "cluster: an empty stage counts the warps of one block",
    cluster_a_stage_is_released_to_its_own_block_alone: "cluster: a stage is released to its own block alone",
    cluster_both_blocks_fetch_the_upper_half: "cluster: both blocks fetch the upper half",
    cluster_blocks_begin_without_each_other: "cluster: blocks begin without each other",
    cluster_a_block_ends_that_the_other_still_reaches: "cluster: a block ends that the other still reaches",
    cluster_a_block_without_rows_leaves_its_half_out: "cluster: a block without rows leaves its half out",
    cluster_what_the_other_block_says_is_waited_for_as_if_it_were_ones_own: "cluster: what the other block says is waited for as if it were one's own",
    cluster_blocks_begin_at_keys_of_their_own: "cluster: blocks begin at keys of their own",
    cluster_both_blocks_have_the_diagonal_of_the_first: "cluster: both blocks have the diagonal of the first",
    cluster_v_of_hidden_tiles_is_not_passed_over: "cluster: V of hidden tiles is not passed over",
    cluster_both_blocks_take_the_same_query_tile: "cluster: both blocks take the same query tile",
    cluster_zeros_in_v_are_not_put_before_the_release_of_a_block_without_rows: "cluster: zeros in V are not put before the release of a block without rows",
    fp8_cluster_v_is_released_to_its_own_block_alone: "FP8 cluster: V is released to its own block alone",
    store_by_tma_o_is_written_without_a_fence_for_the_asynchronous_proxy: "store by TMA: O is written without a fence for the asynchronous proxy",
    store_by_tma_a_tile_is_stored_before_all_warps_have_put_their_rows_there: "store by TMA: a tile is stored before all warps have put their rows there",
    store_by_tma_the_next_q_comes_before_o_has_been_read: "store by TMA: the next Q comes before O has been read",
    store_by_tma_a_store_is_not_committed: "store by TMA: a store is not committed",
    store_by_tma_rows_of_the_sequence_before_are_written: "store by TMA: rows of the sequence before are written",
    store_by_tma_every_lanes_second_row_is_the_first: "store by TMA: every lane's second row is the first",
    short_parts_are_read_before_they_are_there: "short: parts are read before they are there",
    short_o_is_put_where_products_of_other_warps_still_read: "short: O is put where products of other warps still read",
    short_o_is_put_into_the_stages_of_another_warpgroup: "short: O is put into the stages of another warpgroup",
    short_every_warpgroup_fetches_into_the_stages_of_the_first: "short: every warpgroup fetches into the stages of the first",
    short_parts_are_added_without_their_factors: "short: parts are added without their factors",
    short_the_factor_of_the_first_row_is_the_second_ones_too: "short: the factor of the first row is the second one's too",
    short_a_warpgroup_takes_another_ones_factor_for_its_own_part: "short: a warpgroup takes another one's factor for its own part",
    short_sums_are_added_without_their_factors: "short: sums are added without their factors",
    short_the_log_sum_exp_is_relative_to_a_warpgroups_own_maximum: "short: the log-sum-exp is relative to a warpgroup's own maximum",
    short_warpgroups_without_keys_are_counted: "short: warpgroups without keys are counted",
    short_infinity_is_taken_from_infinity: "short: infinity is taken from infinity",
    short_the_wrong_phase_of_k: "short: the wrong phase of K",
    short_nobody_waits_for_q: "short: nobody waits for Q",
    short_a_stage_is_filled_again_while_other_warps_read_it: "short: a stage is filled again while other warps read it",
    short_the_wrong_phase_of_an_empty_stage: "short: the wrong phase of an empty stage",
    short_an_empty_stage_counts_warpgroups: "short: an empty stage counts warpgroups",
    short_a_stage_is_filled_again_that_no_tile_is_left_for: "short: a stage is filled again that no tile is left for",
    short_zeros_in_v_without_a_fence_for_the_asynchronous_proxy: "short: zeros in V without a fence for the asynchronous proxy",
    short_products_with_v_before_all_zeros_are_there: "short: products with V before all zeros are there",
    short_rows_of_v_before_the_sequence_are_not_zeros: "short: rows of V before the sequence are not zeros",
    short_nobody_waits_for_the_last_p_v: "short: nobody waits for the last P V",
    short_o_is_rescaled_while_a_product_adds_to_it: "short: O is rescaled while a product adds to it",
    short_warpgroups_leave_a_tile_out: "short: warpgroups leave a tile out",
    short_every_warpgroup_masks_as_the_first_does: "short: every warpgroup masks as the first does",
    short_the_place_in_the_work_is_read_before_it_is_there: "short: the place in the work is read before it is there",
    short_the_last_columns_of_an_odd_number_of_chunks_are_not_written: "short: the last columns of an odd number of chunks are not written",
    fp8_overlap_the_total_keeps_the_old_maximum: "FP8 overlap: the total keeps the old maximum",
    fp8_overlap_o_keeps_the_old_maximum: "FP8 overlap: O keeps the old maximum",
    fp8_overlap_the_total_is_written_over: "FP8 overlap: the total is written over",
    fp8_overlap_the_total_is_left_out_at_the_end: "FP8 overlap: the total is left out at the end",
    fp8_overlap_what_the_total_takes_stays_in_o: "FP8 overlap: what the total takes stays in O",
    fp8_overlap_the_totals_factor_is_applied_twice: "FP8 overlap: the total's factor is applied twice",
    fp8_overlap_the_total_is_read_before_it_is_written: "FP8 overlap: the total is read before it is written",
    fp8_overlap_o_moves_to_the_total_while_products_add_to_it: "FP8 overlap: O moves to the total while products add to it",
    fp8_overlap_o_is_rescaled_while_products_add_to_it: "FP8 overlap: O is rescaled while products add to it",
    fp8_overlap_warpgroups_share_one_total: "FP8 overlap: warpgroups share one total",
    fp8_overlap_threads_share_a_total: "FP8 overlap: threads share a total",
    fp8_overlap_p_outgrows_e4m3: "FP8 overlap: P outgrows E4M3",
    fp8_overlap_nobody_waits_for_transposed_v: "FP8 overlap: nobody waits for transposed V",
    fp8_overlap_nobody_waits_for_the_last_tile_of_transposed_v: "FP8 overlap: nobody waits for the last tile of transposed V",
    fp8_overlap_transposed_v_is_released_before_its_products_are_done: "FP8 overlap: transposed V is released before its products are done",
    fp8_overlap_p_v_does_not_add_to_o: "FP8 overlap: P V does not add to O",
    fp8_overlap_the_wrong_phase_of_v: "FP8 overlap: the wrong phase of V",
    fp8_overlap_v_is_released_before_it_is_transposed: "FP8 overlap: V is released before it is transposed",
    fp8_overlap_v_is_not_released: "FP8 overlap: V is not released",
    fp8_overlap_v_is_transposed_from_as_many_stages_as_k_has: "FP8 overlap: V is transposed from as many stages as K has",
    fp8_overlap_v_is_fetched_into_as_many_stages_as_k_has: "FP8 overlap: V is fetched into as many stages as K has",
    fp8_overlap_a_warpgroup_keeps_its_turn_at_the_products: "FP8 overlap: a warpgroup keeps its turn at the products",
    wgmma_the_barrier_of_cleared_rows_counts_the_warpgroups_with_rows_in_the_piece_at_hand: "wgmma: the barrier of cleared rows counts the warpgroups with rows in the piece at hand",
    wgmma_a_lane_passes_v_on_before_the_others_have_seen_it: "wgmma: a lane passes V on before the others have seen it",
    wgmma_nobody_waits_for_k_that_is_only_passed_on: "wgmma: nobody waits for K that is only passed on",
    wgmma_one_word_too_many_of_a_row_of_o_is_put_down: "wgmma: one word too many of a row of O is put down",
    wgmma_nobody_sets_the_place_of_the_first_tile: "wgmma: nobody sets the place of the first tile",
    wgmma_a_turn_that_nobody_takes: "wgmma: a turn that nobody takes",
    fp8_wgmma_a_turn_that_nobody_takes: "FP8 wgmma: a turn that nobody takes",
    wgmma_nobody_waits_for_the_kernels_before: "wgmma: nobody waits for the kernels before",
    wgmma_only_the_fetching_warpgroup_waits_for_the_kernels_before: "wgmma: only the fetching warpgroup waits for the kernels before",
    wgmma_rows_without_keys_tell_the_log_sum_exp_where_there_is_no_place_for_it: "wgmma: rows without keys tell the log-sum-exp where there is no place for it",
    wgmma_a_warp_puts_o_where_anothers_products_read_q: "wgmma: a warp puts O where another's products read Q",
    wgmma_o_is_not_cleared: "wgmma: O is not cleared",
    fp8_wgmma_o_is_not_cleared: "FP8 wgmma: O is not cleared",
    split_o_is_not_cleared: "split: O is not cleared",
    short_nobody_waits_for_the_kernels_before: "short: nobody waits for the kernels before",
    the_number_of_blocks_wraps: "the number of blocks wraps",
    the_launcher_takes_a_block_more_than_a_grid_has: "the launcher takes a block more than a grid has",
    the_launcher_takes_a_sequence_that_is_a_row_too_long: "the launcher takes a sequence that is a row too long",
    the_launcher_does_not_look_for_q: "the launcher does not look for Q",
    the_launcher_forgets_a_flag_that_it_does_not_know: "the launcher forgets a flag that it does not know",
    the_launcher_takes_fields_that_it_does_not_know: "the launcher takes fields that it does not know",
    two_blocks_write_the_same_rows: "two blocks write the same rows",
    fp8_the_factor_of_k_is_another_key_heads: "FP8: the factor of K is another key head's",
    the_diagonal_is_one_off: "the diagonal is one off",
    tiles_from_the_end_the_diagonal_is_one_off: "tiles from the end: the diagonal is one off",
    tiles_from_the_end_rows_before_the_sequence_are_not_hidden: "tiles from the end: rows before the sequence are not hidden",
    tiles_from_the_end_one_row_before_the_sequence_is_not_hidden: "tiles from the end: one row before the sequence is not hidden",
    a_row_that_sees_no_key_divides_by_zero: "a row that sees no key divides by zero",
    the_log_sum_exp_of_a_row_that_sees_no_key: "the log-sum-exp of a row that sees no key",
    fp8_ks_factor_is_qs_with_the_strides_of_ks: "FP8: K's factor is Q's, with the strides of K's",
    lanes_of_a_row_keep_sums_of_their_own: "lanes of a row keep sums of their own",
    split_o_is_not_rescaled: "split: O is not rescaled",
    split_the_row_sum_is_not_rescaled: "split: the row sum is not rescaled",
}
