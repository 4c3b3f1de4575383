"""Prints the structures and constants of `benches/lab/kgen.py`, and of the package's `abi.py` beneath it, as JSON."""

import ctypes
import json
import sys
import types

# The module needs torch for tensors, of which there are none here: types are the words that kgen.h has for them.
WORDS = {"float16": "FP16", "bfloat16": "BF16", "float8_e4m3fn": "FP8_E4M3", "float32": "FP32", "float8_e5m2": "FP8_E5M2"}
sys.modules["torch"] = types.SimpleNamespace(**WORDS)
from lab import kgen as k  # noqa: E402

STRUCTURES = {
    "attention_features": k.AttentionFeatures,
    "declared_score": k.DeclaredScore,
    "variant": k.abi.Variant,
    "fwd_params": k.FwdParams,
    "bwd_params": k.BwdParams,
    "vector_add_params": k.VectorAddParams,
    "transpose_params": k.TransposeParams,
    "reduce_params": k.ReduceParams,
    "append_kv_params": k.AppendKvParams,
    "candidate": k.Candidate,
    "choice": k.Choice,
}
CONSTANTS = {
    "": {"ABI_VERSION": k.abi.ABI_VERSION, "SUCCESS": k.abi.SUCCESS, "ERROR_NO_VARIANT": k.abi.ERROR_NO_VARIANT, "ERROR_UNSUPPORTED": k.abi.ERROR_UNSUPPORTED},
    "DTYPE_": k.DTYPES,
    "KIND_": {name.upper(): number for name, number in k.abi.KINDS.items()},
    "FEATURE_": {name.upper(): bit for name, bit in k.abi.FEATURES.items()},
    "FLAG_": {
        "CAUSAL": k.FLAG_CAUSAL,
        "DETERMINISTIC": k.FLAG_DETERMINISTIC,
        "WINDOW": k.FLAG_WINDOW,
        "ROTARY_INTERLEAVED": k.FLAG_ROTARY_INTERLEAVED,
        **{"PATH_" + path: flag for path, flag in k.FLAG_PATHS.items()},
    },
    "REDUCE_": {name.upper(): number for name, number in k.REDUCTIONS.items()},
    "PATH_": {path: number for number, path in enumerate(k.PATHS)},
}


def layout(structure):
    return [[(field[0], getattr(structure, field[0]).offset) for field in structure._fields_], ctypes.sizeof(structure)]


print(json.dumps([{name: layout(structure) for name, structure in STRUCTURES.items()}, CONSTANTS]))
