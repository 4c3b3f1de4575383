"""Stand-ins for a GPU, a library of kgen, peers and compilers, which only record the calls: benches run with them on
any machine with PyTorch. Tensors of the GPU are on PyTorch's `meta` device, which has shapes and strides but no
numbers, so that cases of any size run immediately; a number that is read is about 0, and all comparisons are true.
Nothing is computed or timed."""

import contextlib
import ctypes
import json
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode

from . import kgen, peers, timing
import kgen_attn.backward  # noqa: E402 (`kgen` puts it on the path)
import kgen_attn.forward  # noqa: E402
import kgen_attn.library  # noqa: E402

ADDRESS = 1 << 20
T = torch.Tensor


def told(value):
    """A value as text: tensors by shape, strides and type; addresses as given or not."""
    if isinstance(value, ctypes.Structure):
        fields = {name: (bool(x) if kind is ctypes.c_void_p else x) for name, kind in value._fields_
            for x in [getattr(value, name)]}
        return "{" + ", ".join(f"{name} {told(x)}" for name, x in fields.items() if x not in (0, False, None)) + "}"
    if isinstance(value, ctypes.Array):
        return "array"
    if isinstance(value, T):
        return f"{tuple(value.shape)}{value.stride()}{str(value.dtype).removeprefix('torch.')}"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} {told(x)}" for name, x in sorted(value.items()) if x is not None) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(told, value)) + "]"
    return str(value)


class OnMeta(TorchFunctionMode):
    """Redirects a bench's tensors from `cuda` to `meta`; FlashAttention-2 and cuDNN record their inputs."""

    def __init__(self, note):
        super().__init__()
        self.note = note

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = {name: x for name, x in (kwargs or {}).items() if name != "generator"}
        args = tuple("meta" if isinstance(x, (str, torch.device)) and str(x).startswith("cuda") else x for x in args)
        if str(kwargs.get("device", "")).startswith("cuda"):
            kwargs["device"] = "meta"
        if function is T.cuda:
            return args[0].to("meta")
        if function is torch.equal:
            return True
        if function is torch.nn.functional.scaled_dot_product_attention:
            q, k, v = args
            mask = kwargs.get("attn_mask")
            self.note("sdpa", told(args), told(kwargs))
            return q + k.sum() + v.sum() + (0 if mask is None else mask.sum())
        if args and isinstance(args[0], T) and args[0].device.type == "meta":
            if function is T.data_ptr:
                return ADDRESS
            if function in (T.item, T.__bool__, T.__int__, T.__float__, T.__index__):
                return {T.item: 1e-12, T.__float__: 0.0, T.__bool__: False}.get(function, 0)
            if function is T.all and len(args) == 1:
                return torch.tensor(True)
            if function is T.tolist:
                return torch.arange(args[0].numel()).view(args[0].shape).tolist()
        return function(*args, **kwargs)


class Event:
    """A stand-in for CUDA events: any two events are one second apart."""

    def __init__(self, **_):
        self.record = self.synchronize = lambda: None

    def elapsed_time(self, _):
        return 1e3


class Generator(torch.Generator):
    """A generator for any device, whose numbers are not used."""

    def __new__(cls, *_):
        return super().__new__(cls)


class Kernels:
    """A stand-in for a shared library: has every function, and records the calls and their parameters."""

    def __init__(self, note, path):
        self.note, self.path = note, Path(path).parent.name

    def __getattr__(self, name):
        def call(*given):
            given = [getattr(x, "_obj", x) for x in given]
            if name == "kgen_explain_choice":
                return self.choose(*given)
            if name.endswith("_workspace"):
                return 256
            if name == "kgen_last_error":
                return b""
            structures = [told(x) for x in given if isinstance(x, ctypes.Structure)]
            self.note(name, *structures, *(str(x.value) for x in given if hasattr(x, "value") and x.value != ADDRESS))
            return 0

        if name.startswith("_"):
            raise AttributeError(name)
        call.__name__ = name
        self.__dict__[name] = call
        return call

    @staticmethod
    def choose(params, choice):
        """Every path, in two numbers of splits; each part of a time is a microsecond."""
        times = {f"{part}_ns": 1e3 for part in kgen.PARTS}
        rows = [(path, splits) for path in range(len(kgen.PATHS)) for splits in (1, 2)]
        for place, (path, splits) in enumerate(rows):
            row = choice.candidates[place]
            row.path, row.num_splits, row.variant = path, splits, b"rehearsed"
            row.excluded = b"no pages" if kgen.PATHS[path] in ("MIXED", "PACKED") and not params.page_table else None
            for part, ns in times.items():
                setattr(row, part, ns)
        choice.count, choice.chosen = len(rows), 0
        return 0


