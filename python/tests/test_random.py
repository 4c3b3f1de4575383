"""Random calls to the package compared with a float64 reference with autograd.

    KGEN_CALLS=2000 KGEN_SEED=7 pytest test_random.py          # without KGEN_CALLS: 60 calls, fast
    KGEN_CALL=7:123 pytest test_random.py                      # repeats one call

The test draws the function, its arguments (also as tensors and NumPy's scalars), layouts of the tensors and biases,
dropout, which of them require grad, autocast, inference mode, torch.compile, torch.func, streams, second derivatives,
and wrong arguments. A call fails with a wrong value, with an exception that does not name an argument, and with a
missing exception. Kernels that the library lacks are counted, not computed.
"""

import collections
import contextlib
import dataclasses
import os
import random
import re
import traceback
from typing import Callable, Optional

import numpy
import pytest
import torch
import torch.autograd.forward_ad as forward_ad
from reference import attention
from test_kvcache import rotated

import kgen_attn
from kgen_attn import MissingKernel
from kgen_attn.library import library

SEED, CALLS = int(os.environ.get("KGEN_SEED", "1")), int(os.environ.get("KGEN_CALLS", "60"))
ON_GPU = library().device_type == "cuda"
MOST_ROWS = 300 if ON_GPU else 36
PAIRS = sorted({(kernel.head_dim, kernel.head_dim_v) for kernel in library().kernels if kernel.kind == "fwd"})
BIASED, DROPPED = (
    sorted({(kernel.head_dim, kernel.head_dim_v) for kernel in library().kernels if kernel.kind == "fwd" and feature in kernel.features})
    for feature in ("bias", "dropout")
)
#: Head dims for which only Hopper's kernels read caches, by TMA: they refuse some strides and addresses.
BY_TMA = set(PAIRS) - {
    (kernel.head_dim, kernel.head_dim_v) for kernel in library().kernels if kernel.kind == "fwd" and kernel.target < 90
}
HALVES = (torch.float16, torch.bfloat16)


@dataclasses.dataclass
class Call:
    """One call: its arguments, and its meaning for each sequence."""

    function: Callable
    leaves: dict[str, torch.Tensor]  # q, k, v and perhaps sinks and bias, as memory holds them
    views: dict[str, Callable]  # maps a leaf to the function's argument; accepts tensors of any type and device
    options: dict
    masks: dict  # arguments of the reference
    # (rows of Q and O, rows of LSE, of K and V) of each sequence: indices of the views.
    sequences: list[tuple]
    packed: str = ""  # the leaf that holds several: qkv or kv
    refused: Optional[str] = None  # argument without a gradient
    slopes: Optional[torch.Tensor] = None
    dtype: torch.dtype = torch.bfloat16  # dtype of the computation
    autocast: bool = False
    bias: Optional[Callable] = None  # maps the leaves to the function's `attn_bias`
    sums: int = 1  # number of scores to which one element of the bias is added
    whole: tuple = ()  # batch, heads, rows and keys, which the bias may have
    p: float = 0.0  # of dropout
    seed: int = 0  # of the generator from which dropout draws

    def given(self, leaves):
        return {name: self.views[name](leaf) for name, leaf in leaves.items() if name in self.views}

    def __call__(self, leaves):
        tensors = self.given(leaves)
        more = {"s_aux": leaves["sinks"]} if "sinks" in leaves else {}
        if self.bias is not None:
            more["attn_bias"] = self.bias(leaves)
        context = torch.autocast(library().device_type, self.dtype) if self.autocast else contextlib.nullcontext()
        if self.p:
            torch.manual_seed(self.seed)
        with context:
            return self.function(*tensors.values(), **self.options, **more)

    def reference(self, leaves, dtype):
        """O and LSE of all sequences. Values are those that the kernel sees, rounded if autocast rounds."""
        tensors = self.given(leaves)
        if "kv" in tensors or "qkv" in tensors:
            axis = -3
            parts = next(t for name, t in tensors.items() if "kv" in name).unbind(axis)
            tensors = {"q": tensors.get("q", parts[0]), "k": parts[-2], "v": parts[-1]}
        q, k, v = (tensors[name] for name in "qkv")
        bias = None if self.bias is None else whole_bias(self.bias(leaves))
        mask = None
        if self.p:
            torch.manual_seed(self.seed)
            state = torch.randint(2**63 - 1, (2,), device=q.device)
            most = (max(t[of[at]].shape[0] for of in self.sequences) for t, at in ((q, 0), (k, 2)))
            mask = kgen_attn.dropout_mask(state, self.p, len(self.sequences), q.shape[-2], *most)
        found = []
        for number, (of_q, _, of_k) in enumerate(self.sequences):
            slopes = self.slopes if self.slopes is None or self.slopes.dim() == 1 else self.slopes[number]
            rows, keys, values = q[of_q], k[of_k], v[of_k]
            own = None
            if bias is not None:  # by the rows and keys of the sequence
                own = bias[number if bias.shape[0] > 1 else 0]
                own = own[:, : rows.shape[0] if own.shape[1] > 1 else 1, : keys.shape[0] if own.shape[2] > 1 else 1]
            kept = None if mask is None else mask[number, :, : rows.shape[0], : keys.shape[0]]
            scores = {"slopes": slopes, "sinks": leaves.get("sinks"), "bias": own, **self.masks}
            found.append(attention(rows, keys, values, kept=kept, p=self.p, dtype=dtype, **scores))
        return found


