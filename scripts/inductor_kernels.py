#!/usr/bin/env python3
"""Checks without a GPU that compiling a model of transformers with kgen's attention terminates.

    kgen wheel --device emulator --filter "hdim == 64 and dtype == bf16 and target == sm80 and kind == fwd \\
        and not paged"
    python3 scripts/inductor_kernels.py --library build/wheel/lib/libkgen.so [--models GPT,Llama] \\
        [--shapes 1x4096,4x512]

Inductor writes Triton kernels for the operations around attention. Triton takes minutes for some that look harmless:
any(i + 1 <= i) over 4095 numbers is one, which results from the check that position ids rise if they are a range. This
script has Inductor generate code for an H100, which need not be present, and compiles each kernel with each
configuration that `max_autotune_pointwise` would try. Matrix products are left to cuBLAS. Nothing is run. Calls, for
models with --layers layers:

  prefill   a prompt of BATCH x LENGTH tokens
  padded    a prompt with an attention mask that has five tokens of padding on the left
  step      one token after a cache of fixed size, for LENGTH tokens
  left      such a step after prompts that were padded on the left, with the arguments of `generate`

Prints for each kernel the seconds of all its configurations and of the longest one. Exit code 0: each ended within
--limit seconds; 1: one did not; 3: no Triton. It patches internals of torch that change between versions: written for
torch 2.11, Triton 3.6.
"""

import argparse
import hashlib
import multiprocessing
import os
import pathlib
import re
import sys
import tempfile
import time
import types

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"

H100 = types.SimpleNamespace(
    name="NVIDIA H100 80GB HBM3", major=9, minor=0, total_memory=80 << 30, multi_processor_count=132, warp_size=32,
    max_threads_per_multi_processor=2048, max_threads_per_block=1024, regs_per_multiprocessor=65536,
    shared_memory_per_block_optin=232448, L2_cache_size=50 << 20, gcnArchName="",
)  # fmt: skip

CALLS = ("prefill", "padded", "step", "left")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True, type=pathlib.Path, help="a libkgen.so for the emulator")
    parser.add_argument("--models", default="GPT,Llama", help="those whose names begin so, separated by commas")
    parser.add_argument("--shapes", default="1x512,1x4096,4x4096", help="BATCHxLENGTH,...")
    parser.add_argument("--calls", default=",".join(CALLS), help=f"of {', '.join(CALLS)}")
    parser.add_argument("--attention", default="kgen", help="as transformers names it")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--limit", type=float, default=30, help="seconds for all configurations of a kernel")
    args = parser.parse_args()
    if unknown := set(args.calls.split(",")) - set(CALLS):
        parser.error(f"unknown call `{', '.join(sorted(unknown))}`; there are {', '.join(CALLS)}")
    return args


def pretend():
    """Answers every query of Inductor and Triton to a driver as an H100 would."""
    import torch
    import torch._subclasses.fake_tensor
    import triton
    from torch._dynamo.device_interface import CudaInterface
    from triton.backends.compiler import GPUTarget
    from triton.backends.nvidia.driver import CudaDriver

    class Driver(CudaDriver):
        def __init__(self):
            self.get_current_device = lambda: 0

        def get_current_target(self):
            return GPUTarget("cuda", 90, 32)

        def get_active_torch_device(self):
            return torch.device("cuda", 0)

    triton.runtime.driver.set_active(Driver())
    properties = staticmethod(lambda device=None: H100)
    CudaInterface.Worker.get_device_properties = CudaInterface.get_device_properties = properties
    CudaInterface.get_compute_capability = staticmethod(lambda device=None: 90)
    CudaInterface.is_available = staticmethod(lambda: True)
    CudaInterface.is_triton_capable = staticmethod(lambda device=None: True)
    CudaInterface.current_device = staticmethod(lambda: 0)
    torch.cuda.get_device_properties = lambda device=None: H100
    torch.cuda.get_device_capability = lambda device=None: (9, 0)
    torch.cuda.current_device = lambda: 0
    torch.cuda.get_rng_state = lambda *_: torch.get_rng_state()
    torch.cuda.set_rng_state = lambda *_: None
    torch._subclasses.fake_tensor.init_gpu_context = lambda *_: None


