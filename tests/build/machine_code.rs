//! What a build reports about ptxas's machine code: spills, missing promised instructions, a failing disassembler.

use super::*;

#[test]
fn a_spilling_kernel_is_flagged() {
    let bench = Bench::new();
    let build = bench.build(&[]).env("MOCK_NVCC_SPILL", ONE).assert().success();
    build.stdout(contains("96 B").and(contains("1 variant: registers spill")));
}

#[test]
fn the_machine_code_of_every_kernel_is_read_once() {
    let bench = Bench::new();
    let done = bench.build(&["--format", "json"]).assert().success();
    let report: serde_json::Value = serde_json::from_slice(&done.get_output().stdout).expect("JSON");
    assert_eq!(report["artifacts"][0]["machine_code"]["tensor_cores"]["HMMA.16816.F32.BF16"], 1);
    assert_eq!(report["artifacts"][4]["machine_code"], serde_json::Value::Null, "the dispatcher is host code");
    assert_eq!(report["not_inspected"], serde_json::Value::Null);
    assert_eq!(bench.take_log().iter().filter(|l| *l == "disassemble").count(), 4);
    bench.build(&[]).assert().success().stdout(contains("machine code, as promised: 4 HMMA").and(contains("1 HMMA")));
    assert_eq!(bench.take_log(), Vec::<String>::new());
}

#[test]
fn machine_code_that_breaks_the_plans_promise_fails_its_variant_every_time() {
    let bench = Bench::new();
    let planted = "QMMA.16832.F32.E4M3.E4M3 R4, R8, R12, R4";
    let told = format!("`{ONE}`: its plan promises HMMA and its machine code has 1 QMMA.16832.F32.E4M3.E4M3");
    let build = bench.build(&[]).envs([("MOCK_SASS_OF", ONE), ("MOCK_SASS", planted)]).assert().code(1);
    build.stdout(contains(told.as_str()).and(contains("3 compiled")));
    assert!(!bench.path("build/lib/libkgen.so").exists());
    bench.take_log();
    // An unusable object is not kept in the cache.
    let again = bench.build(&[]).envs([("MOCK_SASS_OF", ONE), ("MOCK_SASS", planted)]).assert().code(1);
    again.stdout(contains(told.as_str()));
    assert_eq!(starts(&bench.take_log()), 1);
    bench.build(&[]).assert().success().stdout(contains("1 compiled, 3 cached"));
}

#[test]
fn a_kernel_without_any_tensor_core_instruction_breaks_its_promise() {
    let bench = Bench::new();
    let build = bench.build(&[]).envs([("MOCK_SASS_OF", ONE), ("MOCK_SASS", "HFMA2.MMA R6, -RZ, RZ, 0, 0")]).assert().code(1);
    build.stdout(contains("its plan promises HMMA and its machine code has none"));
}

#[test]
fn local_memory_in_machine_code_fails_its_variant_unless_it_is_allowed() {
    let bench = Bench::new();
    let planted = [("MOCK_SASS_OF", ONE), ("MOCK_SASS", "HMMA.16816.F32 R4, R8, R12, R4 ;\n /*0018*/ STL.64 [R1], R4")];
    let build = bench.build(&[]).envs(planted).assert().code(1);
    build.stdout(contains("its machine code uses local memory (1 STL.64)").and(contains("--allow-spills")));
    bench.build(&["--allow-spills"]).assert().success();
}

#[test]
fn serialised_products_fail_their_variant_also_from_the_cache_unless_they_are_allowed() {
    let bench = Bench::new();
    let said = "ptxas serialises its `wgmma` products (insufficient register resources for the wgmma pipeline)";
    for _ in 0..2 {
        let build = bench.build(&[]).env("MOCK_NVCC_SERIALISED", ONE).assert().code(1);
        build.stdout(contains(said).and(contains("--allow-spills")));
    }
    bench.build(&["--allow-spills"]).env("MOCK_NVCC_SERIALISED", ONE).assert().success();
}

#[test]
fn a_machine_without_a_disassembler_builds_and_says_so_once() {
    let bench = Bench::new();
    let nvcc = bench.path("nvcc");
    fs::copy(support("mock_nvcc.sh"), &nvcc).expect("copied");
    let build = bench.build(&["--nvcc", "./nvcc", "--offline"]).assert().success();
    let said = stderr(&build);
    assert_eq!(said.matches("machine code is not inspected: no `cuobjdump` and `nvdisasm` in").count(), 1, "{said}");
    build.stdout(contains("machine code not inspected in 4 of 4 variants"));
    let report: serde_json::Value =
        serde_json::from_slice(&fs::read(bench.path("build/report.json")).expect("a report")).expect("JSON");
    assert_eq!(report["artifacts"][0]["machine_code"], serde_json::Value::Null);
    assert!(report["not_inspected"].as_str().is_some_and(|reason| reason.contains("--offline")));
    // Once a disassembler is available, objects built without it are inspected.
    bench.take_log();
    bench.build(&[]).assert().success().stdout(contains("4 cached").and(contains("as promised: 4 HMMA")));
    assert_eq!(bench.take_log().iter().filter(|l| *l == "disassemble").count(), 4);
}

#[test]
fn a_disassembler_that_cannot_read_the_code_stops_no_build() {
    let bench = Bench::new();
    let build = bench.build(&[]).env("MOCK_SASS_ERROR", "error").assert().success();
    let said = stderr(&build);
    assert_eq!(said.matches("machine code is not inspected: ").count(), 1, "{said}");
    assert!(said.contains("nvdisasm` failed: nvdisasm fatal   : Unrecognized architecture"), "{said}");
}
