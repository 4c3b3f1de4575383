"""The part of `kgen.h` that attention needs: structures and constants, field for field. Needs no torch.

A test of kgen (`src/device/abi/mod.rs`) compiles assertions about every offset and number below against the header.
"""

from __future__ import annotations

import ctypes

ABI_VERSION = 9

SUCCESS = 0
ERROR_NO_VARIANT = 3
ERROR_UNSUPPORTED = 5

DTYPES = {"float16": 0, "bfloat16": 1, "float8_e4m3fn": 2, "float32": 3, "float8_e5m2": 4}
KINDS = {"fwd": 0, "fwd_split": 1, "fwd_combine": 2, "prepare_scheduler": 3, "bwd": 4, "fwd_short": 5, "append_kv": 21}
FEATURES = {
    "causal": 1,
    "window": 2,
    "chunk": 4,
    "softcap": 8,
    "alibi": 16,
    "sinks": 32,
    "paged": 64,
    "kv_e4m3": 128,
    "kv_e5m2": 256,
    "cache": 512,
    "qv": 1024,
    "packgqa": 2048,
    "page_descale": 4096,
    "append": 8192,
}

FLAG_CAUSAL = 1
FLAG_DETERMINISTIC = 2
FLAG_WINDOW = 4
FLAG_ROTARY_INTERLEAVED = 0x10


class AttentionFeatures(ctypes.Structure):
    """`kgen_attention_features`."""

    _fields_ = [
        *[(name, ctypes.c_int32) for name in ("window_left", "window_right", "attention_chunk")],
        ("softcap", ctypes.c_float),
        ("alibi_slopes", ctypes.c_void_p),
        ("alibi_batch_stride", ctypes.c_int64),
        ("sinks", ctypes.c_void_p),
        ("sinks_dtype", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
    ]


class DeclaredScore(ctypes.Structure):
    """`kgen_declared_score`."""

    _fields_ = [
        ("id", ctypes.c_uint64),
        ("scalars", ctypes.c_float * 8),
        ("integers", ctypes.c_int32 * 8),
        ("tables", ctypes.c_void_p * 4),
    ]


def _strides(tensors: tuple[str, ...], first: str = "batch") -> list[tuple[str, type]]:
    return [(f"{tensor}_{axis}_stride", ctypes.c_int64) for tensor in tensors for axis in (first, "row", "head")]


class FwdParams(ctypes.Structure):
    """`kgen_fwd_params`."""

    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        *[(name, ctypes.c_void_p) for name in ("q", "k", "v", "o", "lse")],
        *_strides(("q", "k", "v", "o")),
        ("lse_batch_stride", ctypes.c_int64),
        ("lse_head_stride", ctypes.c_int64),
        *[(name, ctypes.c_void_p) for name in ("cu_seqlens_q", "cu_seqlens_k", "seqused_q", "seqused_k")],
        *[(name, ctypes.c_int32) for name in ("batch", "num_heads", "num_heads_k", "seqlen_q", "seqlen_k")],
        *[(name, ctypes.c_int32) for name in ("head_dim", "dtype")],
        ("softmax_scale", ctypes.c_float),
        *[(f"{tensor}_descale", ctypes.c_void_p) for tensor in "qkv"],
        *[(f"{tensor}_descale_{axis}_stride", ctypes.c_int64) for tensor in "qkv" for axis in ("batch", "head")],
        *[(name, ctypes.c_int32) for name in ("total_q", "total_k", "num_splits", "concurrent_blocks")],
        ("split_counts", ctypes.c_void_p),
        ("workspace", ctypes.c_void_p),
        ("workspace_bytes", ctypes.c_size_t),
        ("features", AttentionFeatures),
        ("score", DeclaredScore),
        *[(name, ctypes.c_int32) for name in ("head_dim_v", "reserved")],
        ("page_table", ctypes.c_void_p),
        ("page_table_stride", ctypes.c_int64),
        *[(name, ctypes.c_int32) for name in ("page_size", "num_pages", "least_queries", "most_queries")],
        *[(name, ctypes.c_int32) for name in ("kv_dtype", "reserved_2")],
        *[(name, ctypes.c_void_p) for name in ("cache_batch_idx", "leftpad_k", "qv")],
        *_strides(("qv",)),
        ("work_counter", ctypes.c_void_p),
        ("arrivals", ctypes.c_void_p),
        ("arrivals_count", ctypes.c_int64),
        *[(f"{tensor}_page_descale", ctypes.c_void_p) for tensor in "kv"],
        *[(f"{tensor}_page_descale_{axis}_stride", ctypes.c_int64) for tensor in "kv" for axis in ("page", "head")],
        *[(name, ctypes.c_void_p) for name in ("k_new", "v_new")],
        *_strides(("k_new", "v_new")),
        *[(name, ctypes.c_void_p) for name in ("rotary_cos", "rotary_sin")],
        ("rotary_row_stride", ctypes.c_int64),
        ("seqlens_rotary", ctypes.c_void_p),
        *[(name, ctypes.c_int32) for name in ("seqlen_new", "rotary_dim", "rotary_rows", "rotary_interleaved")],
        *[(name, ctypes.c_int32) for name in ("cache_entries", "reserved_3")],
    ]


