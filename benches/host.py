"""Host times: of calls from Python, of the generated dispatcher and of kgen's commands; which kernels spill, and what
compiling a file takes.

    PYTHONPATH=python python3 benches/host.py package

Only `gpu` needs a GPU. The fastest round of a call counts.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from lab import main, suite
from lab.record import ROOT

SOURCES, INCLUDE = Path(__file__).resolve().parent / "host", ROOT / "generated/include"
DISPATCHER = ROOT / "src/device/dispatcher"  # a runtime and a launch that do nothing


def compiled(source, out, *flags, compiler="cc"):
    """Compiles a file of benches/host to a shared library."""
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-I", INCLUDE, source, "-o", out, *flags], check=True)
    return out


def functions(device, tell):
    """`kgen_attn`'s functions on 64 rows, 8 heads, head dim 64, and PyTorch's times for similar calls."""
    import torch
    from kgen_attn import flash_attn_func, flash_attn_varlen_func, flash_attn_with_kvcache

    draw = lambda *shape: torch.randn(*shape, dtype=torch.bfloat16, device=device)
    integers = lambda *values: torch.tensor(values, dtype=torch.int32, device=device)
    q, k, v, dout = (draw(1, 64, 8, 64) for _ in range(4))
    leaves, packed, cu = [draw(1, 64, 8, 64).requires_grad_() for _ in range(3)], draw(64, 8, 64), integers(0, 64)
    recorded = partial(flash_attn_func, *leaves, causal=True)
    tell("torch: empty_like of the output", lambda: torch.empty_like(q))
    tell("flash_attn_func", lambda: flash_attn_func(q, k, v, causal=True))
    tell("flash_attn_func with LSE", lambda: flash_attn_func(q, k, v, causal=True, return_attn_probs=True))
    if device == "cpu":
        scales = iter(range(1, 1 << 30))
        tell("flash_attn_func, first call of a shape",
            lambda: flash_attn_func(q, k, v, softmax_scale=1e-6 * next(scales)), 400)
    tell("flash_attn_varlen_func", lambda: flash_attn_varlen_func(packed, packed, packed, cu, cu, 64, 64, causal=True))
    with torch.enable_grad():
        tell("flash_attn_func with gradients", recorded)
        if device == "cpu":
            tell("the same and autograd.grad", lambda: torch.autograd.grad(recorded(), leaves, dout), 3000)
    if device == "cpu":
        row, cache = draw(2, 1, 8, 64), draw(2, 64, 8, 64)
        decode = partial(flash_attn_with_kvcache, row, cache, cache, cache_seqlens=integers(3, 5), causal=True)
        tell("flash_attn_with_kvcache", decode)
        tell("flash_attn_with_kvcache, new keys", partial(decode, k=row, v=row))
        numbers = (0, 0, 0.125, True, -1, -1, 0, 0.0, 0, False)
        return tell("torch.ops.kgen_attn.forward", lambda: torch.ops.kgen_attn.forward(q, k, v, *[None] * 14, *numbers))
    across, aten = [x.transpose(1, 2) for x in (q, k, v)], torch.ops.aten._flash_attention_forward
    attention = partial(torch.nn.functional.scaled_dot_product_attention, *across, is_causal=True)
    tell("torch.ops.aten._flash_attention_forward", lambda: aten(q, k, v, None, None, 64, 64, 0.0, True, False),
        contender="torch")
    tell("scaled_dot_product_attention, no_grad", attention, contender="torch")
    with torch.enable_grad():
        tell("scaled_dot_product_attention", attention, contender="torch")


def of_engine(device):
    """Arguments of the ops for a decode step of 8 sequences, as vLLM's engine passes them: for FA3's `fwd` by the
    number of splits, for its metadata, and for FA2's `varlen_fwd`."""
    import torch

    batch, heads, heads_k, dim, on, no = 8, 8, 2, 64, {"device": device}, (None,)
    fused = torch.randn(batch, (heads + 2 * heads_k) * dim, **on).bfloat16()
    q = fused[:, : heads * dim].view(batch, heads, dim)
    k, v = torch.randn(64, heads_k, 16, 2 * dim, **on).bfloat16().transpose(1, 2).split(dim, -1)
    out = torch.empty(batch, heads, dim, dtype=torch.bfloat16, **on)
    cu = torch.arange(batch + 1, dtype=torch.int32, **on)
    used, table = torch.full((batch,), 100, dtype=torch.int32, **on), torch.zeros(batch, 8, dtype=torch.int32, **on)
    ones, sizes = torch.ones(1, **on).expand(batch, heads_k), (batch, 1, 128, heads, heads_k, dim, dim, torch.bfloat16)
    described = lambda splits: (*sizes, used, cu, *no * 4, 16, 0, True, -1, -1, False, splits, None, 0)

    def fa3(splits, counts):
        tensors = (q, k, v, *no * 3, out, cu, *no * 3, used, 1, 128, table, *no * 5, ones, ones, ones)
        return *tensors, 0.125, True, -1, -1, 0.0, True, counts, splits, None, 0, None, 1, 0, None

    rest = (None, 1, 128, 0.0, 0.125, False, True, -1, -1, 0.0, False, 0, None)
    return fa3, described, (q, k, v, out, cu, torch.zeros_like(cu), used, None, table, *rest)


