"""Structures and constants of `kgen.h`, field for field. Needs no torch.

Rendered from the header; do not edit: `KGEN_UPDATE_ABI=1 cargo test --lib abi` renders it again.
"""

from __future__ import annotations

import ctypes

ABI_VERSION = 11
SUCCESS = 0
ERROR_INVALID_VALUE = 1
ERROR_MISMATCH = 2
ERROR_NO_VARIANT = 3
ERROR_LAUNCH = 4
ERROR_UNSUPPORTED = 5
FLAG_CAUSAL = 1
FLAG_DETERMINISTIC = 2
FLAG_WINDOW = 4
FLAG_PATH_DENSE = 256
FLAG_PATH_SHORT = 512
FLAG_PATH_SPLIT = 1024
FLAG_PATH_SCHEDULED = 2048
FLAG_PATH_MIXED = 4096
FLAG_PATH_PACKED = 8192
FLAG_MERGE_BY_LAUNCH = 16384
FLAG_MERGE_BY_LAST_BLOCK = 32768
FLAG_ROTARY_INTERLEAVED = 16
FLAG_DESCALE_BY_PAGE = 32
MOST_CANDIDATES = 48

DTYPES = {
    "float16": 0,
    "bfloat16": 1,
    "float8_e4m3fn": 2,
    "float32": 3,
    "float8_e5m2": 4,
}

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
    "bias": 16384,
    "dropout": 32768,
    "long": 65536,
    "m128": 131072,
    "splitkv": 262144,
}

KINDS = {
    "fwd": 0,
    "fwd_split": 1,
    "fwd_combine": 2,
    "prepare_scheduler": 3,
    "bwd": 4,
    "fwd_short": 5,
    "vector_add": 16,
    "transpose": 17,
    "reduce_sum": 18,
    "reduce_max": 19,
    "reduce_logsumexp": 20,
    "append_kv": 21,
    "rmsnorm": 22,
}

PATHS = {
    "dense": 0,
    "short": 1,
    "split": 2,
    "scheduled": 3,
    "mixed": 4,
    "packed": 5,
}

REDUCTIONS = {
    "sum": 0,
    "max": 1,
    "logsumexp": 2,
}


