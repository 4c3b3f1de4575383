//! Plants each fault of `tests/emulator/faults.toml` in a generated kernel and asserts that `kgen check` on the emulator
//! rejects it the way the fault is expected to show. This is what a pass on the emulator is worth.

use kgen::{
    check::{CheckOptions, CheckRequest, DEFAULT_SEED, Kernel, Level, Status, Verdict, run},
    device::EmulatorKit,
    grid::{Dtype, Grid, Variant},
    plan::Plan,
    render::{Renderer, Templates},
    toolchain::host_compiler,
};
use serde::Deserialize;
use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
    time::Duration,
};

/// One entry of the file, which explains the keys.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Fault {
    name: String,
    file: String,
    find: String,
    replace: String,
    expect: String,
    layout: Option<String>,
}

#[derive(Deserialize)]
struct Faults {
    fault: Vec<Fault>,
}

/// Everything the tests share.
struct Laboratory {
    templates: Templates,
    /// One kernel of each shape of the template that `kernels.toml` declares.
    kernels: Vec<(Variant, String)>,
    faults: Vec<Fault>,
    kit: EmulatorKit,
    cache: PathBuf,
}

fn laboratory() -> &'static Laboratory {
    static LABORATORY: OnceLock<Laboratory> = OnceLock::new();
    LABORATORY.get_or_init(|| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/emulator");
        let text = std::fs::read_to_string(folder.join("faults.toml")).expect("the list of faults is there");
        let faults: Faults = toml::from_str(&text).expect("the list of faults reads as its header says");
        let templates = Templates::embedded();
        let renderer = Renderer::new(&templates).expect("the templates parse");
        let grid = Grid::load(&folder.join("kernels.toml")).expect("the grid of the kernels reads");
        let one_a_shape = |v: &&Variant| v.causal && v.dtype == Dtype::Fp16;
        let kernels = grid.variants().iter().filter(one_a_shape).map(|variant| {
            let plan = Plan::new(*variant, grid.tile_override(variant).as_ref()).expect("it has a plan");
            (*variant, renderer.kernel(&plan).expect("it renders").text)
        });
        let kernels = kernels.collect();
        let host = host_compiler().expect("a host compiler");
        // Kept between runs of the tests: everything in it is found by its content.
        let cache = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("faults");
        let (include, emulator) = (templates.include_files(), templates.emulator_files());
        let kit = EmulatorKit::new(&cache, include, emulator, &host.path, &host.version).expect("the emulator compiles");
        Laboratory { kernels, faults: faults.fault, kit, cache, templates }
    })
}

impl Laboratory {
    fn check(&self, variant: Variant, text: String, case: Option<&str>) -> Verdict {
        let options = CheckOptions {
            level: Level::Smoke,
            filter: case.map(str::to_owned),
            seed: DEFAULT_SEED,
            jobs: 1,
            time_limit: Duration::from_secs(60),
            fresh: true,
            cache: self.cache.clone(),
            kit: Some(self.kit.clone()),
            gpu: None,
            program: PathBuf::from(env!("CARGO_BIN_EXE_kgen")),
        };
        run(&[CheckRequest { variant, compiled_for: variant.target, kernel: Kernel::Source(text) }], &options, &())
            .pop()
            .expect("one verdict")
    }

    /// The kernel with the fault in it; `None` where the fault does not concern it. A fault in a header is planted in
    /// a copy that takes the place of its `#include`.
    fn plant(&self, fault: &Fault, kernel: &str) -> Option<String> {
        let once = |text: &str| (text.matches(&fault.find).count() == 1).then(|| text.replace(&fault.find, &fault.replace));
        let Some(header) = fault.file.strip_prefix("include/") else { return once(kernel) };
        let (_, text) = self.templates.include_files().find(|(path, _)| *path == header).expect("the header is there");
        let line = format!("#include \"{header}\"\n");
        assert_eq!(kernel.matches(&line).count(), 1, "`{header}` is not included by the kernel itself");
        Some(kernel.replace(&line, &once(text)?))
    }

    /// Asserts that the check rejects the first kernel that the fault concerns, and rejects it as expected.
    fn assert_caught(&self, name: &str) {
        let fault = self.faults.iter().find(|fault| fault.name == name).expect("faults.toml holds it");
        let concerned = self.kernels.iter().find_map(|(variant, text)| Some((variant, self.plant(fault, text)?)));
        let (variant, text) = concerned.expect("the fault concerns a kernel: its `find` occurs once");
        // "steep" asks for logits whose maximum grows with every tile.
        let case = fault.layout.as_ref().map(|_| "falling");
        let verdict = self.check(*variant, text, case);
        assert_eq!(verdict.status, Status::Fail, "{variant}: {}", verdict.message);
        let sign = match fault.expect.as_str() {
            "wrong numbers" => "elements are wrong".to_owned(),
            kind => format!("{kind}: "),
        };
        assert!(verdict.message.contains(&sign), "{variant}: expected `{sign}` in: {}", verdict.message);
    }
}

#[test]
fn unharmed_kernels_pass() {
    let laboratory = laboratory();
    for (variant, text) in &laboratory.kernels {
        let verdict = laboratory.check(*variant, text.clone(), None);
        assert!(verdict.passed(), "{variant}: {}", verdict.message);
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
}