def vllm_ops(device, tell, which, splits=(0, 32), empty=None):
    """The calls of the loaded ops: `fa3`, `fa2`."""
    import torch

    fa3, described, of_fa2 = of_engine(device)
    if "fa3" in which:
        op, metadata = torch.ops._vllm_fa3_C.fwd, torch.ops._vllm_fa3_C.get_scheduler_metadata
        of = lambda count: fa3(count, metadata(*described(count)))
        if empty:
            given = of(0)
            tell("an op without a body, schema of fwd", lambda: empty(*given), contender="torch")
            tell("the same, its overload called", lambda: empty.default(*given), contender="torch")
            tell("_vllm_fa3_C.fwd, its overload called", lambda: op.default(*given))
        for count in splits:
            tell(f"_vllm_fa3_C.fwd, num_splits {count}", partial(op, *of(count)))
        tell("_vllm_fa3_C.get_scheduler_metadata", lambda: metadata(*described(0)))
    if "fa2" in which:
        tell("_vllm_fa2_C.varlen_fwd", lambda: torch.ops._vllm_fa2_C.varlen_fwd(*of_fa2))


def ops_of_host(folder):
    """Builds and loads the ops, with a stub as their library, and an op without a body, which is returned."""
    import torch

    out, of_torch = folder / "out", Path(torch.__file__).parent
    out.mkdir()
    compiled(SOURCES / "stub.c", out / "libkgen_vllm.so", "-DVLLM")
    environment = {**os.environ, "KEY": "CPU", "DEVICE": str(SOURCES / "device.cpp"), "PYTHON": sys.executable,
        "INCLUDE": str(INCLUDE)}
    subprocess.run([ROOT / "scripts/torch_ops.sh", out], env=environment, check=True, stdout=subprocess.DEVNULL)
    for name in ("_vllm_fa2_C", "_vllm_fa3_C"):
        torch.ops.load_library(str(out / f"{name}.abi3.so"))
    schema = str(torch.ops._vllm_fa3_C.fwd.default._schema).partition("fwd")[2]
    schema = schema.replace("$0! -> ", "a!").replace("$1! -> ", "b!")
    (folder / "empty.cpp").write_text((SOURCES / "empty_op.cpp").read_text().replace("@SCHEMA@", schema))
    torch.ops.load_library(str(compiled(folder / "empty.cpp", folder / "empty.so", "-std=c++17",
        "-DTORCH_TARGET_VERSION=0x020a000000000000", "-isystem", of_torch / "include", "-L", of_torch / "lib",
        "-ltorch_cpu", "-lc10", compiler="c++")))
    return torch.ops.empty_op.fwd


def on_one_thread():
    import torch

    torch.set_num_threads(1)
    sys.path.insert(0, str(ROOT / "python"))  # after an installed package, and before it only with PYTHONPATH
    return torch


@suite(tables=False, library=None, gpu=False)
def package(bench):
    """The package's functions on a library whose functions return immediately, with tensors in host memory.

    PYTHONPATH=python python3 benches/host.py package

    The cost of a launch in the library and the driver is excluded, and the CPU's allocator replaces the GPU's. CPU
    times."""
    on_one_thread()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["KGEN_LIBRARY"] = str(compiled(SOURCES / "stub.c", Path(folder) / "libkgen.so"))
        from kgen_attn.library import library

        library().device_type = "cpu"
        functions("cpu", bench.host)