class AttentionFeatures(ctypes.Structure):
    """`kgen_attention_features`."""

    _fields_ = [
        ("window_left", ctypes.c_int32),
        ("window_right", ctypes.c_int32),
        ("attention_chunk", ctypes.c_int32),
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


class FwdParams(ctypes.Structure):
    """`kgen_fwd_params`."""

    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("q", ctypes.c_void_p),
        ("k", ctypes.c_void_p),
        ("v", ctypes.c_void_p),
        ("o", ctypes.c_void_p),
        ("lse", ctypes.c_void_p),
        ("q_batch_stride", ctypes.c_int64),
        ("q_row_stride", ctypes.c_int64),
        ("q_head_stride", ctypes.c_int64),
        ("k_batch_stride", ctypes.c_int64),
        ("k_row_stride", ctypes.c_int64),
        ("k_head_stride", ctypes.c_int64),
        ("v_batch_stride", ctypes.c_int64),
        ("v_row_stride", ctypes.c_int64),
        ("v_head_stride", ctypes.c_int64),
        ("o_batch_stride", ctypes.c_int64),
        ("o_row_stride", ctypes.c_int64),
        ("o_head_stride", ctypes.c_int64),
        ("lse_batch_stride", ctypes.c_int64),
        ("lse_head_stride", ctypes.c_int64),
        ("cu_seqlens_q", ctypes.c_void_p),
        ("cu_seqlens_k", ctypes.c_void_p),
        ("seqused_q", ctypes.c_void_p),
        ("seqused_k", ctypes.c_void_p),
        ("batch", ctypes.c_int32),
        ("num_heads", ctypes.c_int32),
        ("num_heads_k", ctypes.c_int32),
        ("seqlen_q", ctypes.c_int32),
        ("seqlen_k", ctypes.c_int32),
        ("head_dim", ctypes.c_int32),
        ("dtype", ctypes.c_int32),
        ("softmax_scale", ctypes.c_float),
        ("q_descale", ctypes.c_void_p),
        ("k_descale", ctypes.c_void_p),
        ("v_descale", ctypes.c_void_p),
        ("q_descale_batch_stride", ctypes.c_int64),
        ("q_descale_head_stride", ctypes.c_int64),
        ("k_descale_batch_stride", ctypes.c_int64),
        ("k_descale_head_stride", ctypes.c_int64),
        ("v_descale_batch_stride", ctypes.c_int64),
        ("v_descale_head_stride", ctypes.c_int64),
        ("total_q", ctypes.c_int32),
        ("total_k", ctypes.c_int32),
        ("num_splits", ctypes.c_int32),
        ("concurrent_blocks", ctypes.c_int32),
        ("split_counts", ctypes.c_void_p),
        ("workspace", ctypes.c_void_p),
        ("workspace_bytes", ctypes.c_size_t),
        ("features", AttentionFeatures),
        ("score", DeclaredScore),
        ("head_dim_v", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
        ("page_table", ctypes.c_void_p),
        ("page_table_stride", ctypes.c_int64),
        ("page_size", ctypes.c_int32),
        ("num_pages", ctypes.c_int32),
        ("least_queries", ctypes.c_int32),
        ("most_queries", ctypes.c_int32),
        ("kv_dtype", ctypes.c_int32),
        ("reserved_2", ctypes.c_int32),
        ("cache_batch_idx", ctypes.c_void_p),
        ("leftpad_k", ctypes.c_void_p),
        ("qv", ctypes.c_void_p),
        ("qv_batch_stride", ctypes.c_int64),
        ("qv_row_stride", ctypes.c_int64),
        ("qv_head_stride", ctypes.c_int64),
        ("work_counter", ctypes.c_void_p),
        ("arrivals", ctypes.c_void_p),
        ("arrivals_count", ctypes.c_int64),
        ("k_page_descale", ctypes.c_void_p),
        ("v_page_descale", ctypes.c_void_p),
        ("k_page_descale_page_stride", ctypes.c_int64),
        ("k_page_descale_head_stride", ctypes.c_int64),
        ("v_page_descale_page_stride", ctypes.c_int64),
        ("v_page_descale_head_stride", ctypes.c_int64),
        ("k_new", ctypes.c_void_p),
        ("v_new", ctypes.c_void_p),
        ("k_new_batch_stride", ctypes.c_int64),
        ("k_new_row_stride", ctypes.c_int64),
        ("k_new_head_stride", ctypes.c_int64),
        ("v_new_batch_stride", ctypes.c_int64),
        ("v_new_row_stride", ctypes.c_int64),
        ("v_new_head_stride", ctypes.c_int64),
        ("rotary_cos", ctypes.c_void_p),
        ("rotary_sin", ctypes.c_void_p),
        ("rotary_row_stride", ctypes.c_int64),
        ("seqlens_rotary", ctypes.c_void_p),
        ("seqlen_new", ctypes.c_int32),
        ("rotary_dim", ctypes.c_int32),
        ("rotary_rows", ctypes.c_int32),
        ("rotary_interleaved", ctypes.c_int32),
        ("cache_entries", ctypes.c_int32),
        ("reserved_3", ctypes.c_int32),
        ("bias", ctypes.c_void_p),
        ("bias_batch_stride", ctypes.c_int64),
        ("bias_head_stride", ctypes.c_int64),
        ("bias_row_stride", ctypes.c_int64),
        ("bias_column_stride", ctypes.c_int64),
        ("bias_dtype", ctypes.c_int32),
        ("reserved_4", ctypes.c_int32),
        ("rng_state", ctypes.c_void_p),
        ("p_dropout", ctypes.c_float),
        ("reserved_5", ctypes.c_int32),
    ]


class BwdParams(ctypes.Structure):
    """`kgen_bwd_params`."""

    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("q", ctypes.c_void_p),
        ("k", ctypes.c_void_p),
        ("v", ctypes.c_void_p),
        ("o", ctypes.c_void_p),
        ("dout", ctypes.c_void_p),
        ("lse", ctypes.c_void_p),
        ("dq", ctypes.c_void_p),
        ("dk", ctypes.c_void_p),
        ("dv", ctypes.c_void_p),
        ("workspace", ctypes.c_void_p),
        ("workspace_bytes", ctypes.c_size_t),
        ("q_batch_stride", ctypes.c_int64),
        ("q_row_stride", ctypes.c_int64),
        ("q_head_stride", ctypes.c_int64),
        ("k_batch_stride", ctypes.c_int64),
        ("k_row_stride", ctypes.c_int64),
        ("k_head_stride", ctypes.c_int64),
        ("v_batch_stride", ctypes.c_int64),
        ("v_row_stride", ctypes.c_int64),
        ("v_head_stride", ctypes.c_int64),
        ("o_batch_stride", ctypes.c_int64),
        ("o_row_stride", ctypes.c_int64),
        ("o_head_stride", ctypes.c_int64),
        ("dout_batch_stride", ctypes.c_int64),
        ("dout_row_stride", ctypes.c_int64),
        ("dout_head_stride", ctypes.c_int64),
        ("dq_batch_stride", ctypes.c_int64),
        ("dq_row_stride", ctypes.c_int64),
        ("dq_head_stride", ctypes.c_int64),
        ("dk_batch_stride", ctypes.c_int64),
        ("dk_row_stride", ctypes.c_int64),
        ("dk_head_stride", ctypes.c_int64),
        ("dv_batch_stride", ctypes.c_int64),
        ("dv_row_stride", ctypes.c_int64),
        ("dv_head_stride", ctypes.c_int64),
        ("lse_batch_stride", ctypes.c_int64),
        ("lse_head_stride", ctypes.c_int64),
        ("cu_seqlens_q", ctypes.c_void_p),
        ("cu_seqlens_k", ctypes.c_void_p),
        ("seqused_q", ctypes.c_void_p),
        ("seqused_k", ctypes.c_void_p),
        ("batch", ctypes.c_int32),
        ("num_heads", ctypes.c_int32),
        ("num_heads_k", ctypes.c_int32),
        ("seqlen_q", ctypes.c_int32),
        ("seqlen_k", ctypes.c_int32),
        ("total_q", ctypes.c_int32),
        ("head_dim", ctypes.c_int32),
        ("dtype", ctypes.c_int32),
        ("softmax_scale", ctypes.c_float),
        ("features", AttentionFeatures),
        ("dsinks", ctypes.c_void_p),
        ("score", DeclaredScore),
        ("head_dim_v", ctypes.c_int32),
        ("total_k", ctypes.c_int32),
        ("dlse", ctypes.c_void_p),
        ("dlse_batch_stride", ctypes.c_int64),
        ("dlse_head_stride", ctypes.c_int64),
        ("bias", ctypes.c_void_p),
        ("bias_batch_stride", ctypes.c_int64),
        ("bias_head_stride", ctypes.c_int64),
        ("bias_row_stride", ctypes.c_int64),
        ("bias_column_stride", ctypes.c_int64),
        ("bias_dtype", ctypes.c_int32),
        ("reserved_4", ctypes.c_int32),
        ("dbias", ctypes.c_void_p),
        ("dbias_batch_stride", ctypes.c_int64),
        ("dbias_head_stride", ctypes.c_int64),
        ("dbias_row_stride", ctypes.c_int64),
        ("dbias_column_stride", ctypes.c_int64),
        ("rng_state", ctypes.c_void_p),
        ("p_dropout", ctypes.c_float),
        ("reserved_5", ctypes.c_int32),
    ]


