//! A generated folder from a C programmer's view: the example and the dispatcher, built with the host compiler against
//! the emulator, so that no CUDA and no GPU are needed.

#[path = "library/call.rs"]
mod call;
#[path = "library/choices.rs"]
mod choices;
#[path = "library/dispatch.rs"]
mod dispatch;
#[path = "library/features.rs"]
mod features;
#[path = "library/graph.rs"]
mod graph;
#[path = "library/latent.rs"]
mod latent;
#[path = "library/predictions.rs"]
mod predictions;

use kgen::{
    family::attention::{Kind, Point, TileChange},
    grid::Grid,
    kernel::{Dtype, Features, HeadDim, Target, TileOverride},
    plan::Plan,
    render::{Prune, Renderer, Templates, tree, write_tree},
    toolchain::host_compiler_in_process,
};
use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::LazyLock,
};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// A generated folder of a few variants and its objects for the host, compiled once for all tests.
struct Library {
    folder: PathBuf,
    /// The emulator and the kernels.
    kernels: Vec<PathBuf>,
    dispatcher: PathBuf,
}

/// The emulator's object, compiled once for all libraries.
static RUNTIME: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("library_runtime");
    std::fs::create_dir_all(&folder).expect("made");
    let templates = Path::new(ROOT).join("templates");
    compile_to(&folder.join("runtime.o"), &templates.join("include"), &templates.join("emulator/runtime.cpp"), &["-O1"])
});

static LIBRARY: LazyLock<Library> = LazyLock::new(|| {
    Library::new("library", &[variant(Kind::Fwd, 64, Dtype::Bf16, true), variant(Kind::Fwd, 40, Dtype::Fp16, false)])
});

/// Kernels that split requests of head dim 64, bf16, causal, and two kernels that do not.
static SPLIT_LIBRARY: LazyLock<Library> = LazyLock::new(|| {
    let helpers = [Kind::FwdCombine, Kind::PrepareScheduler].map(|kind| variant(kind, 0, Dtype::Fp16, false));
    let shaped = [
        variant(Kind::Fwd, 64, Dtype::Bf16, true),
        variant(Kind::Fwd, 40, Dtype::Fp16, false),
        variant(Kind::FwdSplit, 64, Dtype::Bf16, true),
    ];
    Library::new("split_library", &[&shaped[..], &helpers[..]].concat())
});

fn variant(kind: Kind, head_dim: u32, dtype: Dtype, causal: bool) -> Point {
    Point { kind, head_dim: HeadDim::equal(head_dim), dtype, causal, features: Features::NONE, target: Target::Sm80 }
}

impl Library {
    fn new(folder: &str, variants: &[Point]) -> Self {
        let plans: Vec<Plan> = variants.iter().map(|variant| Plan::new(*variant, None).expect("fits")).collect();
        Self::of(folder, &plans, &[])
    }

    /// The library of these plans, compiled with `flags` in addition to the usual ones.
    fn of(folder: &str, plans: &[Plan], flags: &[&str]) -> Self {
        let templates = Templates::embedded();
        let renderer = Renderer::new(&templates).expect("templates parse");
        let files = tree(&renderer, &templates, plans).expect("renders");
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(folder);
        write_tree(&folder, &files, Prune::Yes).expect("written");

        let compile = |file: &Path, name: &str, flags: &[&str]| compile_cpp(&folder, file, name, flags);
        let kernels = plans.iter().map(|plan| plan.variant.name());
        let kernels = kernels.map(|name| compile(&folder.join(format!("{name}.cu")), &name, flags));
        Self {
            kernels: kernels.chain([RUNTIME.clone()]).collect(),
            dispatcher: compile(&folder.join("kgen_dispatch.cpp"), "dispatch", flags),
            folder,
        }
    }

    /// Compiles a C99 program and links it with the kernels and `dispatcher`.
    fn program(&self, file: &Path, name: &str, dispatcher: &Path) -> PathBuf {
        self.program_with(file, name, dispatcher, &[], &[])
    }