@suite(tables=False, library=None, gpu=False)
def ops(bench):
    """The host times of the Torch ops of docs/vllm.md. An op without a body, with the same schema, measures the cost of
    calling any such op from Python."""
    on_one_thread()
    with tempfile.TemporaryDirectory() as folder:
        vllm_ops("cpu", bench.host, ("fa2", "fa3"), empty=ops_of_host(Path(folder)))


@suite(tables=False, library=None, op="")
def gpu(bench):
    """The installed kgen_attn, compared with PyTorch, on problems so small that the GPU waits for the host.

    python3 benches/host.py gpu [--op OUT/_vllm_fa3_C.abi3.so]

    A round is as many calls as the launch queue accepts without blocking, then an untimed synchronisation; times are
    wall times. --op: a library of Torch ops in place of the package, kgen's or in a separate run vLLM's own."""
    torch, op = on_one_thread(), bench.args.op
    tell = lambda what, call, number=400, contender="kgen": bench.host(what, call, 400, 15, time.perf_counter,
        contender, torch.cuda.synchronize)
    if op:
        torch.ops.load_library(op)
        vllm_ops("cuda", tell, "fa2" if "fa2" in op else "fa3", splits=(0, 1, 32))
    else:
        functions("cuda", tell)


@suite(tables=False, library=None, gpu=False, positional=["generated"])
def dispatcher(bench):
    """The generated dispatcher, with launchers and a device that return immediately.

    kgen generate --all --output everything
    python3 benches/host.py dispatcher everything [--only sm90]

    Times of `kgen_fwd`, `kgen_fwd_workspace` and `kgen_bwd` for a few requests, and the number of queries to CUDA's
    runtime per call: each takes the real runtime 20 to 100 ns, which is not included. --only keeps kernels by their
    names."""
    generated, only = Path(bench.args.generated), bench.args.only
    text = (generated / "kgen_dispatch.cpp").read_text()
    words, stubs = [*only, "combine", "scheduler"] if only else [""], ""
    bench.run["kernels"] = 0
    for name, params, workspace in re.findall(r"^ *KERNEL\((\w+), (\w+), ([01]), .*$", text, re.M):
        if not any(word in name for word in words):
            text = re.sub(rf"^ *KERNEL\({name}, .*\n", "", text, flags=re.M)
            continue
        bench.run["kernels"] += 1
        stubs += f"int {name}(const {params}*, cudaStream_t) {{ return 0; }}\n"
        stubs += f"size_t {name}_workspace(const {params}*) {{ return 0; }}\n" if workspace == "1" else ""
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        (folder / "kgen").mkdir()
        for name, content in {"dispatch.cpp": text, "stubs.inc": stubs,
                "kgen/launch.cuh": (DISPATCHER / "launch.cuh").read_text()}.items():
            (folder / name).write_text(content)
        subprocess.run(["c++", "-std=c++17", "-O2", f"-I{folder}", f"-I{DISPATCHER}", f"-I{generated}/include",
            folder / "dispatch.cpp", SOURCES / "dispatch.cpp", "-o", folder / "program"], check=True)
        said = subprocess.run([folder / "program"], check=True, stdout=subprocess.PIPE, text=True).stdout
    for line in said.splitlines():
        name, questions, *times = line.split("\t")
        bench.clocked(f"{name}, {questions} questions", [float(us) for us in times], 500,
            details={"questions": int(questions)})


HEAD_DIMS = range(16, 257, 8)
TEXT_OF_DIMS = ",".join(map(str, HEAD_DIMS))
FOUR = f"for i in 1 2 3 4; do $KGEN generate --head-dim {TEXT_OF_DIMS} --output $i || exit; done"
# Description, command, and whether its folder persists
COMMANDS = [
    ("kgen list", "$KGEN list", False),
    ("kgen list --set standard-74 --format json", "$KGEN list --set standard-74 --format json", False),
    ("kgen generate --all, empty folder", "$KGEN generate --all", False),
    ("kgen generate --all, nothing changed", "$KGEN generate --all", True),
    ("kgen generate --head-dim 16,24,…,256, empty folder (124 kernels)", f"$KGEN generate --head-dim {TEXT_OF_DIMS}",
        False),
    ("the same into four empty folders, one after another (496 kernels)", FOUR, False),
    ("kgen build-all --device emulator, nothing changed", "$KGEN build-all --device emulator", True),
]