class Enough(Exception):
    """Raised when the code has been written, since it is not run."""


def code_of(model, given):
    """Inductor's code for a call of `model`, traced on the CPU and moved to the simulated GPU."""
    import torch
    from torch._dynamo.backends.common import aot_autograd
    from torch._inductor.decomposition import select_decomp_table

    code = []

    def compiler(graph, examples):
        code.append(written(graph, examples))
        raise Enough

    backend = aot_autograd(
        fw_compiler=compiler,
        inference_compiler=compiler,
        decompositions=select_decomp_table(),
        keep_inference_input_mutations=True,
    )
    torch._dynamo.reset()
    try:
        with torch.no_grad():
            torch.compile(lambda **given: model(**given).logits, backend=backend, dynamic=False, fullgraph=True)(**given)
    except torch._dynamo.exc.BackendCompilerFailed as failure:
        if not isinstance(failure.inner_exception, Enough):
            raise
    (text,) = code
    return text


def written(graph, examples):
    """Inductor's code for a graph whose tensors are moved."""
    import torch
    from torch._inductor import config
    from torch._inductor.compile_fx import _recursive_joint_graph_passes, _recursive_post_grad_passes, view_to_reshape
    from torch._inductor.debug import DebugContext
    from torch._inductor.graph import GraphLowering
    from torch._inductor.virtualized import V
    from torch._subclasses.fake_tensor import FakeTensor

    device, mode = torch.device("cuda", 0), torch._guards.detect_fake_mode(examples)

    def moved(value):
        if not isinstance(value, torch.Tensor):
            return value
        return FakeTensor(mode, torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta"), device)

    with V.set_fake_mode(mode):  # before the move: these run operators to fold constants
        graph = _recursive_joint_graph_passes(graph)
        view_to_reshape(graph)
        _recursive_post_grad_passes(graph, is_inference=True)
    for node in graph.graph.nodes:
        if "val" in node.meta:
            node.meta["val"] = torch.utils._pytree.tree_map(moved, node.meta["val"])
        if "device" in node.kwargs:
            node.kwargs = {**node.kwargs, "device": device}
    graph.recompile()
    examples = [moved(example) for example in examples]
    available, torch.cuda.is_available = torch.cuda.is_available, lambda: True
    try:
        with config.patch({"max_autotune_pointwise": True, "compile_threads": 1}), V.set_fake_mode(mode):
            lowering = GraphLowering(graph, example_inputs=examples)
            with V.set_graph_handler(lowering), V.set_debug_handler(DebugContext()):
                lowering.run(*examples)
                return lowering.codegen()[0].value
    finally:
        torch.cuda.is_available = available


def kernels_in(code):
    """Name and source of each Triton kernel."""
    return re.findall(r"async_compile\.triton\('(\w+)', '''(.*?)''', device_str", code, re.DOTALL)


def compile_kernel(name, file, told):
    """Seconds of each configuration, sent as each ends."""
    import torch._inductor.runtime.triton_helpers as helpers
    from torch._inductor.runtime.compile_tasks import _reload_python_module

    helpers.set_driver_to_gpu = lambda: None
    kernel = getattr(_reload_python_module(name, str(file)), name)
    for configuration in kernel.configs:
        begin = time.monotonic()
        kernel._precompile_config(configuration)
        told.send((str(configuration), time.monotonic() - begin))
    told.send(None)


def timed(name, file, limit):
    """(configuration, seconds) of those that ended within `limit` seconds in total, and true if all did. Runs in a
    separate process, because a compilation can only be stopped by killing it."""
    fork = multiprocessing.get_context("fork")
    receive, send = fork.Pipe(duplex=False)
    process = fork.Process(target=compile_kernel, args=(name, file, send))
    process.start()
    send.close()
    end, found = time.monotonic() + limit, []
    try:
        while receive.poll(max(0.0, end - time.monotonic())):
            one = receive.recv()
            if one is None:
                return found, True
            found.append(one)
    except EOFError:  # it failed, and has printed the reason
        pass
    finally:
        process.kill()
        process.join()
    return found, False


def call(model, what, batch, length):
    """Arguments of a call."""
    import torch
    from transformers import StaticCache

    if what in ("step", "left"):
        config = model.config
        cache = StaticCache(config=config, max_cache_len=length)
        heads = getattr(config, "num_key_value_heads", config.num_attention_heads)
        size = config.hidden_size // config.num_attention_heads
        cache.early_initialization(batch, heads, size, torch.bfloat16, torch.device("cpu"))
        given = {"input_ids": torch.ones((batch, 1), dtype=torch.long), "past_key_values": cache, "use_cache": True}
        given["position_ids"] = torch.full((batch, 1), length // 2)
        if what == "left":  # kgen's own: the first valid row of each sequence, and the number of valid rows
            given["attention_mask"] = torch.tensor([5, length // 2], dtype=torch.int32).expand(batch, 1, 1, 2).contiguous()
        return given
    given = {"input_ids": torch.ones((batch, length), dtype=torch.long), "use_cache": False, "logits_to_keep": 1}
    if what == "padded":
        given["attention_mask"] = (torch.arange(length) >= 5).long().expand(batch, -1).clone()
        given["position_ids"] = (given["attention_mask"].cumsum(1) - 1).clamp(min=0)
    return given


def main():
    args = arguments()
    if not args.library.is_file():
        print(f"`{args.library}` is not there: build it with `kgen wheel --device emulator`", file=sys.stderr)
        return 3
    os.environ["KGEN_LIBRARY"] = str(args.library.resolve())
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "python"))
    try:
        pretend()
    except ImportError as error:
        print(f"{error}: install torch with Triton, and transformers", file=sys.stderr)
        return 3
    import kgen_attn
    import torch
    from model_attention import use
    from model_shapes import shapes
    from transformers import AutoModelForCausalLM

    kgen_attn.register()
    wanted, seen, late = tuple(args.models.split(",")), set(), []
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TRITON_CACHE_DIR"] = str(pathlib.Path(folder, "triton"))
        for shape in shapes(False):
            if not shape.causal or not shape.name.startswith(wanted):
                continue
            shape.config.num_hidden_layers = args.layers
            model = AutoModelForCausalLM.from_config(shape.config, attn_implementation="eager", dtype=torch.bfloat16).eval()
            for size in args.shapes.split(","):
                batch, length = map(int, size.split("x"))
                for what in args.calls.split(","):
                    print(f"{shape.name}, {what} {size}", flush=True)
                    with use(model, args.attention):
                        kernels = kernels_in(code_of(model, call(model, what, batch, length)))
                    for name, source in kernels:
                        key = hashlib.sha256(source.encode()).hexdigest()
                        if key in seen:
                            continue
                        seen.add(key)
                        file = pathlib.Path(folder, f"k{key[:16]}.py")
                        file.write_text(source)
                        found, ended = timed(name, file, args.limit)
                        seconds = [one for _, one in found]
                        told = f"{sum(seconds):6.1f} s, longest {max(seconds, default=0):5.1f} s of {len(found)}  {name}"
                        print(f"  {told}" + ("" if ended else f"  did not end within {args.limit:.0f} s"), flush=True)
                        if not ended:
                            late.append(f"{shape.name}, {what} {size}: {name}")
    print(f"{len(seen)} kernels, {len(late)} of them not in time", *late, sep="\n  ")
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main())
