//! Kernels with declared scores, those of unequal head dims, those that read pages, caches or FP8, those that pack
//! heads and those for queries of two parts pass `kgen check` on the emulator, and it rejects each fault that is
//! planted in their text, from the lists of `tests/emulator`, the way the fault is expected to show.

use kgen::{
    check::{CheckOptions, CheckRequest, DEFAULT_SEED, Kernel, Level, Status, Verdict, run},
    device::EmulatorKit,
    grid::Grid,
    plan::Plan,
    render::{Renderer, Templates},
    toolchain::{Cancel, host_compiler_in_process},
};
use serde::Deserialize;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::OnceLock,
    time::Duration,
};

/// One entry of a list.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Fault {
    /// What is wrong, in words.
    name: String,
    /// The kernels that it is planted in, in turn: one of them, or with `KGEN_EVERY_FAULT` in the environment all.
    variant: Variants,
    /// Text that occurs once in each kernel, and what stands in its place.
    find: String,
    replace: String,
    /// What the verdict says; `fail` where that depends on more than the fault.
    expect: String,
}

/// One kernel's name or several.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Variants {
    One(String),
    Several(Vec<String>),
}

impl Variants {
    fn all(&self) -> &[String] {
        match self {
            Self::One(name) => std::slice::from_ref(name),
            Self::Several(names) => names,
        }
    }
}

#[derive(Deserialize)]
struct Faults {
    fault: Vec<Fault>,
}

/// The kernels of one grid, `NAME_grid.toml`, and the faults of one list, `NAME.toml`.
struct Laboratory {
    name: &'static str,
    /// Headers that faults are planted in too: paths and texts. They stand in the kernels' text, where it includes
    /// them.
    headers: BTreeMap<String, String>,
    renderer: Renderer,
    grid: Grid,
    kit: EmulatorKit,
    cache: PathBuf,
}

/// Kernels with a declared score.
fn declared() -> &'static Laboratory {
    static LABORATORY: OnceLock<Laboratory> = OnceLock::new();
    LABORATORY.get_or_init(|| Laboratory::new("declared", &[]))
}

/// Kernels whose V and O have another head dim than Q and K.
fn head_dims() -> &'static Laboratory {
    static LABORATORY: OnceLock<Laboratory> = OnceLock::new();
    LABORATORY.get_or_init(|| Laboratory::new("head_dims", &[]))
}

/// Kernels that read K and V from pages.
fn paged() -> &'static Laboratory {
    static LABORATORY: OnceLock<Laboratory> = OnceLock::new();
    let headers = ["kgen/paged_tma.cuh", "kgen/pages.cuh", "kgen/divisor.cuh"];
    LABORATORY.get_or_init(|| Laboratory::new("paged", &headers))
}

/// Kernels that read pages, of the other templates that do.
fn paged_kinds() -> &'static Laboratory {
    static LABORATORY: OnceLock<Laboratory> = OnceLock::new();
    let headers = ["kgen/paged_tma.cuh", "kgen/pages.cuh", "kgen/staged_pages.cuh"];
    LABORATORY.get_or_init(|| Laboratory::new("paged_kinds", &headers))
}

/// Kernels of sequences that have unlike numbers of splits.
fn split_counts() -> &'static Laboratory {
    static LABORATORY: OnceLock<Laboratory> = OnceLock::new();
    LABORATORY.get_or_init(|| Laboratory::new("split_counts", &["kgen/split_params.cuh"]))
}

/// Kernels that write new rows themselves.
fn append() -> &'static Laboratory {
    static LABORATORY: OnceLock<Laboratory> = OnceLock::new();
    LABORATORY.get_or_init(|| Laboratory::new("append", &["kgen/append.cuh", "kgen/row_shares.cuh"]))
}

/// Hopper's kernels that widen K and V.
fn kv_fp8_hopper() -> &'static Laboratory {
    static LABORATORY: OnceLock<Laboratory> = OnceLock::new();
    LABORATORY.get_or_init(|| Laboratory::new("kv_fp8_hopper", &["kgen/widen_tile.cuh"]))
}

/// Kernels whose pages have factors of their own.
fn page_descale() -> &'static Laboratory {
    static LABORATORY: OnceLock<Laboratory> = OnceLock::new();
    LABORATORY.get_or_init(|| Laboratory::new("page_descale", &["kgen/page_descales.cuh"]))
}

/// Kernels whose tiles hold the queries of all heads that read one key head.
fn packgqa() -> &'static Laboratory {
    static LABORATORY: OnceLock<Laboratory> = OnceLock::new();
    LABORATORY.get_or_init(|| Laboratory::new("packgqa", &["kgen/packed_tma.cuh"]))
}