def whole_bias(bias):
    """The drawn `attn_bias` with four axes, in the form that is added to the scores."""
    if bias.dtype == torch.bool:
        bias = torch.zeros(bias.shape, dtype=torch.float64, device=bias.device).masked_fill(~bias, -float("inf"))
    return bias[(None,) * (4 - bias.dim())]


def bias_of(random, device, whole, dtypes):
    """A bias for scores of shape `whole`: its leaf, a function from the leaf to the argument, and the number of scores
    to which one element of the leaf is added."""
    shape = [1 if random.random() < chance else size for chance, size in zip((0.4, 0.4, 0.3, 0.03), whole)]
    axes = random.choice([4, 4, 4, 3, 2])
    shape[: 4 - axes] = [1] * (4 - axes)
    sums = int(numpy.prod([max(1, size) for size, one in zip(whole, shape) if one == 1]))
    kind = random.choice(["plain", "plain", "rows last", "heads last", "longer rows", "every second key", "expanded"])
    stored, view = shape, lambda x: x
    if kind == "rows last":
        stored, view = [*shape[:2], shape[3], shape[2]], lambda x: x.transpose(2, 3)
    if kind == "heads last":
        stored, view = [shape[0], *shape[2:], shape[1]], lambda x: x.permute(0, 3, 1, 2)
    if kind == "longer rows":
        before = random.choice([0, 1, 4])
        stored, view = [*shape[:3], shape[3] + before + 3], lambda x: x[..., before : before + shape[3]]
    if kind == "every second key":
        stored, view = [*shape[:3], 2 * shape[3]], lambda x: x[..., ::2]
    if kind == "expanded":
        view, axes = lambda x: x.expand(whole), 4
    value = 2 * torch.randn(*stored)
    hides = random.choice([0.0, 0.0, 0.2, 0.9])
    value = value.masked_fill(torch.rand(*stored) < hides, -float("inf"))
    drop = lambda x: x[(0,) * (4 - axes)]
    return value.to(random.choice(dtypes)).to(device), lambda x: drop(view(x)), sums


def layout(random, axes):
    """The shape and view of a leaf: (shape of the leaf, view) for the requested shape."""
    kind = random.choice(["plain", "plain", "heads first", "columns first", "offset", "rows of a longer one", "expanded"])

    def of(shape):
        rows, heads = axes - 3, axes - 2
        if kind == "heads first":
            stored = [*shape]
            stored[rows], stored[heads] = stored[heads], stored[rows]
            return stored, lambda x: x.transpose(rows, heads)
        if kind == "columns first":
            return [*shape[:-2], shape[-1], shape[-2]], lambda x: x.transpose(-1, -2)
        if kind == "offset":
            before = random.choice([1, 4, 8])
            return [*shape[:-1], shape[-1] + before + 3], lambda x: x[..., before : before + shape[-1]]
        if kind == "rows of a longer one":
            return [*shape[:rows], 2 * shape[rows] + 1, *shape[heads:]], lambda x: x[(slice(None),) * rows + (slice(1, None, 2),)]
        if kind == "expanded":
            axis = random.choice([*range(rows), heads])
            return [*shape[:axis], 1, *shape[axis + 1 :]], lambda x: x.expand(shape)
        return [*shape], lambda x: x

    return of


def scalar(random, value):
    """The number in one of the forms that callers use."""
    return random.choice([lambda x: x] * 4 + [torch.tensor, numpy.float32 if isinstance(value, float) else numpy.int64])(value)


def heads_of(random):
    key_heads = random.choice([1, 2])
    return key_heads * random.choice([1, 2, 3]), key_heads


def masks_of(random, heads, sequences, device, call_options):
    """Draws masks and scores. Adds the call's options to `call_options`; returns the reference's keyword arguments, the
    ALiBi slopes and the sinks (None if not drawn)."""
    masks, slopes, leaf = {}, None, None
    if random.random() < 0.4:
        masks["causal"] = call_options["causal"] = True
    if random.random() < 0.3:
        window = (random.choice([-1, 0, 3, 9, 2**33]), random.choice([-1, 0, 2, 5]))
        masks["window"] = (min(window[0], 10**6), window[1])
        call_options["window_size"] = random.choice([window, list(window), tuple(None if side < 0 else side for side in window)])
        if random.random() < 0.1:
            call_options["window_size"] = tuple(torch.tensor(side) for side in window)
    if random.random() < 0.15:
        masks["softcap"] = random.choice([0.5, 2.0, 20.0])
        call_options["softcap"] = scalar(random, masks["softcap"])
    if random.random() < 0.1:
        slopes = torch.randn(*random.choice([(heads,), (sequences, heads)]))  # both signs
        call_options["alibi_slopes"] = slopes.to(device)
    if random.random() < 0.15:
        leaf = torch.randn(heads)
    if random.random() < 0.3:
        masks["scale"] = random.choice([0.05, 0.3, 1.0])
        call_options["softmax_scale"] = scalar(random, float(numpy.float32(masks["scale"])))
        masks["scale"] = float(numpy.float32(masks["scale"]))
    return masks, slopes, leaf