@suite(library=None, gpu=False, kgen="target/release/kgen", runs=15)
def commands(bench):
    """kgen's own commands: wall time, in fresh folders, with a warm object cache.

    python3 benches/host.py commands [--kgen target/release/kgen] [--runs 15]

    Needs nvcc (kgen's own will do) for the last rows only."""
    environment = {**os.environ, "KGEN": str(Path(bench.args.kgen).resolve())}
    bench.run |= {"cores": os.cpu_count(), "load": os.getloadavg()[0]}
    for what, command, stays in bench.selected(COMMANDS):
        times = []
        with tempfile.TemporaryDirectory() as whole:
            # The first run in a persistent folder is not counted.
            for run in range((2 if bench.args.quick else bench.args.runs) + stays):
                folder, begun = Path(whole) / ("one" if stays else str(run)), time.perf_counter()
                folder.mkdir(exist_ok=True)
                done = subprocess.run(command, shell=True, cwd=folder, capture_output=True, text=True, env=environment)
                times.append(1e6 * (time.perf_counter() - begun))
                if done.returncode != 0:
                    return f"{command} failed: {done.stderr.strip()[-400:]}"
        bench.clocked(what, times[stays:])


TARGETS = {"sm75": range(16, 129, 8),
    **dict.fromkeys(("sm80", "sm89", "sm90", "sm100", "sm120", "sm121"), HEAD_DIMS)}
SPILLS = ("spill_store_bytes", "spill_load_bytes", "stack_bytes")


@suite(tables=False, library=None, gpu=False, head_dim=list(HEAD_DIMS), kgen="target/release/kgen", dtype="fp16,bf16",
    jobs=os.cpu_count(), target={"nargs": "+", "choices": TARGETS, "default": list(TARGETS)})
def spills(bench):
    """Compiles default plans of the forward kernels for every head dim and target and reports spills. Needs nvcc.

    python3 benches/host.py spills --kgen target/release/kgen                     # all: some 780 kernels
    python3 benches/host.py spills --target sm120 sm121 --head-dim 64 128         # a part

    Prints a Markdown table, one row per target: kernels, those that spill or use local memory, most registers. Exit
    code 1 if one spills. Objects stay in kgen's cache, so a second run is quick. A row of --out is a kernel that
    spills, or a target."""
    args = bench.args
    print("| target | kernels | spill | most registers | CPU s a kernel |\n|---|---|---|---|---|")
    for target in bench.selected(args.target, str):
        dims = ",".join(str(d) for d in TARGETS[target] if d in args.head_dim)
        with tempfile.TemporaryDirectory() as root:
            done = subprocess.run([Path(args.kgen).resolve(), "build", "--kind", "fwd", "--dtype",
                "fp16" if target == "sm75" else args.dtype, "--target", target, "--format", "json", "--jobs",
                str(args.jobs), "--head-dim", dims, "--generated", f"{root}/generated", "--build-dir", f"{root}/build"],
                capture_output=True, text=True)
        if done.returncode != 0:
            return f"{target}: {done.stderr.strip()}"
        artifacts = [found for found in json.loads(done.stdout)["artifacts"] if found["target"]]  # not the dispatcher
        bad = [a["name"] for a in artifacts if any(k[size] for k in a["resources"] for size in SPILLS)]
        most = max(k["registers"] for a in artifacts for k in a["resources"])
        seconds = sum(a["cpu_seconds"] for a in artifacts) / len(artifacts)
        print(f"| {target} | {len(artifacts)} | {len(bad)} | {most} | {seconds:.1f} |", flush=True)
        for name in bad:
            bench.add(target, name, "wrong", "spills or uses local memory")
        bench.add(target, "kgen", numbers={"kernels": len(artifacts), "registers": most, "cpu_seconds": seconds})


# Kinds of kgen, and the beginnings of FlashAttention-2's file names.
PASSES = {"fwd": "flash_fwd", "fwd_split": "flash_fwd_split", "bwd": "flash_bwd"}
# FlashAttention-2's setup.py, for one architecture as kgen's files.
FA2_FLAGS = ["-O3", "-std=c++17", "-U__CUDA_NO_HALF_OPERATORS__", "-U__CUDA_NO_HALF_CONVERSIONS__",
    "-U__CUDA_NO_HALF2_OPERATORS__", "-U__CUDA_NO_BFLOAT16_CONVERSIONS__", "--expt-relaxed-constexpr",
    "--expt-extended-lambda", "--use_fast_math", "-gencode", "arch=compute_80,code=sm_80"]