    /// [`program`](Self::program) with flags for the compiler and for the linker.
    fn program_with(&self, file: &Path, name: &str, dispatcher: &Path, compiling: &[String], linking: &[String]) -> PathBuf {
        let (object, program) = (self.folder.join(name).with_extension("o"), self.folder.join(name));
        let mut command = Command::new("cc");
        command.args(["-std=c99", "-Wall", "-Wextra", "-Werror", "-O1", "-I"]).arg(self.folder.join("include"));
        command.arg("-I").arg(Path::new(ROOT).join("tests/library")).args(compiling).arg("-c").arg(file).arg("-o").arg(&object);
        run(&mut command);
        let mut link = Command::new(host_compiler_in_process().expect("a C++ compiler").path);
        run(link.args(&self.kernels).arg(dispatcher).arg(&object).args(linking).args(["-lm", "-o"]).arg(&program));
        program
    }
}

/// Compiles a file against the headers of a generated folder into an object in that folder.
fn compile_cpp(folder: &Path, file: &Path, name: &str, flags: &[&str]) -> PathBuf {
    compile_to(&folder.join(name).with_extension("o"), &folder.join("include"), file, flags)
}

fn compile_to(object: &Path, include: &Path, file: &Path, flags: &[&str]) -> PathBuf {
    let mut command = Command::new(host_compiler_in_process().expect("a C++ compiler").path);
    // `-Og`: kernels and dispatchers run for less time than `-O1` takes to compile them.
    command.args(["-std=c++17", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror", "-Og"]);
    // No warning that a kernel's parameters are more visible than their tensor maps, a hidden type of the emulator.
    command.args(["-Wno-attributes", "-I"]);
    command.arg(Path::new(ROOT).join("templates/emulator")).arg("-I").arg(include);
    run(command.args(flags).args(["-x", "c++", "-c"]).arg(file).arg("-o").arg(object));
    object.to_owned()
}

fn run(command: &mut Command) -> String {
    let output = command.output().expect("the program starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{command:?}\n{}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

/// Querying a device's memory clock takes the driver about a millisecond; the other attributes are read many times per
/// call.
#[test]
fn a_device_is_asked_for_each_of_its_numbers_once() {
    let (tests, program) = (Path::new(ROOT).join("tests/library/device"), Path::new(env!("CARGO_TARGET_TMPDIR")).join("devices"));
    let mut command = Command::new(host_compiler_in_process().expect("a C++ compiler").path);
    command
        .args(["-std=c++17", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(&tests)
        .arg("-I")
        .arg(Path::new(ROOT).join("src/device/dispatcher"))
        .arg("-I")
        .arg(Path::new(ROOT).join("templates/include"));
    run(command.arg(tests.join("devices.cpp")).arg("-o").arg(&program));
    let said = run(&mut Command::new(program));
    // Device 2 does not report its memory clock; only the first 64 devices are cached.
    let expected = [
        "-1: 0 0 0, asked 0; 0 0 0, asked 0; identity -1",
        "0: 1024 1024 1024, asked 1; 53248 53248 53248, asked 5; identity 0",
        "1: 2048 2048 2048, asked 1; 53249 53249 53249, asked 5; identity 1",
        "2: 0 0 0, asked 1; 0 0 0, asked 12; identity 2",
        "63: 65536 65536 65536, asked 1; 53311 53311 53311, asked 5; identity 63",
        "64: 66560 66560 66560, asked 3; 53312 53312 53312, asked 15; identity 64",
    ];
    assert_eq!(said.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn the_c_example_finds_every_variant_correct() {
    let program = LIBRARY.program(&LIBRARY.folder.join("examples/attention.c"), "attention", &LIBRARY.dispatcher);
    for name in ["flash_fwd_hdim40_fp16_sm80", "flash_fwd_hdim64_bf16_causal_sm80"] {
        let said = run(Command::new(&program).arg(name));
        assert!(said.starts_with(name) && said.ends_with("correct\n"), "{said}");
    }
    let unknown = Command::new(&program).arg("flash_fwd_hdim48_fp16_sm80").output().expect("starts");
    assert_eq!(unknown.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("  flash_fwd_hdim40_fp16_sm80\n"));
}

#[test]
fn the_dispatcher_picks_what_runs_and_says_what_is_nearest() {
    let (fp16, bf16, fp8) = ("0", "1", "2");
    let requests = [
        (["80", "40", fp16, "0"], "0 "),
        (["121", "64", bf16, "1"], "0 "),
        (
            ["75", "64", bf16, "1"],
            "3 kgen_fwd: flash_fwd_hdim64_bf16_causal_sm80 needs compute capability 8.0 or newer; this device has 7.5",
        ),
        (["90", "48", fp16, "0"], "3 kgen_fwd: no variant for head_dim 48, fp16, not causal; the nearest head dim held is 40"),
        (
            ["90", "64", bf16, "0"],
            "3 kgen_fwd: no variant that is bf16 and not causal for compute capability 9.0; kgen_variants() lists what is held",
        ),
        (
            ["90", "64", fp8, "1"],
            "3 kgen_fwd: no variant that is fp8 and causal for compute capability 9.0; kgen_variants() lists what is held",
        ),
    ];
    let mut expected = vec!["flash_fwd_hdim40_fp16_sm80 80 999", "flash_fwd_hdim64_bf16_causal_sm80 80 999"];
    expected.extend(requests.iter().map(|(_, answer)| *answer));

    let program = LIBRARY.program(&Path::new(ROOT).join("tests/library/requests.c"), "requests", &LIBRARY.dispatcher);
    let said = run(Command::new(program).args(requests.iter().flat_map(|(request, _)| request)));
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[..expected.len()], expected);
    assert!(
        lines[expected.len()].starts_with("1 kgen_fwd: params.struct_size is 8; version 1 of kgen_fwd_params has "),
        "{said}"
    );
    assert_eq!(lines[expected.len() + 1..expected.len() + 3], ["1 kgen_fwd: params is NULL", "0"]);
    // Features that a caller of a later version must not request, through the dispatcher and from a launcher directly.
    let refused = &lines[expected.len() + 3..];
    let size =
        refused[0].split_whitespace().find_map(|word| word.parse::<usize>().ok().filter(|size| *size > 100)).expect("a size");
    let tail = |caller: &str, code: u8| {
        let (last, known) = (size - 1, size - 16);
        format!(
            "{code} {caller}: params.struct_size is {size} and byte {last} is not zero; this library is of version 11 and knows the first {known} bytes"
        )
    };
    let flags =
        |caller: &str, known: &str| format!("5 {caller}: unknown flags 0x40; version 11 of the library knows {known} here");
    let launcher = "flash_fwd_hdim40_fp16_sm80";
    assert_eq!(
        refused[..5],
        [
            tail("kgen_fwd", 5),
            tail(launcher, 5),
            tail("kgen_fwd_workspace", 0),
            flags("kgen_fwd", "0xff05"),
            flags(launcher, "0x5")
        ]
    );
    assert!(refused[5].starts_with("1 kgen_fwd: params.struct_size is 1073741824; version 1 of"), "{said}");
    assert_eq!(refused.len(), 6);
}

#[test]
fn without_ptx_the_dispatcher_keeps_to_the_gpus_of_its_machine_code() {
    let source = Path::new(ROOT).join("tests/library/requests.c");
    let folder = &LIBRARY.folder;
    let dispatcher = compile_cpp(folder, &folder.join("kgen_dispatch.cpp"), "dispatch_without_ptx", &["-DKGEN_NO_PTX"]);
    let program = LIBRARY.program(&source, "requests_without_ptx", &dispatcher);
    let said = run(Command::new(program).args(["89", "40", "0", "0", "90", "40", "0", "0"]));
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[0], "flash_fwd_hdim40_fp16_sm80 80 89");
    assert_eq!(
        lines[2..4],
        ["0 ", "3 kgen_fwd: flash_fwd_hdim40_fp16_sm80 runs on compute capability 8.0 to 8.9; this device has 9.0"]
    );
}

/// An fp16 kernel of head dim 64 without a mask.
fn plain(kind: Kind, target: Target) -> Point {
    Point { kind, head_dim: HeadDim::equal(64), dtype: Dtype::Fp16, causal: false, features: Features::NONE, target }
}

/// A library of kernels whose launchers record the call as `given_to_launcher`, and fail with their own names.
fn names_in_place_of_kernels(name: &str, kernels: &[Point]) -> Library {
    let plans: Vec<Plan> = kernels.iter().map(|kernel| Plan::new(*kernel, None).expect("fits")).collect();
    let templates = Templates::embedded();
    let files = tree(&Renderer::new(&templates).expect("templates parse"), &templates, &plans).expect("renders");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("library-choices").join(name);
    write_tree(&folder, &files, Prune::No).expect("written");

    let launchers = plans.iter().map(|plan| {
        let name = plan.variant.name();
        format!("extern \"C\" int {name}(const kgen_fwd_params* p, cudaStream_t) {{\n    return launched(p, \"{name}\");\n}}\n")
    });
    let text: String = [LAUNCHED.to_owned()].into_iter().chain(launchers).collect();
    std::fs::write(folder.join("launchers.cpp"), text).expect("written");
    let objects =
        ["launchers", "kgen_dispatch"].map(|file| compile_cpp(&folder, &folder.join(file).with_extension("cpp"), file, &[]));
    let [launchers, dispatcher] = objects;
    Library { kernels: vec![launchers, RUNTIME.clone()], dispatcher, folder }
}

/// Behaviour of a launcher without a kernel: it fails with its name, or succeeds if a program requests that.
const LAUNCHED: &str = "#include <string.h>\n#include \"kgen/launch.cuh\"\n\
    extern \"C\" {\n\
    kgen_fwd_params given_to_launcher = {};\n\
    int launchers_succeed = 0, launches = 0;\n\
    char first_launched[128] = \"\";\n\
    }\n\
    static int launched(const kgen_fwd_params* p, const char* name) {\n\
    given_to_launcher = *p;\n\
    if (launches++ == 0) strcpy(first_launched, name);\n\
    return launchers_succeed ? KGEN_SUCCESS : kgen::fail(9, \"%s\", name);\n\
    }\n";

/// The kernels that a dispatcher chooses among fp16 forward kernels for `targets`, on devices of these compute
/// capabilities.
fn choices(name: &str, targets: &[Target], capabilities: &[&str]) -> Vec<String> {
    let kernels: Vec<Point> = targets.iter().map(|target| plain(Kind::Fwd, *target)).collect();
    let library = names_in_place_of_kernels(name, &kernels);
    let program = library.program(&Path::new(ROOT).join("tests/library/requests.c"), "requests", &library.dispatcher);
    let said = run(Command::new(program).args(capabilities.iter().flat_map(|capability| [*capability, "64", "0", "0"])));
    let answers = said.lines().skip(targets.len()).take(capabilities.len());
    answers.map(|answer| answer.trim_start_matches("9 flash_fwd_hdim64_fp16_").to_owned()).collect()
}

#[test]
fn machine_code_made_for_the_device_or_its_family_is_chosen_first() {
    let devices = ["75", "80", "86", "89", "90", "100", "103", "120", "121"];
    let chosen = choices("all", Target::ALL, &devices);
    assert_eq!(chosen, ["sm75", "sm80", "sm80", "sm89", "sm90", "sm100", "sm100", "sm120", "sm121"]);
    assert_eq!(choices("family", &[Target::Sm89, Target::Sm120], &["121"]), ["sm120"], "12.1 is of 12.0's family");
    assert_eq!(choices("own", &[Target::Sm89, Target::Sm121], &["120"]), ["sm89"], "12.0 does not run 12.1's code");
}

#[test]
fn without_machine_code_the_ptx_made_for_the_devices_shared_memory_is_chosen() {
    let newer = ["90", "100", "110", "120", "121"];
    let chosen = choices("ptx", &[Target::Sm75, Target::Sm80, Target::Sm89], &newer);
    assert_eq!(chosen, ["sm80", "sm80", "sm80", "sm89", "sm89"]);
    let without_89 = choices("ptx-80", &[Target::Sm75, Target::Sm80], &newer);
    assert_eq!(without_89, ["sm80"; 5], "never Turing's instructions where Ampere's are there");
    assert_eq!(choices("ptx-75", &[Target::Sm75], &newer), ["sm75"; 5]);
}

#[test]
fn what_tma_does_not_take_goes_to_the_next_best_kernel() {
    let hopper = Point { target: Target::Sm90, ..variant(Kind::Fwd, 64, Dtype::Bf16, true) };
    let says = |folder, variants: &[Point]| {
        let library = Library::new(folder, variants);
        run(&mut Command::new(library.program(
            &Path::new(ROOT).join("tests/library/fallback.c"),
            "fallback",
            &library.dispatcher,
        )))
    };
    assert_eq!(says("fallback_library", &[hopper, variant(Kind::Fwd, 64, Dtype::Bf16, true)]), "0 right\n0 right\n");
    let short = Point { kind: Kind::FwdShort, ..hopper };
    let with_short = says("short_library", &[short, hopper, variant(Kind::Fwd, 64, Dtype::Bf16, true)]);
    assert_eq!(with_short, "0 right\n0 right\n", "one block: the kernel for little work first");
    let alone = says("hopper_library", &[hopper]);
    let words = "0 right\n5 flash_fwd_hdim64_bf16_causal_sm90: Q: the tensor starts at ";
    assert!(alone.starts_with(words) && alone.ends_with("; TMA takes multiples of 16 bytes\n"), "{alone}");
}

#[test]
fn little_work_goes_to_the_kernel_for_it_and_much_to_the_other() {
    let kernels = [plain(Kind::FwdShort, Target::Sm90), plain(Kind::Fwd, Target::Sm90), plain(Kind::Fwd, Target::Sm80)];
    let library = names_in_place_of_kernels("little_work", &kernels);
    let program = library.program(&Path::new(ROOT).join("tests/library/little_work.c"), "little_work", &library.dispatcher);
    // Compute capability, batch, heads, seqlen_q, on ten multiprocessors. A block takes 64 queries of a head.
    let requests = [
        (["90", "1", "10", "64"], "flash_fwd_short_hdim64_fp16_sm90"),
        (["90", "5", "2", "1"], "flash_fwd_short_hdim64_fp16_sm90"),
        (["90", "1", "1", "640"], "flash_fwd_short_hdim64_fp16_sm90"),
        (["90", "1", "8", "4096"], "flash_fwd_hdim64_fp16_sm90"),
        (["90", "8", "8", "512"], "flash_fwd_hdim64_fp16_sm90"),
        (["90", "2147483647", "2147483647", "2147482623"], "flash_fwd_hdim64_fp16_sm90"),
        (["90", "0", "1", "64"], "flash_fwd_hdim64_fp16_sm90"),
        (["100", "1", "1", "64"], "flash_fwd_hdim64_fp16_sm80"),
    ];
    let said = run(Command::new(program).args(requests.iter().flat_map(|(request, _)| request)));
    assert_eq!(said.lines().collect::<Vec<_>>(), requests.map(|(_, name)| name));
}

#[test]
fn few_queries_over_long_contexts_are_split_where_that_gains_and_a_workspace_is_given() {
    let library = &*SPLIT_LIBRARY;
    let program = library.program(&Path::new(ROOT).join("tests/library/split.c"), "split", &library.dispatcher);
    let said = run(&mut Command::new(program));
    // 48 rows of 64 + 1 fp32 per split. On 10 multiprocessors 40 blocks run at once: 6 splits of each of 6 tiles,
    // whether lengths are equal or not.
    let expected = [
        "equal: 74880 bytes, split, equal",
        "four asked for: 49920 bytes, split, equal",
        "a byte too little: 49920 bytes, not split, equal",
        "one asked for: 0 bytes, not split, equal",
        "four, merged: 49920 bytes, split, equal",
        "four, merged: 49920 bytes, split, equal",
        "unequal: 74880 bytes, split, equal",
        "four asked for: 49920 bytes, split, equal",
        "a byte too little: 49920 bytes, not split, equal",
        "counts given: 49920 bytes, split, equal",
        "one asked for: 0 bytes, not split, equal",
        "four, merged: 49920 bytes, split, equal",
        "four, merged: 49920 bytes, split, equal",
        // 10 splits, 3 counts, and two words of counters for 6 tiles.
        "scheduled, merged: 124820 bytes, split, equal",
        "scheduled, merged: 124820 bytes, split, equal",
        // Three sequences of one query each, according to `seqlen_q`.
        "longer: 24960 bytes, 0, right",
        "longer: 24960 bytes, 0, right",
        "3 kgen_fwd: no path that flags 0x400 name can be taken; path 2: nothing counts the blocks of its row tiles: \
         arrivals_count is too small, or there are too many splits",
        "short: 0 bytes",
        "no split variant: 0 bytes",
    ];
    assert_eq!(said.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn a_backward_pass_done_by_hand_comes_out_of_the_dispatcher() {
    let library = Library::new("backward_library", &[variant(Kind::Bwd, 16, Dtype::Fp16, false)]);
    let program = library.program(&Path::new(ROOT).join("tests/library/backward.c"), "backward", &library.dispatcher);
    let said = run(&mut Command::new(program));
    let lines: Vec<&str> = said.lines().collect();
    // A tile of 64 queries: shift and delta in fp32, and without the flag sums of two warps of 16 columns.
    assert_eq!(lines[..2], ["usual: 8704 bytes, 0, right", "deterministic: 512 bytes, 0, right"], "{said}");
    let too_little = "1 flash_bwd_hdim16_fp16_sm80: workspace must be 16-byte aligned and have 512 bytes; given 511 at ";
    assert!(lines[2].starts_with(too_little), "{said}");
    assert!(lines[3].starts_with("3 kgen_bwd: no variant that is bf16 and not causal"), "{said}");
    assert!(lines[4].starts_with("0 kgen_bwd_workspace: no variant that is bf16 and not causal"), "{said}");
    assert!(lines[5].starts_with("1 kgen_bwd: params.struct_size is 8; version 2 of kgen_bwd_params has "), "{said}");
    assert_eq!(lines[6], "1 kgen_bwd: params is NULL");
}

#[test]
fn the_other_families_are_called_through_their_entries_in_the_dispatcher() {
    let grid = Grid::builtin();
    let plan = |name: &&str| {
        let variant = grid.variants().iter().find(|variant| variant.name() == *name).expect("the grid has it");
        Plan::new(*variant, None).expect("fits")
    };
    let plans: Vec<Plan> =
        ["vector_add_fp32_sm80", "transpose_b16_sm80", "reduce_sum_fp32_sm80", "append_kv_fp16_sm80"].iter().map(plan).collect();
    let library = Library::of("families_library", &plans, &[]);
    let program = library.program(&Path::new(ROOT).join("tests/library/families.c"), "families", &library.dispatcher);
    let said = run(&mut Command::new(program));
    let expected = [
        "sum: 0 right",
        "overlap: 1 vector_add_fp32_sm80: out overlaps a; give it memory of its own",
        "no bf16: 3 kgen_vector_add: no variant",
        "flag: 5 kgen_vector_add: unknown flags 0x1",
        "NULL: 1 kgen_vector_add: params is NULL",
        "transposition: 0 right",
        "in place: 1 transpose_b16_sm80: out overlaps in; in place only a square matrix is transposed, this one has more columns",
        "3 bytes: 3 kgen_transpose: params.element_bytes is 3; elements have 1, 2 or 4 bytes",
        "no 4 bytes: 3 kgen_transpose: no variant",
        // Two chunks of 16384 and one of 7232 elements, one sum each.
        "workspace: 12 bytes",
        "all: 0 right",
        "a byte too little: 1 reduce_sum_fp32_sm80: workspace_bytes is 11; this takes 12",
        "workspace of two rows: 0 bytes",
        "two rows: 0 right",
        "no max: 3 kgen_reduce: no variant",
        "operation 9: 1 kgen_reduce: params.operation is 9, none of KGEN_REDUCE_*",
        "workspace of operation 9: 0 bytes",
        "short structure: 1 kgen_reduce: params.struct_size is 8",
        "appended: 0 right",
        "8 columns: 1 append_kv_fp16_sm80: rotary_dim 8 must be a multiple of 16 in 16 .. head_dim 16",
        "no fp32: 3 kgen_append_kv: no variant",
        "flag 2: 5 kgen_append_kv: unknown flags 0x2; version 11 of the library knows 0x35 here",
        "no request: 1 kgen_append_kv: params is NULL",
    ];
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), expected.len(), "{said}");
    for (line, expected) in lines.iter().zip(expected) {
        assert!(line.starts_with(expected), "`{line}`, expected `{expected}`");
    }
}

/// One kernel of each template, and a program that makes hostile calls to them, with launches counted instead of run.
static HOSTILE: LazyLock<PathBuf> = LazyLock::new(|| {
    let plan = |kind, head_dim, dtype, causal, target, cluster| {
        let tile = TileChange { cluster, ..TileChange::default() };
        let tile = cluster.map(|_| TileOverride::from(&tile));
        Plan::new(Point { kind, head_dim, dtype, causal, features: Features::NONE, target }, tile.as_ref()).expect("fits")
    };
    let grid = Grid::builtin();
    let append = grid.variants().iter().find(|variant| variant.name() == "append_kv_fp16_sm80").expect("the grid has it");
    let plans = [
        Plan::new(*append, None).expect("fits"),
        plan(Kind::Fwd, HeadDim::equal(64), Dtype::Fp16, true, Target::Sm75, None),
        plan(Kind::Fwd, HeadDim::equal(64), Dtype::Bf16, true, Target::Sm80, None),
        plan(Kind::FwdSplit, HeadDim::equal(64), Dtype::Bf16, true, Target::Sm80, None),
        plan(Kind::FwdCombine, HeadDim::equal(0), Dtype::Fp16, false, Target::Sm80, None),
        plan(Kind::PrepareScheduler, HeadDim::equal(0), Dtype::Fp16, false, Target::Sm80, None),
        plan(Kind::Bwd, HeadDim::equal(16), Dtype::Fp16, false, Target::Sm80, None),
        plan(Kind::Fwd, HeadDim::equal(64), Dtype::Fp8, false, Target::Sm89, None),
        plan(Kind::Fwd, HeadDim::equal(64), Dtype::Bf16, true, Target::Sm90, Some(1)),
        plan(Kind::Fwd, HeadDim::equal(128), Dtype::Bf16, false, Target::Sm90, Some(2)),
        plan(Kind::Fwd, HeadDim::equal(64), Dtype::Fp8, false, Target::Sm90, None),
        plan(Kind::FwdShort, HeadDim::equal(64), Dtype::Bf16, true, Target::Sm90, None),
    ];
    // No arithmetic on any sizes and strides may end in `abort`.
    let undefined = ["-fsanitize=undefined", "-fno-sanitize-recover=all", "-fno-sanitize=vptr"];
    let library = Library::of("hostile_library", &plans, &[&["-O0", "-Wno-psabi"], &undefined[..]].concat());
    // The linker's name of the emulator's function that starts a grid.
    let undefined = run(Command::new("nm").arg("-u").arg(&library.kernels[0]));
    let start = undefined.split_whitespace().find(|name| name.contains("8emulator3run")).expect("kernels start grids");
    library.program_with(
        &Path::new(ROOT).join("tests/library/hostile.c"),
        "hostile",
        &library.dispatcher,
        &[format!("-DCOUNT_BLOCKS=__wrap_{start}")],
        &[format!("-Wl,--wrap={start}"), "-fsanitize=undefined".to_owned()],
    )
});

#[test]
fn every_launcher_refuses_more_blocks_than_a_grid_takes() {
    let said = run(Command::new(&*HOSTILE).arg("blocks"));
    assert_eq!(said.lines().count(), 11, "{said}");
    for line in said.lines() {
        let (name, answers) = line.split_once(": ").expect("a name and answers");
        let expected = match name {
            // The kernel launches one block for any batch.
            "flash_prepare_scheduler_sm80" => "launched, launched, launched, launched, launched, launched",
            // One query takes a whole cluster of two blocks, so there are twice as many blocks.
            "flash_fwd_hdim128_bf16_sm90" => "refused, refused, refused, refused, refused, launched",
            _ => "refused, refused, refused, refused, launched, launched",
        };
        assert_eq!(answers, expected, "{name}");
    }
}

/// `KGEN_FUZZ` multiplies the calls; scripts/fuzz.sh sets it.
#[test]
fn hostile_calls_end_in_an_error_and_start_no_impossible_grid() {
    let times = std::env::var("KGEN_FUZZ").ok().and_then(|times| times.parse::<u64>().ok()).unwrap_or(1);
    let seed = std::env::var("KGEN_FUZZ_SEED").unwrap_or_else(|_| "1".to_owned());
    let said = run(Command::new(&*HOSTILE).args(["fuzz", &seed, &(times * 100_000).to_string()]));
    assert_eq!(said, "refused some, launched some, 0 wrong\n");
}