def compilers(note, real=subprocess.run):
    """`subprocess.run` of kgen and nvcc: leaves an empty library and reports no spills."""
    resources = [{"registers": 64, "spill_store_bytes": 0, "spill_load_bytes": 0, "stack_bytes": 0}]
    artifacts = [{"name": "flash_fwd_hdim64_bf16_causal_sm80", "target": "sm80", "cpu_seconds": 1.0, "wall_seconds": 1.0,
        "peak_memory_bytes": 1 << 28, "resources": resources}]

    def run(command, **given):
        words = [command] if isinstance(command, str) else list(map(str, command))
        if words[0] in ("cc", "c++", "git", "nvidia-smi"):
            return subprocess.CompletedProcess(words, 0, "", "")
        if "--build-dir" in words and "build" in words:
            place = Path(words[words.index("--build-dir") + 1])
            as_other = f"run-as-{words[words.index('--run-as') + 1]}" if "--run-as" in words else ""
            (place / as_other / "lib").mkdir(parents=True, exist_ok=True)
            (place / as_other / "lib/libkgen.so").write_text("")
            if "--variants" in words:
                note("grid", Path(words[words.index("--variants") + 1]).read_text())
        note("run", *(word for word in words if "/tmp" not in word))
        return subprocess.CompletedProcess(words, 0, json.dumps({"artifacts": artifacts}), "")

    return run


class Modules:
    """A stand-in for the packages of peers."""

    def __init__(self, note):
        def noted(name, result):
            def call(*args, **given):
                note(name, told(args), told({key: x for key, x in given.items()}))
                return result(*args)
            return call

        self.flash_attn_func = noted("fa3_fwd_interface", lambda q, k, v: torch.empty_like(q))
        self._flash_attn_fwd = noted("fa4", lambda q, k, v: (torch.empty_like(q), None))
        self._flash_attn_bwd = noted("fa4 backward", lambda q, k, v, *_: (q, k, v))
        self.varlen_attn = noted("varlen_attn", lambda q, *_: torch.empty_like(q))
        self.get_mla_metadata = noted("flash_mla metadata", lambda *_: (None, None))
        self.flash_mla_with_kvcache = noted("flash_mla", lambda q, cache, table, used, dim, *_: (q[..., :dim], None))

    def flex_attention(self):
        """A stand-in for a compiled function, which is not called."""

    def imported(self, name, *_, site=None):
        if name == "cupy":
            raise peers.Absent("cupy is absent")
        return self


@contextlib.contextmanager
def rehearsal(note):
    """A context in which `note(what, *texts)` receives every call of a library, a peer or a compiler."""
    card = SimpleNamespace(name="no GPU", major=9, minor=0, multi_processor_count=132, L2_cache_size=50 << 20)
    stream, nothing = SimpleNamespace(cuda_stream=0, wait_stream=lambda _: None), lambda *_, **__: None
    inside = lambda *_, **__: contextlib.nullcontext()
    def fa3_fwd(given):
        note("fa3", told(given))
        return [given["q"].new_empty(*given["q"].shape[:-1], given["v"].shape[-1])]

    def fa3_init(self, path):
        self.fwd, self.metadata_op = fa3_fwd, lambda given: note("fa3 metadata", told(given))

    def fa2_backward(q, k, v, causal, scale=None):
        lse = torch.empty(q.shape[0], q.shape[2], q.shape[1], device=q.device)
        note("fa2 forward and backward", told([q, k, v, causal, scale]))
        return torch.empty_like(q), lse, lambda dout, o: [q, k, v]

    def compiled(function, **_):
        def flex(q, k, v, score_mod):
            note("flex_attention", told([q, k, v]))
            return q + k + v + score_mod(0, 0, 0, 0, 0)
        return flex if function.__name__ == "flex_attention" else function

    def forward(q, k, v, optional, numbers):
        note("kgen_attn forward", told([q, k, v, optional, numbers]))
        return torch.empty_like(q), q.new_empty(q.shape[0], q.shape[2], q.shape[1], dtype=torch.float32)

    real_copies, of_package = timing.copies_for, kgen_attn.backward.backward
    backward = mock.create_autospec(of_package, side_effect=lambda dout, q, k, v, *_: (q, k, v, None, None))
    patches = [
        mock.patch.multiple(torch.cuda, get_device_properties=lambda _: card, synchronize=nothing, empty_cache=nothing,
            Event=Event, Stream=lambda: stream, stream=inside, graph=inside, current_stream=lambda: stream,
            CUDAGraph=lambda: SimpleNamespace(replay=nothing), is_available=lambda: True),
        mock.patch.object(torch, "Generator", Generator), mock.patch.object(torch.backends.cudnn, "version", nothing),
        mock.patch.object(torch, "compile", compiled), mock.patch.object(torch.ops, "load_library", nothing),
        mock.patch.object(ctypes, "CDLL", lambda path: Kernels(note, path)),
        mock.patch.multiple(peers.Fa3, __init__=fa3_init, arguments=staticmethod(lambda op, given: [given])),
        mock.patch.object(kgen_attn.forward, "forward", forward),
        mock.patch.object(kgen_attn.backward, "backward", backward),
        mock.patch.object(kgen_attn.library, "library", lambda: SimpleNamespace(emulator=None)),
        mock.patch.multiple(peers, imported=Modules(note).imported, fa2_backward=fa2_backward),
        mock.patch.object(shutil, "which", lambda *_, **__: "nvcc"),
        mock.patch.object(subprocess, "run", compilers(note)),
        mock.patch.object(timing, "copies_for", lambda each, times, **most: note("copies", str(times), told(most))
            or real_copies(each, times, **most)),
    ]
    with contextlib.ExitStack() as stack:
        for patch in patches:
            stack.enter_context(patch)
        stack.enter_context(OnMeta(note))
        yield