class VectorAddParams(ctypes.Structure):
    """`kgen_vector_add_params`."""

    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("a", ctypes.c_void_p),
        ("b", ctypes.c_void_p),
        ("out", ctypes.c_void_p),
        ("count", ctypes.c_uint64),
        ("dtype", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
    ]


class TransposeParams(ctypes.Structure):
    """`kgen_transpose_params`."""

    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("in", ctypes.c_void_p),
        ("out", ctypes.c_void_p),
        ("rows", ctypes.c_uint64),
        ("columns", ctypes.c_uint64),
        ("element_bytes", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
    ]


class ReduceParams(ctypes.Structure):
    """`kgen_reduce_params`."""

    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("in", ctypes.c_void_p),
        ("out", ctypes.c_void_p),
        ("workspace", ctypes.c_void_p),
        ("workspace_bytes", ctypes.c_size_t),
        ("rows", ctypes.c_uint64),
        ("columns", ctypes.c_uint64),
        ("dtype", ctypes.c_int32),
        ("operation", ctypes.c_int32),
    ]


class AppendKvParams(ctypes.Structure):
    """`kgen_append_kv_params`."""

    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("k", ctypes.c_void_p),
        ("v", ctypes.c_void_p),
        ("k_cache", ctypes.c_void_p),
        ("v_cache", ctypes.c_void_p),
        ("q", ctypes.c_void_p),
        ("q_out", ctypes.c_void_p),
        ("rotary_cos", ctypes.c_void_p),
        ("rotary_sin", ctypes.c_void_p),
        ("k_batch_stride", ctypes.c_int64),
        ("k_row_stride", ctypes.c_int64),
        ("k_head_stride", ctypes.c_int64),
        ("v_batch_stride", ctypes.c_int64),
        ("v_row_stride", ctypes.c_int64),
        ("v_head_stride", ctypes.c_int64),
        ("k_cache_page_stride", ctypes.c_int64),
        ("k_cache_row_stride", ctypes.c_int64),
        ("k_cache_head_stride", ctypes.c_int64),
        ("v_cache_page_stride", ctypes.c_int64),
        ("v_cache_row_stride", ctypes.c_int64),
        ("v_cache_head_stride", ctypes.c_int64),
        ("q_batch_stride", ctypes.c_int64),
        ("q_row_stride", ctypes.c_int64),
        ("q_head_stride", ctypes.c_int64),
        ("q_out_batch_stride", ctypes.c_int64),
        ("q_out_row_stride", ctypes.c_int64),
        ("q_out_head_stride", ctypes.c_int64),
        ("rotary_row_stride", ctypes.c_int64),
        ("cache_seqlens", ctypes.c_void_p),
        ("cu_seqlens_new", ctypes.c_void_p),
        ("cu_seqlens_q", ctypes.c_void_p),
        ("seqlens_rotary", ctypes.c_void_p),
        ("cache_batch_idx", ctypes.c_void_p),
        ("page_table", ctypes.c_void_p),
        ("page_table_stride", ctypes.c_int64),
        ("slot_mapping", ctypes.c_void_p),
        ("positions", ctypes.c_void_p),
        ("k_descale", ctypes.c_void_p),
        ("v_descale", ctypes.c_void_p),
        ("k_descale_batch_stride", ctypes.c_int64),
        ("k_descale_head_stride", ctypes.c_int64),
        ("v_descale_batch_stride", ctypes.c_int64),
        ("v_descale_head_stride", ctypes.c_int64),
        ("batch", ctypes.c_int32),
        ("seqlen_new", ctypes.c_int32),
        ("total_new", ctypes.c_int32),
        ("seqlen_q", ctypes.c_int32),
        ("total_q", ctypes.c_int32),
        ("num_heads", ctypes.c_int32),
        ("num_heads_k", ctypes.c_int32),
        ("head_dim", ctypes.c_int32),
        ("head_dim_v", ctypes.c_int32),
        ("rotary_dim", ctypes.c_int32),
        ("rotary_rows", ctypes.c_int32),
        ("page_size", ctypes.c_int32),
        ("num_pages", ctypes.c_int32),
        ("pages_per_sequence", ctypes.c_int32),
        ("dtype", ctypes.c_int32),
        ("cache_dtype", ctypes.c_int32),
        ("seqlens_after", ctypes.c_void_p),
    ]