def integers(values, device):
    return torch.tensor(values, dtype=torch.int32, device=device)


def draw_dense(random, device, head_dims, batch, heads, key_heads):
    rows, keys = random.choice([0, 1, 1, 5, 17, MOST_ROWS]), random.choice([1, 7, 20, MOST_ROWS])
    shapes = {"q": (batch, rows, heads, head_dims[0]), "k": (batch, keys, key_heads, head_dims[0]), "v": (batch, keys, key_heads, head_dims[1])}
    used_q, used_k, options = [rows] * batch, [keys] * batch, {}
    if random.random() < 0.15:
        used_k = [random.randint(0, keys) for _ in range(batch)]
        options["seqused_k"] = integers(used_k, device)
    if random.random() < 0.1:
        used_q = [random.randint(0, rows) for _ in range(batch)]
        options["seqused_q"] = integers(used_q, device)
    kind = random.choice(["apart"] * 4 + ["kv", "qkv"])
    if options or head_dims[0] != head_dims[1]:
        kind = "apart"
    if kind == "kv":
        shapes = {"q": shapes["q"], "kv": (batch, keys, 2, key_heads, head_dims[0])}
    if kind == "qkv":
        shapes, used_k = {"qkv": (batch, rows, 3, heads, head_dims[0])}, [rows] * batch
    names = {"apart": "flash_attn_func", "kv": "flash_attn_kvpacked_func", "qkv": "flash_attn_qkvpacked_func"}
    sequences = [((b, slice(0, i)), (b, slice(None), slice(0, i)), (b, slice(0, j))) for b, (i, j) in enumerate(zip(used_q, used_k))]
    if kind == "apart" and random.random() < 0.3:
        options["num_splits"] = scalar(random, random.choice([0, 1, 2, 3]))
    return getattr(kgen_attn, names[kind]), shapes, options, sequences, None