def usage_of(command):
    """CPU seconds and peak memory (bytes) of a command with all processes that it waits for, and its wall time."""
    with tempfile.TemporaryFile() as said:
        begun = time.monotonic()
        process = subprocess.Popen(command, stdout=said, stderr=said)
        _, status, usage = os.wait4(process.pid, 0)
        if status != 0:
            said.seek(0)
            raise RuntimeError(said.read().decode(errors="replace")[-500:])
    return {"cpu_seconds": usage.ru_utime + usage.ru_stime, "wall_seconds": time.monotonic() - begun,
        "memory_bytes": usage.ru_maxrss * 1024}


def fa2_command(folder, cutlass, nvcc, kind, head_dim, out):
    """nvcc's command for FlashAttention-2's file of a pass."""
    from torch.utils.cpp_extension import include_paths

    source = Path(folder) / f"csrc/flash_attn/src/{PASSES[kind]}_hdim{head_dim}_bf16_causal_sm80.cu"
    includes = [source.parents[1], source.parent, Path(cutlass) / "include", *include_paths("cuda")]
    return [nvcc, *FA2_FLAGS, *(f"-I{path}" for path in includes), "-c", str(source), "-o", str(out)]


@suite(tables=False, library=None, gpu=False, head_dim=[64, 96, 128, 192, 256], kgen="target/release/kgen",
    jobs=os.cpu_count(), fa2="", cutlass="", nvcc="nvcc")
def compilation(bench):
    """What nvcc takes for one file, a kernel with one head dim in bf16 with a causal mask for sm_80: CPU seconds and
    memory.

    python3 benches/host.py compilation --fa2 flash-attention --cutlass flash-attention/csrc/cutlass --out compile.jsonl

    --fa2 and --cutlass: repositories of FlashAttention-2 and of the CUTLASS that it names, whose files are compiled with
    the flags of its setup.py and PyTorch's headers. kgen's files are compiled one after another, by the same nvcc if
    that is 13.0 or newer, and FlashAttention-2's on `--jobs` cores."""
    args = bench.args

    def add(contender, kind, head_dim, numbers, **facts):
        shape = {"head_dim": head_dim, "causal": 1}
        bench.add(f"{kind} d{head_dim}", contender, numbers=numbers, own=contender == "kgen", shape=shape, dtype="bf16",
            details={"kind": kind, **facts})
        print(f"{contender} {kind} d{head_dim}: {numbers['cpu_seconds']:.1f} CPU s, "
            f"{numbers['memory_bytes'] / 1e6:.0f} MB", flush=True)

    kinds = list(bench.selected(PASSES, str, quick=1))
    with tempfile.TemporaryDirectory() as root:
        done = subprocess.run([Path(args.kgen).resolve(), "build", "--kind", ",".join(kinds), "--dtype", "bf16", "--causal",
            "--target", "sm80", "--head-dim", ",".join(map(str, args.head_dim)), "--format", "json", "--jobs", "1", "--only",
            "--generated", f"{root}/generated", "--build-dir", f"{root}/build"], capture_output=True, text=True)
        if done.returncode != 0:
            return done.stderr.strip()
        for built in json.loads(done.stdout)["artifacts"]:
            if found := re.fullmatch(r"flash_(\w+?)_hdim(\d+)_bf16_causal_sm80", built["name"]):
                numbers = {"cpu_seconds": built["cpu_seconds"], "wall_seconds": built["wall_seconds"],
                    "memory_bytes": built["peak_memory_bytes"]}
                add("kgen", found[1], int(found[2]), numbers, kernel=built["name"])
        if not args.fa2:
            return None
        files = [(kind, head_dim) for head_dim in args.head_dim for kind in kinds]
        with ThreadPoolExecutor(args.jobs) as pool:
            usages = pool.map(lambda of: usage_of(fa2_command(args.fa2, args.cutlass, args.nvcc, *of,
                f"{root}/{of[0]}-{of[1]}.o")), files)
            for (kind, head_dim), numbers in zip(files, usages):
                add("fa2", kind, head_dim, numbers)


if __name__ == "__main__":
    main(__doc__)