class RmsnormParams(ctypes.Structure):
    """`kgen_rmsnorm_params`."""

    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("in", ctypes.c_void_p),
        ("residual", ctypes.c_void_p),
        ("weight", ctypes.c_void_p),
        ("out", ctypes.c_void_p),
        ("residual_out", ctypes.c_void_p),
        ("rows", ctypes.c_uint64),
        ("columns", ctypes.c_uint64),
        ("in_row_stride", ctypes.c_int64),
        ("residual_row_stride", ctypes.c_int64),
        ("out_row_stride", ctypes.c_int64),
        ("residual_out_row_stride", ctypes.c_int64),
        ("eps", ctypes.c_float),
        ("dtype", ctypes.c_int32),
    ]


class Variant(ctypes.Structure):
    """`kgen_variant`."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("kind", ctypes.c_int32),
        ("head_dim", ctypes.c_int32),
        ("head_dim_v", ctypes.c_int32),
        ("dtype", ctypes.c_int32),
        ("features", ctypes.c_uint32),
        ("target", ctypes.c_int32),
        ("target_max", ctypes.c_int32),
        ("launch", ctypes.c_void_p),
        ("launch_bwd", ctypes.c_void_p),
        ("score", ctypes.c_uint64),
        ("score_name", ctypes.c_char_p),
    ]


class Candidate(ctypes.Structure):
    """`kgen_candidate`."""

    _fields_ = [
        ("path", ctypes.c_int32),
        ("num_splits", ctypes.c_int32),
        ("variant", ctypes.c_char_p),
        ("excluded", ctypes.c_char_p),
        ("workspace_bytes", ctypes.c_size_t),
        ("predicted_ns", ctypes.c_double),
        ("launch_ns", ctypes.c_double),
        ("tile_ns", ctypes.c_double),
        ("chain_ns", ctypes.c_double),
        ("step_ns", ctypes.c_double),
        ("memory_ns", ctypes.c_double),
        ("combine_ns", ctypes.c_double),
        ("scheduler_ns", ctypes.c_double),
        ("by_last_block", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
    ]


class Choice(ctypes.Structure):
    """`kgen_choice`."""

    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("candidate_size", ctypes.c_uint32),
        ("candidates", ctypes.POINTER(Candidate)),
        ("capacity", ctypes.c_int32),
        ("count", ctypes.c_int32),
        ("chosen", ctypes.c_int32),
        ("multiprocessors", ctypes.c_int32),
    ]