def draw_varlen(random, device, head_dims, batch, heads, key_heads):
    same = random.random() < 0.3
    lengths_q = [random.choice([0, 1, 3, 18, MOST_ROWS // 2]) for _ in range(batch)]
    lengths_k = list(lengths_q) if same else [random.choice([0, 2, 11, MOST_ROWS // 2]) for _ in range(batch)]
    starts = lambda lengths: [sum(lengths[:n]) for n in range(len(lengths) + 1)]
    starts_q, starts_k = starts(lengths_q), starts(lengths_k)
    beyond = random.choice([0, 0, 3])
    total_q, total_k = starts_q[-1] + beyond, starts_k[-1] + beyond
    shapes = {"q": (total_q, heads, head_dims[0]), "k": (total_k, key_heads, head_dims[0]), "v": (total_k, key_heads, head_dims[1])}
    most = [max(lengths_q) + random.choice([0, 2]), max(lengths_k) + random.choice([0, 5])]
    options = {"cu_seqlens_q": integers(starts_q, device), "cu_seqlens_k": integers(starts_k, device)}
    options |= {"max_seqlen_q": scalar(random, most[0]), "max_seqlen_k": scalar(random, most[1])}
    used_q, used_k, refused, kind = lengths_q, lengths_k, None, "apart"
    rows = lambda begin, count: slice(begin, begin + count)
    of_k = [rows(starts_k[b], used_k[b]) for b in range(batch)]
    choice = random.random()
    if choice < 0.2:
        used_k = [random.randint(0, n) for n in lengths_k]
        options["seqused_k"] = integers(used_k, device)
        of_k = [rows(starts_k[b], used_k[b]) for b in range(batch)]
    elif choice < 0.4:
        page, refused = 16, "block_table"
        pages = [-(-n // page) for n in lengths_k]
        width, count = max(1, *pages), sum(pages) + 2
        order = random.sample(range(count), count)
        table = torch.full((batch, width), 10**6, dtype=torch.int64)
        for b, n in enumerate(pages):
            table[b, :n] = torch.tensor([order.pop() for _ in range(n)], dtype=torch.int64)
        shapes["k"], shapes["v"] = (count, page, key_heads, head_dims[0]), (count, page, key_heads, head_dims[1])
        options["block_table"] = table.to(torch.int32).to(device)
        if random.random() < 0.5:
            options["cu_seqlens_k"], options["seqused_k"] = None, integers(lengths_k, device)
        of_k = [(table[b][torch.arange(n) // page], torch.arange(n) % page) for b, n in enumerate(lengths_k)]
    elif choice < 0.6 and head_dims[0] == head_dims[1]:
        kind = random.choice(["kv", "qkv"]) if same else "kv"
    if kind == "kv":
        shapes = {"q": shapes["q"], "kv": (total_k, 2, key_heads, head_dims[0])}
    if kind == "qkv":
        shapes = {"qkv": (total_q, 3, heads, head_dims[0])}
        options = {"cu_seqlens": options["cu_seqlens_q"], "max_seqlen": options["max_seqlen_q"]}
    of_q = [rows(starts_q[b], used_q[b]) for b in range(batch)]
    names = {"apart": "flash_attn_varlen_func", "kv": "flash_attn_varlen_kvpacked_func", "qkv": "flash_attn_varlen_qkvpacked_func"}
    sequences = [(of_q[b], (slice(None), of_q[b]), of_k[b]) for b in range(batch)]
    return getattr(kgen_attn, names[kind]), shapes, options, sequences, refused


def draw_cache(random, device, head_dims, batch, heads, key_heads):
    """A cache that is only read; `written` below draws caches that are written."""
    rows, length = random.choice([1, 1, 3]), random.choice([16, 48])
    entries = batch + random.choice([0, 0, 2])
    shapes = {"q": (batch, rows, heads, head_dims[0]), "k": (entries, length, key_heads, head_dims[0])}
    shapes["v"] = (entries, length, key_heads, head_dims[1])
    used, options, refused = [random.randint(1, length) for _ in range(batch)], {}, None
    order, left = list(range(batch)), [0] * batch
    if random.random() < 0.2:
        used = [random.randint(0, length)] * batch
        options["cache_seqlens"] = scalar(random, used[0])
    else:
        options["cache_seqlens"] = integers(used, device)
    choice = random.random()
    if choice < 0.2:
        order, refused = random.sample(range(entries), batch), "cache_batch_idx"
        options[refused] = integers(order, device)
    elif choice < 0.4:
        left, refused = [random.randint(0, n) for n in used], "cache_leftpad"
        options[refused] = integers(left, device)
    if random.random() < 0.3:
        options["num_splits"] = random.choice([1, 2])
    sequences = [((b,), (b,), (order[b], slice(left[b], used[b]))) for b in range(batch)]
    return kgen_attn.flash_attn_with_kvcache, shapes, options, sequences, refused


def draw(random, device):
    biased = random.random() < (0.25 if BIASED else 0.03)
    dropped = bool(DROPPED) and random.random() < 0.15
    head_dims = random.choice(DROPPED if dropped else BIASED if biased and BIASED else PAIRS)
    if random.random() < 0.15:  # padded up to it
        head_dims = (head_dims[0] - random.choice([1, 4, 7]), head_dims[1] - random.choice([1, 4, 7]))
    batch, (heads, key_heads) = random.choice([1, 2, 3]), heads_of(random)
    make = random.choice([draw_dense, draw_dense, draw_varlen, draw_cache])
    function, shapes, options, sequences, refused = make(random, device, head_dims, batch, heads, key_heads)
    if "qkv" in shapes:
        key_heads = heads
    masks, slopes, sinks = masks_of(random, heads, batch, device, options)
    packed = next((name for name in shapes if "kv" in name), "")
    if packed:
        sinks = None
    dtype = random.choice(HALVES + (torch.bfloat16,) * 2)
    autocast = random.random() < 0.1
    leaves, views = {}, {}
    cached = any(options.get(name) is not None for name in ("block_table", "cache_batch_idx"))
    for name, shape in shapes.items():
        plain = name in ("kv", "qkv") or (cached and name != "q" and head_dims in BY_TMA)
        stored, view = ([*shape], lambda x: x) if plain else layout(random, len(shape))(shape)
        cast = autocast and not (make is draw_cache and name != "q")
        leaves[name] = torch.randn(*stored).to(dtype).to(torch.float32 if cast else dtype).to(device)
        views[name] = view
    if sinks is not None:
        leaves["sinks"] = sinks.to(random.choice([torch.float32, torch.bfloat16])).to(device)
    call = Call(function, leaves, views, options, masks, sequences, packed, refused, slopes, dtype, autocast)
    refused = "block_table" in options or "softcap" in masks or options.get("num_splits", 0) > 1
    if dropped and make is not draw_cache and not refused:
        call.p, call.seed = random.choice([0.1, 0.17, 0.5, 0.8]), random.randrange(1 << 31)
        options["dropout_p"] = scalar(random, call.p)
        call.p = float(options["dropout_p"])
    if biased:
        if make is draw_varlen:
            rows = int(options.get("max_seqlen_q", options.get("max_seqlen", 0)))
            keys = int(options.get("max_seqlen_k", rows))
        else:
            rows, keys = next(iter(shapes.values()))[1], shapes.get("k", shapes.get("kv", shapes.get("qkv")))[1]
        add_bias(call, random, device, (batch, heads, rows, keys))
    return call


def add_bias(call, random, device, whole):
    """Adds a bias to the call, as a leaf, or a bool mask."""
    if whole[3] == 0:  # with pages, 0 means unknown
        return
    call.whole = whole[:3]
    dtypes = (torch.float32, *(HALVES if call.autocast else (call.dtype,)))
    leaf, view, sums = bias_of(random, device, whole, dtypes)
    capped = "softcap" in call.masks
    call.refused = call.refused or ("softcap" if capped else None)
    if random.random() < 0.3:
        mask = view(leaf) > -1.0
        call.bias = lambda leaves: mask
    elif capped:  # without a gradient; with one it is refused in the call
        call.bias = lambda leaves: view(leaf)
    else:
        call.leaves["bias"], call.bias, call.sums = leaf, lambda leaves: view(leaves["bias"]), sums


def written(random, device):
    """New keys in a dense cache, slots or pages, with or without rotary embedding, and attention to them."""
    (heads, key_heads), batch, new = heads_of(random), random.choice([1, 2, 3]), random.choice([1, 2, 5])
    causal, kind = random.random() < 0.7, random.choice(["dense", "slots", "paged"])
    biased = bool(BIASED) and random.random() < 0.3
    width = random.choice([one for one in BIASED if one[0] == one[1]])[0] if biased else 32
    bf16 = lambda *shape: torch.randn(*shape).bfloat16().to(device)
    entries, rows = (3 * batch + 1, 16) if kind == "paged" else (batch + 1, 48)
    caches = [bf16(entries, rows, key_heads, width) for _ in range(2)]
    order, used = random.sample(range(entries), batch), [random.randint(0, 48 - new) for _ in range(batch)]
    table = torch.tensor(random.sample(range(entries), 3 * batch)).reshape(batch, 3) if kind == "paged" else None
    options = {"causal": causal, "return_softmax_lse": True, "cache_seqlens": integers(used, device)}
    if kind == "slots":
        options["cache_batch_idx"] = integers(order, device)
    if kind == "paged":
        options["block_table"] = table.to(torch.int32).to(device)
    if kind == "dense":
        order = list(range(batch))
    gather = lambda cache, b: (cache[table[b]].flatten(0, 1) if kind == "paged" else cache[order[b]]).cpu().clone()
    before = [[gather(cache, b) for b in range(batch)] for cache in caches]
    q, k, v = bf16(batch, new, heads, width), bf16(batch, new, key_heads, width), bf16(batch, new, key_heads, width)
    bias = None
    if biased:
        leaf, view, _ = bias_of(random, device, (batch, heads, new, 48), (torch.float32, torch.bfloat16))
        options["attn_bias"], bias = view(leaf), whole_bias(view(leaf)).expand(batch, heads, new, 48).cpu()
    angles, interleaved, rotary = torch.rand(64, 8) * 6, random.random() < 0.5, random.random() < 0.5
    cos, sin = angles.cos().bfloat16(), angles.sin().bfloat16()
    if rotary:
        options |= {"rotary_cos": cos.to(device), "rotary_sin": sin.to(device), "rotary_interleaved": interleaved}
    q.requires_grad_(random.random() < 0.3)
    with stream(random):
        out, lse = kgen_attn.flash_attn_with_kvcache(q, *caches, k, v, **options)
    for b in range(batch):
        at = torch.arange(used[b], used[b] + new)
        query, key = q[b].detach().cpu(), k[b].cpu()
        if rotary:
            query = rotated(query, cos, sin, at if causal else at[:1].expand(new), interleaved)
            key = rotated(key, cos, sin, at, interleaved)
        keys, values = before[0][b], before[1][b]
        keys[at], values[at] = key, v[b].cpu()
        close(gather(caches[0], b), keys, keys, "K of the cache", torch.finfo(torch.bfloat16).eps * largest(keys))
        assert torch.equal(gather(caches[1], b), values), "V of the cache"
        seen = slice(0, used[b] + new)
        (exact, exact_lse), (low, low_lse) = (
            attention(query, keys[seen], values[seen], causal=causal, bias=None if bias is None else bias[b, :, :, seen], dtype=dtype)
            for dtype in (torch.float64, torch.bfloat16)
        )
        # A rotated value may be rounded in either direction.
        close(out[b], exact, low, "O", 4 * torch.finfo(torch.bfloat16).eps * largest(exact))
        close(lse[b], exact_lse, low_lse, "LSE", 1e-2 if rotary else 1e-5)
    if q.requires_grad:
        raises(lambda: out.float().sum().backward(), "no gradients of `flash_attn_with_kvcache` with new keys", (NotImplementedError,))


NAMED = (TypeError, ValueError, NotImplementedError, kgen_attn.KgenError)


def raises(call, words, kinds=NAMED):
    """True if the call raises the expected exception; MissingKernel does not count."""
    try:
        call()
    except MissingKernel:
        raise
    except kinds as error:
        assert re.search(words, str(error)), f"a bare exception: {type(error).__name__}: {error}"
        return
    raise AssertionError(f"no exception that says {words}")


def lse_name(function):
    return "return_softmax_lse" if function is kgen_attn.flash_attn_with_kvcache else "return_attn_probs"


def pair(found):
    return found[0], found[1]


def close(found, exact, low, what, more=0.0):
    """`reference.assert_close`, with an additional tolerance that the caller derives."""
    found, exact, low = (t.detach().double().cpu() for t in (found, exact, low))
    assert found.shape == exact.shape, f"{what}: shape {tuple(found.shape)}, not {tuple(exact.shape)}"
    assert not found.isnan().any(), f"{what}: NaN"
    if exact.numel() == 0:
        return
    infinite = exact.isinf()
    assert torch.equal(found.isinf(), infinite), f"{what}: infinite elsewhere"
    difference = lambda x: (x - exact).masked_fill(infinite, 0.0).abs().max().item()
    error, allowed = difference(found), 2 * difference(low) + more + 1e-6
    assert error <= allowed, f"{what}: error {error:.3g}, allowed {allowed:.3g}"


def largest(tensor):
    return tensor.detach().double().abs().max().item() if tensor.numel() else 0.0


def error_of_tanh(call):
    """The error that a GPU's tanh.approx adds to the log-sum-exp: a relative error of 2^-10.9 (PTX ISA, `tanh`) of a
    capped score."""
    if not (ON_GPU and "softcap" in call.masks):
        return 0.0
    q, k = (call.leaves.get(name, call.leaves.get("kv", call.leaves.get("qkv"))) for name in "qk")
    scale = call.masks.get("scale") or q.shape[-1] ** -0.5
    score = scale * q.shape[-1] * largest(q) * largest(k)
    return 2**-10.9 * min(call.masks["softcap"], score)


def compare(call, out, lse, wanted, random):
    """O and LSE of every sequence, and gradients of a random loss of both."""
    references = {dtype: None for dtype in (torch.float64, call.dtype)}
    apart = {}
    for dtype in references:
        apart[dtype] = {name: leaf.detach().clone().requires_grad_(name in wanted) for name, leaf in call.leaves.items()}
        references[dtype] = call.reference(apart[dtype], dtype)
    epsilon = torch.finfo(call.dtype).eps
    of_tanh = error_of_tanh(call)
    for number, (of_q, of_lse, _) in enumerate(call.sequences):
        (exact, exact_lse), (low, low_lse) = references[torch.float64][number], references[call.dtype][number]
        close(out[of_q], exact, low, f"O of sequence {number}", 2 * epsilon * largest(exact))
        more = 2e-6 * largest(exact_lse.masked_fill(exact_lse.isinf(), 0.0)) + of_tanh
        close(lse[of_lse], exact_lse, low_lse, f"LSE of sequence {number}", more)
    if not wanted:
        return
    assert out.requires_grad and out.dtype == call.dtype
    of = random.choice(["O", "LSE", "both"])
    dout, dlse = torch.randn(out.shape).to(out), torch.randn(lse.shape).to(out.device)
    if random.random() < 0.2:
        dlse = torch.randn(()).to(out.device).expand(lse.shape)
    if random.random() < 0.3:
        dout = torch.randn(*out.shape[:-1], 1).to(out).expand(out.shape)
    outputs = {"O": [out], "LSE": [lse], "both": [out, lse]}[of]
    given = {"O": [dout], "LSE": [dlse], "both": [dout, dlse]}[of]
    found = lambda: torch.autograd.grad(outputs, [call.leaves[name] for name in wanted], given, allow_unused=True)
    if call.refused is not None:
        return raises(found, f"`{call.refused}`", (NotImplementedError,))
    gradients = {}
    for dtype, rows in references.items():
        loss = torch.zeros((), dtype=dtype, device=out.device)
        for number, (of_q, of_lse, _) in enumerate(call.sequences):
            o, row_lse = rows[number]
            if of != "LSE":
                loss = loss + (o * dout[of_q].to(dtype)).sum()
            if of != "O":
                finite = ~row_lse.isinf()
                loss = loss + (row_lse.masked_fill(~finite, 0.0) * dlse[of_lse].to(dtype)).sum()
        leaves = [apart[dtype][name] for name in wanted]
        gradients[dtype] = torch.autograd.grad(loss, leaves, allow_unused=True) if loss.requires_grad else [None] * len(wanted)
    # dS = P (dP - delta): delta is a sum over O, which has been rounded, and dS is rounded before it is multiplied.
    size = {name: largest(call.leaves[name]) for name in call.leaves}
    q, k = size.get("q", size.get("qkv")), size.get("k", size.get("kv", size.get("qkv")))
    v = size.get("v", size.get("kv", size.get("qkv")))
    width = out.shape[-1] ** 0.5 / (1.0 - call.p)
    delta = epsilon * (largest(dout) * v * width * (of != "LSE") + largest(dlse) * (of != "O"))
    scale = call.masks.get("scale") or call.leaves.get("q", call.leaves.get("qkv")).shape[-1] ** -0.5
    rows = max(1, out.numel() // max(1, out.shape[-1])) ** 0.5
    more = {"q": scale * k * delta, "k": scale * q * delta * rows, "v": epsilon * largest(dout) * rows / (1.0 - call.p)}
    more |= {"sinks": delta * rows, "bias": delta * call.sums**0.5}
    more["kv"], more["qkv"] = max(more["k"], more["v"]), max(more["q"], more["k"], more["v"])
    for name, one, exact, low in zip(wanted, found(), *gradients.values()):
        zero = torch.zeros_like(call.leaves[name].detach(), dtype=torch.float64)
        one = zero if one is None else one
        close(one, *(zero if t is None else t for t in (exact, low)), f"d{name} of {of}", more[name] + 2 * epsilon * largest(exact if exact is not None else zero))


def ordinary(call, random):
    """Makes the call in a random mode of torch and checks its values."""
    names = [name for name in call.leaves if random.random() < 0.5]
    mode = random.choice(["grad", "grad", "no_grad", "inference", "plain"])
    wanted = names if mode == "grad" else []
    for name, leaf in call.leaves.items():
        leaf.requires_grad_(name in names and mode in ("grad", "no_grad"))
    contexts = {"no_grad": torch.no_grad, "inference": torch.inference_mode}
    call.options[lse_name(call.function)] = True
    if random.random() < 0.2:
        call.options["deterministic"] = True
        if call.function is kgen_attn.flash_attn_with_kvcache:
            del call.options["deterministic"]
        elif call.sums > 1 and "bias" in wanted and sums_over_axes(call):
            return raises(lambda: call(call.leaves), "`attn_bias` .* `deterministic` is True", (NotImplementedError,))
    run = call
    if random.random() < 0.03 and not any(isinstance(value, (torch.Tensor, numpy.generic)) and value.ndim == 0 for value in flat(call.options)):
        torch._dynamo.reset()
        function = call.function
        call.function = torch.compile(function, backend=random.choice(["eager", "aot_eager"]), fullgraph=True)
        call.options = {name: value for name, value in call.options.items()}
        try:
            with contexts.get(mode, contextlib.nullcontext)():
                out, lse = pair(call(call.leaves))
        finally:
            call.function = function
    else:
        with contexts.get(mode, contextlib.nullcontext)(), stream(random):
            out, lse = pair(run(call.leaves))
            if random.random() < 0.3:  # repeats the call
                again, _ = pair(run(call.leaves))
                for of_q, *_ in call.sequences:
                    assert torch.equal(again[of_q], out[of_q]), "the same call again"
    assert not (out.requires_grad and not wanted), "requires grad, which nothing asked for"
    compare(call, out, lse, wanted, random)


def sums_over_axes(call):
    """True if the gradient of the bias is summed over batch entries, heads or rows, which is in no fixed order."""
    bias = whole_bias(call.bias(call.leaves))
    return any(size == 1 and whole > 1 for size, whole in zip(bias.shape, call.whole))


def flat(options):
    for value in options.values():
        yield from value if isinstance(value, (tuple, list)) else (value,)


@contextlib.contextmanager
def stream(random):
    """A context that sometimes selects another stream than the one that created the inputs."""
    if not ON_GPU or random.random() < 0.7:
        yield
        return
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        yield
    torch.cuda.current_stream().wait_stream(side)


def transformed(call, random):
    """torch.func, tangents and second derivatives, each of which is refused."""
    name = random.choice([name for name in call.leaves if name != "sinks"])  # the bias too
    leaf = call.leaves[name]
    of = lambda x: pair(call({**call.leaves, name: x}))[0] if lse_name(call.function) in call.options else call({**call.leaves, name: x})
    kind = random.choice(["grad", "vjp", "jvp", "vmap", "tangent", "twice"])
    if kind == "grad":
        return raises(lambda: torch.func.grad(lambda x: of(x).float().sum())(leaf), r"torch\.func", (NotImplementedError,))
    if kind == "vjp":
        return raises(lambda: torch.func.vjp(of, leaf), r"torch\.func", (NotImplementedError,))
    if kind == "jvp":
        return raises(lambda: torch.func.jvp(of, (leaf,), (leaf,)), r"torch\.func|tangent", (NotImplementedError,))
    if kind == "vmap":
        return raises(lambda: torch.func.vmap(of)(leaf[None]), "`torch.func.vmap`", (NotImplementedError,))
    if kind == "tangent":
        with forward_ad.dual_level():
            return raises(lambda: of(forward_ad.make_dual(leaf, leaf.clone())), "has a tangent", (NotImplementedError,))
    leaf.requires_grad_()

    def twice():
        (first,) = torch.autograd.grad(of(leaf).float().sum(), leaf, create_graph=True)
        if call.refused is None:
            first.float().sum().backward()

    return raises(twice, f"no second derivatives|`{call.refused}`", (NotImplementedError,))


WRONG = {
    "softmax_scale": ["x", float("nan"), -1.0, torch.ones(2), [1.0]],
    "window_size": [3, (-2, 0), (1.5, 0), (1, 2, 3), "xx"],
    "softcap": ["x", float("inf"), float("nan"), None],
    "causal": [torch.ones(3)],
    "num_splits": [2**32 + 1, 1.5, None],
    "attention_chunk": [-1, 2**40, "x"],
    "cache_seqlens": [2.5, -1, 10**6, 2**40],
    "max_seqlen_q": [2**32, 2.5, None],
    "max_seqlen_k": [2**31, "x"],
    "cu_seqlens_q": [5, None, [0, 1]],
    "seqused_k": [5, [1]],
    "alibi_slopes": [0.5, torch.ones(77)],
    "s_aux": [0.5, torch.ones(77)],
    "attn_bias": [0.5, [1], torch.ones(77), torch.ones(7, 77), torch.ones(1, 1).double(), torch.ones(1, 1).int(), torch.ones(99, 1, 1, 1) > 0]
    + [torch.ones(1, 1, 1, 1, 1), "x"],
    "cache_batch_idx": [0, [1]],
    "dropout_p": [1.5, 1.0, -0.1, float("nan"), "x", None],
    "rng_state": [5, torch.zeros(2), torch.zeros(3, dtype=torch.int64)],
    "q": [None, 5, "meta", "float", "flat", "head dim 0", "int"],
    "k": [None, 5, "meta", "float", "flat", "head dim 0", "more heads"],
    "v": [None, 5, "meta", "more rows"],
}


def wrong(call, random):
    """One wrong argument."""
    import inspect

    parameters = inspect.signature(call.function).parameters
    tensors = call.given(call.leaves)
    alias = {"k": "k_cache", "v": "v_cache"} if call.function is kgen_attn.flash_attn_with_kvcache else {}
    name = random.choice([name for name in WRONG if alias.get(name, name) in parameters and (name in tensors or name not in "qkv")])
    value = random.choice(WRONG[name])
    options = dict(call.options)
    if "sinks" in call.leaves:
        options["s_aux"] = call.leaves["sinks"]
    if call.bias is not None:
        options["attn_bias"] = call.bias(call.leaves)
    if name in ("cu_seqlens_q", "max_seqlen_q") and name not in options:
        return raises(lambda: call.function(*tensors.values(), **options, softmax_scale_=1), ".", (TypeError,))
    if name in tensors:
        tensor = tensors[name]
        changes = {
            "meta": lambda: tensor.to("meta"),
            "float": lambda: tensor.double(),
            "int": lambda: tensor.int(),
            "flat": lambda: tensor.flatten(),
            "head dim 0": lambda: tensor[..., :0],
            "more heads": lambda: torch.cat([tensor] * 5, dim=-2),
            "more rows": lambda: torch.cat([tensor, tensor.new_ones(*tensor.shape[:-3], 1, *tensor.shape[-2:])], dim=-3),
        }
        tensors[name] = changes[value]() if isinstance(value, str) else value
    else:
        moves = isinstance(value, torch.Tensor) and name in ("alibi_slopes", "s_aux", "attn_bias", "rng_state")
        options[name] = value.to(library().device_type) if moves else value
    raises(lambda: call.function(*tensors.values(), **options), "`")


def test_kinds_of_calls_are_all_drawn():
    """Lists the cases that are never drawn, and so not tested."""
    source = random.Random(0)
    drawn = collections.Counter(draw(source, "cpu").function.__name__ for _ in range(300))
    assert set(drawn) == {name for name in kgen_attn.__all__ if name.startswith("flash_attn")}


def one(seed, number, device):
    """A call by its number; raises its failure."""
    source = random.Random(f"{seed}:{number}")
    torch.manual_seed(source.randrange(1 << 31))
    if source.random() < 0.08:
        return written(source, device)
    call = draw(source, device)
    chance = source.random()
    return (ordinary if chance < 0.82 else transformed if chance < 0.9 else wrong)(call, source)


def test_random_calls(device):
    torch._dynamo.config.cache_size_limit = 64
    named = os.environ.get("KGEN_CALL")
    pairs = [tuple(map(int, named.split(":")))] if named else [(SEED, number) for number in range(CALLS)]
    failures, missing = [], 0
    for seed, number in pairs:
        try:
            one(seed, number, device)
        except MissingKernel as error:
            missing += 1
            assert error.command in str(error)
        except Exception as error:
            last = traceback.format_exc() if named else f"{type(error).__name__}: {error}"
            failures.append(f"KGEN_CALL={seed}:{number} pytest test_random.py\n    {last}")
            print(failures[-1], flush=True)
            if len(failures) >= 20:
                break
    print(f"seed {SEED}: {len(pairs)} calls, {missing} without a kernel in this library, {len(failures)} wrong")
    assert not failures, "\n".join(failures)
    assert named or missing <= 0.6 * len(pairs), "hardly anything was computed"