/// Kernels for queries of two parts.
fn mla() -> &'static Laboratory {
    static LABORATORY: OnceLock<Laboratory> = OnceLock::new();
    LABORATORY.get_or_init(|| Laboratory::new("mla", &[]))
}

/// Kernels that read K and V from a cache.
fn cache() -> &'static Laboratory {
    static LABORATORY: OnceLock<Laboratory> = OnceLock::new();
    LABORATORY.get_or_init(|| Laboratory::new("cache", &["kgen/cache.cuh", "kgen/fwd_tma.cuh", "kgen/features.cuh"]))
}

/// Kernels whose K and V are FP8.
fn kv_fp8() -> &'static Laboratory {
    static LABORATORY: OnceLock<Laboratory> = OnceLock::new();
    let headers = ["kgen/byte_tile.cuh", "kgen/fp8_to_half.cuh", "kgen/pages.cuh", "kgen/warp_bytes.cuh"];
    LABORATORY.get_or_init(|| Laboratory::new("kv_fp8", &headers))
}

/// Kernels whose warpgroups share the keys of items of few rows.
fn shared_keys() -> &'static Laboratory {
    static LABORATORY: OnceLock<Laboratory> = OnceLock::new();
    LABORATORY.get_or_init(|| Laboratory::new("shared_keys", &[]))
}

/// Where the grid and the list are.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/emulator")
}

impl Laboratory {
    fn new(name: &'static str, headers: &[&str]) -> Self {
        let templates = Templates::embedded();
        let host = host_compiler_in_process().expect("a host compiler");
        // Kept between runs of the tests: everything in it is found by its content.
        let cache = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        let (include, emulator) = (templates.include_files(), templates.emulator_files());
        let kit = EmulatorKit::new(&cache, include, emulator, &host, &Cancel::default());
        let headers = templates.include_files().filter(|(path, _)| headers.contains(path));
        Self {
            name,
            headers: headers.map(|(path, text)| (path.to_owned(), text.to_owned())).collect(),
            renderer: Renderer::new(&templates).expect("the templates parse"),
            grid: Grid::load(&folder().join(format!("{name}_grid.toml"))).expect("the grid reads"),
            kit: kit.expect("the emulator compiles"),
            cache,
        }
    }

    /// The kernel of that name, and its text.
    fn kernel(&self, name: &str) -> (Plan, String) {
        let variant = self.grid.variants().iter().find(|variant| variant.name() == name).expect("the grid has the kernel");
        let plan = Plan::new(*variant, None).expect("it has a plan");
        let text = self.renderer.kernel(&plan).expect("it renders").text;
        (plan, self.with_headers(&text, &mut Vec::new()))
    }