class BwdParams(ctypes.Structure):
    """`kgen_bwd_params`."""

    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        *[(name, ctypes.c_void_p) for name in ("q", "k", "v", "o", "dout", "lse", "dq", "dk", "dv", "workspace")],
        ("workspace_bytes", ctypes.c_size_t),
        *_strides(("q", "k", "v", "o", "dout", "dq", "dk", "dv")),
        ("lse_batch_stride", ctypes.c_int64),
        ("lse_head_stride", ctypes.c_int64),
        *[(name, ctypes.c_void_p) for name in ("cu_seqlens_q", "cu_seqlens_k", "seqused_q", "seqused_k")],
        *[(name, ctypes.c_int32) for name in ("batch", "num_heads", "num_heads_k", "seqlen_q", "seqlen_k")],
        *[(name, ctypes.c_int32) for name in ("total_q", "head_dim", "dtype")],
        ("softmax_scale", ctypes.c_float),
        ("features", AttentionFeatures),
        ("dsinks", ctypes.c_void_p),
        ("score", DeclaredScore),
        *[(name, ctypes.c_int32) for name in ("head_dim_v", "reserved")],
        ("dlse", ctypes.c_void_p),
        ("dlse_batch_stride", ctypes.c_int64),
        ("dlse_head_stride", ctypes.c_int64),
    ]


class AppendKvParams(ctypes.Structure):
    """`kgen_append_kv_params`."""

    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        *[(name, ctypes.c_void_p) for name in ("k", "v", "k_cache", "v_cache", "q", "q_out", "rotary_cos", "rotary_sin")],
        *_strides(("k", "v")),
        *_strides(("k_cache", "v_cache"), "page"),
        *_strides(("q", "q_out")),
        ("rotary_row_stride", ctypes.c_int64),
        *[(name, ctypes.c_void_p) for name in ("cache_seqlens", "cu_seqlens_new", "cu_seqlens_q", "seqlens_rotary")],
        *[(name, ctypes.c_void_p) for name in ("cache_batch_idx", "page_table")],
        ("page_table_stride", ctypes.c_int64),
        *[(name, ctypes.c_void_p) for name in ("slot_mapping", "positions", "k_descale", "v_descale")],
        *[(f"{tensor}_descale_{axis}_stride", ctypes.c_int64) for tensor in "kv" for axis in ("batch", "head")],
        *[(name, ctypes.c_int32) for name in ("batch", "seqlen_new", "total_new", "seqlen_q", "total_q")],
        *[(name, ctypes.c_int32) for name in ("num_heads", "num_heads_k", "head_dim", "head_dim_v", "rotary_dim")],
        *[(name, ctypes.c_int32) for name in ("rotary_rows", "page_size", "num_pages", "pages_per_sequence")],
        *[(name, ctypes.c_int32) for name in ("dtype", "cache_dtype")],
        ("seqlens_after", ctypes.c_void_p),
    ]


class Variant(ctypes.Structure):
    """`kgen_variant`: a row of a library's table of kernels."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        *[(name, ctypes.c_int32) for name in ("kind", "head_dim", "head_dim_v", "dtype")],
        ("features", ctypes.c_uint32),
        *[(name, ctypes.c_int32) for name in ("target", "target_max")],
        ("launch", ctypes.c_void_p),
        ("launch_bwd", ctypes.c_void_p),
        ("score", ctypes.c_uint64),
        ("score_name", ctypes.c_char_p),
    ]
