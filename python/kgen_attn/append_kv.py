"""`kgen_append_kv` on tensors: writes new rows of K and V into a cache, with rotary embedding. Also `kgen_fwd_kvcache`,
which does that before attention, in one launch if that is predicted to be faster."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Callable, Optional

import torch

from . import abi, host_values
from .errors import MissingKernel
from .forward import ForwardPlan, check_lengths, check_rank, enter_descale, layout_of
from .forward import planned as planned_forward
from .forward import run as run_forward
from .launch import (
    DTYPES,
    HALVES,
    MOST_PLANS,
    POINTER,
    Plan,
    TensorOrNone,
    check_beside,
    check_device,
    check_host,
    check_integers,
    enter_sizes,
    enter_strides,
    known,
    rows_contiguous,
)
from .missing import Request

_P = abi.AppendKvParams
#: Offsets of pointers, in the order of `tensors` below.
_AT = tuple(
    getattr(_P, name).offset
    for name in (
        *("k", "v", "k_cache", "v_cache", "q", "q_out", "cache_seqlens", "rotary_cos", "rotary_sin"),
        *("cache_batch_idx", "page_table", "seqlens_rotary", "k_descale", "v_descale", "cu_seqlens_new", "cu_seqlens_q"),
        "seqlens_after",
    )
)

#: Names of the tensors whose offsets `_AT` lists, for messages.
_NAMES = (
    *("k", "v", "k_cache", "v_cache", "q", "q_out", "cache_seqlens", "rotary_cos", "rotary_sin"),
    *("cache_batch_idx", "block_table", "rotary_seqlens", "k_descale", "v_descale", "cu_seqlens_k_new", "cu_seqlens_q"),
    "seqlens_after",
)

_Q_OUT_AT = _NAMES.index("q_out")

_plans: dict[tuple, Plan] = {}


@dataclass(frozen=True)
class Append:
    """An append that is ready to launch: the structure, and the tensors that the attention after it reads."""

    plan: Plan
    buffer: bytearray
    read: tuple[TensorOrNone, ...]
    written: tuple[TensorOrNone, ...]
    seqlens_after: torch.Tensor  # rows of each sequence in the cache after the append

    def launch(self) -> None:
        """Writes the rows in a separate launch."""
        try:
            self.plan.launch(self.buffer, self.seqlens_after, self.read, self.written)
        except MissingKernel as error:
            self.plan.missing_kernel(error)
            self.plan.launch(self.buffer, self.seqlens_after, self.read, self.written)


def fwd_kvcache(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    optional: tuple,
    numbers: tuple,
    new: tuple,
    with_lse: bool = True,
) -> tuple[torch.Tensor, TensorOrNone]:
    """O and LSE, as returned by `forward`, after new rows have been written into the caches.

    `optional` and `numbers` are those of `forward`, except seqused_k, which does not count the new rows. `new` holds
    the new rows of K and V, (batch, seqlen_new, key heads, D), or packed, (total rows, key heads, D); cu_seqlens_new,
    (batch + 1,), if they are packed, otherwise None; rotary_cos and rotary_sin, (rows, rotary dim / 2), or None;
    seqlens_rotary or None; True if the positions of Q increase with its rows, False if all equal the first row's; and
    True if rotated pairs are adjacent columns.
    """
    k, v, *others = new
    q, new = rows_contiguous(q), (rows_contiguous(k), rows_contiguous(v), *others)
    tensors = _tensors(q, k_cache, v_cache, optional, new)
    append = _planned(tensors, new)
    attend = lambda: _planned_attention(tensors, q, k_cache, v_cache, optional, numbers)
    return _run(append, attend, tensors, q, k_cache, v_cache, optional, with_lse)


def plans(q, k_cache, v_cache, optional: tuple, numbers: tuple, new: tuple) -> Optional[tuple[Plan, ForwardPlan]]:
    """The plans of the append and of the attention of such a call, for `run`; None if the call copies tensors."""
    if any(tensor.stride(-1) != 1 for tensor in (q, *new[:2])):
        return None
    tensors = _tensors(q, k_cache, v_cache, optional, new)
    return _planned(tensors, new), _planned_attention(tensors, q, k_cache, v_cache, optional, numbers)


def run(
    plans: tuple[Plan, ForwardPlan], q, k_cache, v_cache, optional: tuple, new: tuple, with_lse: bool
) -> tuple[torch.Tensor, TensorOrNone]:
    """`fwd_kvcache` with the plans of an equivalent earlier call."""
    append, attend = plans
    tensors = _tensors(q, k_cache, v_cache, optional, new)
    return _run(append, lambda: attend, tensors, q, k_cache, v_cache, optional, with_lse)


def _run(append: Plan, attend: Callable[[], ForwardPlan], tensors: tuple, q, k_cache, v_cache, optional: tuple, with_lse: bool):
    ready = _prepare(append, tensors)
    q, optional = _after(tensors, q, optional)
    try:
        return run_forward(attend(), q, k_cache, v_cache, optional, with_lse, append=ready)
    except MissingKernel:  # the separate launches find or build their own kernels
        ready.launch()
        return run_forward(attend(), q, k_cache, v_cache, optional, with_lse)


def _tensors(q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, optional: tuple, new: tuple) -> tuple:
    """All tensors that the structure points to, including outputs, in the order of `_AT`."""
    k, v, cu_seqlens_new, rotary_cos, rotary_sin, seqlens_rotary = new[:6]
    cu_seqlens_q, _, _, cache_seqlens, page_table, cache_batch_idx, _, _, _, _, k_descale, v_descale, _, _ = optional
    q_out = None
    if rotary_cos is None:  # Q is passed to the append only if it is rotated
        q = cu_seqlens_q = None
    else:
        q_out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    after = torch.empty_strided(cache_seqlens.shape, (1,), dtype=torch.int32, device=k.device)
    # fmt: off
    return (k, v, k_cache, v_cache, q, q_out, cache_seqlens, rotary_cos, rotary_sin, cache_batch_idx, page_table,
            seqlens_rotary, k_descale, v_descale, cu_seqlens_new, cu_seqlens_q, after)
    # fmt: on


def _planned(tensors: tuple, new: tuple) -> Plan:
    """The plan of an append with these shapes: from the cache, or a new one."""
    rising, interleaved = new[6:]
    key = (*map(known, tensors), rising, interleaved)
    plan = _plans.get(key)
    if plan is None:
        plan = _plan(tensors, rising, interleaved)
        if len(_plans) >= MOST_PLANS:
            _plans.clear()
        _plans[key] = plan
    return plan


def _planned_attention(tensors: tuple, q, k_cache, v_cache, optional: tuple, numbers: tuple) -> ForwardPlan:
    q, optional = _after(tensors, q, optional)
    return planned_forward(layout_of(q, k_cache, v_cache), q, k_cache, v_cache, optional, numbers)


def _after(tensors: tuple, q: torch.Tensor, optional: tuple) -> tuple[torch.Tensor, tuple]:
    """Q and `optional` for the attention after the append: the rotated Q, and lengths that include the new keys."""
    q_out, after = tensors[_Q_OUT_AT], tensors[-1]
    return q if q_out is None else q_out, (*optional[:3], after, *optional[4:])


def _prepare(plan: Plan, tensors: tuple) -> Append:
    if plan.library.emulator is not None:
        _check_values(tensors)
    buffer = bytearray(plan.params)
    for offset, tensor in zip(_AT, tensors):
        if tensor is not None:
            POINTER.pack_into(buffer, offset, tensor.data_ptr())
    k, v, k_cache, v_cache, q, q_out = tensors[: _Q_OUT_AT + 1]
    after = tensors[-1]
    return Append(plan, buffer, (k, v, q, *tensors[_Q_OUT_AT + 1 : -1]), (k_cache, v_cache, q_out, after), after)


def _check_values(tensors: tuple[TensorOrNone, ...]) -> None:
    """Raises `ValueError` for lengths and indices beyond the caches, and for tensors without memory."""
    named = dict(zip(_NAMES, tensors))
    check_host(named)
    cache, table, entries, used = (named[name] for name in ("k_cache", "block_table", "cache_batch_idx", "cache_seqlens"))
    rows = cache.shape[1] * (1 if table is None else table.shape[1])
    host_values.check_lengths("cache_seqlens", used, rows, "the cache of a sequence")
    if entries is not None:
        host_values.check_numbers("cache_batch_idx", entries, cache.shape[0])
    if table is not None:
        host_values.check_pages(table, used.tolist(), cache.shape[1], cache.shape[0])
    for name, packed, of in (("cu_seqlens_k_new", named["k"], "k"), ("cu_seqlens_q", named["q"], "q")):
        if named[name] is not None:
            host_values.check_starts(name, named[name], packed.shape[0], of, None, "")


def _plan(tensors: tuple[TensorOrNone, ...], causal_positions: bool, interleaved: bool) -> Plan:
    """Checks the arguments and fills in the parameter structure except for its pointers."""
    # fmt: off
    (k, v, k_cache, v_cache, q, q_out, cache_seqlens, rotary_cos, rotary_sin, cache_batch_idx, page_table, seqlens_rotary,
     k_descale, v_descale, cu_seqlens_new, cu_seqlens_q, _) = tensors
    # fmt: on
    check_device(k, "k")
    named = {"k": k, "v": v, "k_cache": k_cache, "v_cache": v_cache, "q": q}
    integers = {"cache_seqlens": cache_seqlens, "cache_batch_idx": cache_batch_idx, "block_table": page_table}
    starts = {"cu_seqlens_k_new": cu_seqlens_new, "cu_seqlens_q": cu_seqlens_q}
    descales = {"k_descale": k_descale, "v_descale": v_descale}
    check_beside(k, {**named, **integers, **starts, "rotary_cos": rotary_cos, "rotary_sin": rotary_sin, "rotary_seqlens": seqlens_rotary, **descales})
    check_integers({**integers, **starts, "rotary_seqlens": seqlens_rotary})
    packed = {"k": cu_seqlens_new is not None, "v": cu_seqlens_new is not None, "q": cu_seqlens_q is not None}
    for name, tensor in named.items():
        if tensor is not None:
            check_rank(tensor, name, packed.get(name, False))
    for name, tensor in {"k_cache": k_cache, "v_cache": v_cache, "rotary_cos": rotary_cos, "rotary_sin": rotary_sin}.items():
        if tensor is not None and tensor.dim() > 0 and tensor.shape[-1] > 1 and tensor.stride(-1) != 1:
            raise ValueError(f"`{name}` has stride {tensor.stride(-1)} along its last axis; it must be 1")
    dtypes = {tensor.dtype for tensor in (k, v, q, rotary_cos, rotary_sin) if tensor is not None}
    if len(dtypes) != 1 or k.dtype not in HALVES or k_cache.dtype != v_cache.dtype or k_cache.dtype not in DTYPES:
        raise TypeError(
            f"`k`, `v`, `q`, `rotary_cos` and `rotary_sin` must be of one 16-bit type; given {sorted(map(str, dtypes))}, "
            f"and caches of {k_cache.dtype} and {v_cache.dtype}"
        )
    if k.shape[:-1] != v.shape[:-1] or k_cache.shape[:-1] != v_cache.shape[:-1] or k.shape[-2:] != k_cache.shape[-2:]:
        shapes = ", ".join(f"`{name}` {tuple(tensor.shape)}" for name, tensor in named.items() if tensor is not None)
        raise ValueError(f"{shapes}: K and V have the same rows and heads, and the heads and head dims of their caches")
    p = _P(struct_size=ctypes.sizeof(_P))
    p.flags = (abi.FLAG_CAUSAL if causal_positions else 0) | (abi.FLAG_ROTARY_INTERLEAVED if interleaved else 0)
    sizes = {"num_heads_k": k.shape[-2], "head_dim": k.shape[-1], "head_dim_v": v.shape[-1]}
    if packed["k"]:
        sizes["batch"], sizes["total_new"] = cu_seqlens_new.shape[0] - 1, k.shape[0]
    else:
        sizes["batch"], sizes["seqlen_new"] = k.shape[:2]
    check_lengths(sizes["batch"], {**integers, "rotary_seqlens": seqlens_rotary}, 0)
    check_lengths(sizes["batch"], starts, 1)
    for name, tensor in named.items():
        if tensor is not None:
            axes = ("page" if name.endswith("cache") else "batch", "row", "head")[1 if packed.get(name) else 0 :]
            enter_strides(p, name, tensor.stride()[:-1], axes)
    sizes["num_pages"], sizes["page_size"] = k_cache.shape[:2]
    if page_table is not None:
        p.page_table_stride, sizes["pages_per_sequence"] = page_table.stride(0), page_table.shape[1]
    if q is not None:
        sizes["num_heads"] = q.shape[-2]
        sizes["total_q" if packed["q"] else "seqlen_q"] = q.shape[0 if packed["q"] else 1]
        enter_strides(p, "q_out", q_out.stride()[:-1], ("batch", "row", "head")[1 if packed["q"] else 0 :])
    if rotary_cos is not None:
        if rotary_cos.dim() != 2 or rotary_cos.shape != rotary_sin.shape or rotary_cos.stride() != rotary_sin.stride():
            given = f"{tuple(rotary_cos.shape)} and {tuple(rotary_sin.shape)}"
            raise ValueError(f"`rotary_cos` and `rotary_sin` are both (rows, rotary dim / 2), stored alike; given {given}")
        sizes["rotary_rows"], sizes["rotary_dim"] = rotary_cos.shape[0], 2 * rotary_cos.shape[1]
        p.rotary_row_stride = rotary_cos.stride(0)
    enter_sizes(p, sizes, {})
    p.dtype, p.cache_dtype = DTYPES[k.dtype], DTYPES[k_cache.dtype]
    for name, descale in descales.items():
        enter_descale(p, name, descale, (p.batch, p.num_heads_k))
    dtype = next(name for name, number in abi.DTYPES.items() if number == p.dtype)
    return Plan(p, Request("append_kv", dtype, device=k.get_device()))