    /// A text with the headers in the place of the first inclusion of each.
    fn with_headers<'a>(&'a self, text: &str, seen: &mut Vec<&'a str>) -> String {
        let mut whole = String::new();
        for line in text.lines() {
            let path = line.strip_prefix("#include \"").and_then(|rest| rest.strip_suffix('"'));
            match path.and_then(|path| self.headers.get_key_value(path)) {
                Some((path, _)) if seen.contains(&path.as_str()) => {}
                Some((path, header)) => {
                    seen.push(path);
                    whole += &self.with_headers(&header.replace("#pragma once\n", ""), seen);
                }
                None => whole.extend([line, "\n"]),
            }
        }
        whole
    }

    fn check(&self, plan: &Plan, text: String) -> Verdict {
        let options = CheckOptions {
            cases: kgen::family::cases,
            level: Level::Smoke,
            filter: None,
            seed: DEFAULT_SEED,
            schedule: None,
            jobs: 1,
            gpu_jobs: 1,
            time_limit: Duration::from_secs(300), // the machine may have more to do
            fresh: true,
            cache: self.cache.clone(),
            kit: Some(self.kit.clone()),
            gpu: None,
            program: PathBuf::from(env!("CARGO_BIN_EXE_kgen")),
        };
        let (variant, tiling, compiled_for) = (plan.variant, plan.tiling(), plan.compiled_for());
        let request = CheckRequest { variant, tiling, compiled_for, kernel: Kernel::Source(text) };
        run(&[request], &options, &()).pop().expect("one verdict")
    }

    fn assert_unharmed_ones_pass(&self) {
        for variant in self.grid.variants() {
            let (plan, kernel) = self.kernel(&variant.name());
            let verdict = self.check(&plan, kernel);
            assert!(verdict.passed(), "{variant}: {}", verdict.message);
        }
    }

    fn assert_all_caught(&self) {
        let text = std::fs::read_to_string(folder().join(format!("{}.toml", self.name))).expect("the list of faults is there");
        let faults = toml::from_str::<Faults>(&text).expect("the list of faults reads").fault;
        assert!(!faults.is_empty(), "a list says something");
        let mut wrong = Vec::new();
        let every_kernel = std::env::var_os("KGEN_EVERY_FAULT").is_some();
        for (number, Fault { name, variant, find, replace, expect }) in faults.iter().enumerate() {
            let kernels = variant.all();
            let one = &kernels[number % kernels.len()..][..1];
            for variant in if every_kernel { kernels } else { one } {
                let (plan, kernel) = self.kernel(variant);
                assert_eq!(kernel.matches(find.as_str()).count(), 1, "{name}: `find` occurs once in {variant}");
                let verdict = self.check(&plan, kernel.replace(find.as_str(), replace));
                if verdict.status != Status::Fail || expect != "fail" && !verdict.message.contains(expect.as_str()) {
                    let Verdict { status, message, .. } = verdict;
                    wrong.push(format!("{name} in {variant}: {status:?}, expected `{expect}`: {message}"));
                }
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}

#[test]
fn unharmed_kernels_of_counted_splits_pass() {
    split_counts().assert_unharmed_ones_pass();
}

#[test]
fn every_planted_fault_of_counted_splits_is_caught() {
    split_counts().assert_all_caught();
}

#[test]
fn unharmed_kernels_with_a_declared_score_pass() {
    declared().assert_unharmed_ones_pass();
}

#[test]
fn every_fault_of_a_declared_score_is_caught() {
    declared().assert_all_caught();
}

#[test]
fn unharmed_kernels_of_unequal_head_dims_pass() {
    head_dims().assert_unharmed_ones_pass();
}

#[test]
fn every_head_dim_that_is_taken_for_the_other_is_caught() {
    head_dims().assert_all_caught();
}

#[test]
fn unharmed_kernels_that_read_pages_pass() {
    paged().assert_unharmed_ones_pass();
}

#[test]
fn every_fault_of_reading_pages_is_caught() {
    paged().assert_all_caught();
}

#[test]
fn unharmed_kernels_of_other_kinds_that_read_pages_pass() {
    paged_kinds().assert_unharmed_ones_pass();
}

#[test]
fn every_fault_of_reading_pages_in_other_kinds_is_caught() {
    paged_kinds().assert_all_caught();
}

#[test]
fn kernels_that_write_new_rows_pass() {
    append().assert_unharmed_ones_pass();
}

#[test]
fn every_planted_fault_of_new_rows_is_caught() {
    append().assert_all_caught();
}

#[test]
fn kernels_of_hopper_that_widen_k_and_v_pass() {
    kv_fp8_hopper().assert_unharmed_ones_pass();
}

#[test]
fn every_planted_fault_of_widening_on_hopper_is_caught() {
    kv_fp8_hopper().assert_all_caught();
}

#[test]
fn unharmed_kernels_whose_pages_have_factors_pass() {
    page_descale().assert_unharmed_ones_pass();
}

#[test]
fn every_fault_of_factors_of_pages_is_caught() {
    page_descale().assert_all_caught();
}

#[test]
fn unharmed_kernels_that_pack_heads_pass() {
    packgqa().assert_unharmed_ones_pass();
}

#[test]
fn every_fault_of_packed_heads_is_caught() {
    packgqa().assert_all_caught();
}

#[test]
fn unharmed_kernels_for_queries_of_two_parts_pass() {
    mla().assert_unharmed_ones_pass();
}

#[test]
fn every_fault_of_queries_of_two_parts_is_caught() {
    mla().assert_all_caught();
}

#[test]
fn unharmed_kernels_that_read_caches_pass() {
    cache().assert_unharmed_ones_pass();
}

#[test]
fn every_fault_of_reading_caches_is_caught() {
    cache().assert_all_caught();
}

#[test]
fn unharmed_kernels_with_k_and_v_in_fp8_pass() {
    kv_fp8().assert_unharmed_ones_pass();
}

#[test]
fn every_fault_of_k_and_v_in_fp8_is_caught() {
    kv_fp8().assert_all_caught();
}

#[test]
fn kernels_whose_warpgroups_share_keys_pass() {
    shared_keys().assert_unharmed_ones_pass();
}

#[test]
fn every_planted_fault_of_shared_keys_is_caught() {
    shared_keys().assert_all_caught();
}
