"""A `vllm` package for tests of the plugin: real sources of vLLM if `VLLM_SOURCES` names an unpacked wheel of 0.26,
otherwise classes with just the features that the plugin needs. Everything else of vLLM is a stand-in that accepts
anything.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import os
import pathlib
import sys
import types
from unittest import mock

#: The modules that come from vLLM itself.
REAL = ("vllm.v1.attention.backend", "vllm.v1.attention.backends.flash_attn", "vllm.v1.attention.backends.registry")

STUBS = {
    "vllm.v1.attention.backends.registry": """
import enum
class AttentionBackendEnum(enum.Enum):
    FLASH_ATTN = "flash"
    CUSTOM = "custom"
_ATTN_OVERRIDES = {}
def register_backend(backend, class_path=None):
    _ATTN_OVERRIDES[backend] = class_path
""",
    "vllm.v1.attention.backend": """
import enum
class AttentionType(str, enum.Enum):
    DECODER = "decoder"
    ENCODER_ONLY = "encoder_only"
class AttentionCGSupport(enum.Enum):
    ALWAYS, UNIFORM_BATCH, NEVER = 3, 2, 0
""",
    "vllm.v1.attention.backends.flash_attn": """
import dataclasses
import torch
from vllm.v1.attention.backend import AttentionType
@dataclasses.dataclass
class FlashAttentionMetadata:
    num_actual_tokens: int
    max_query_len: int
    query_start_loc: torch.Tensor
    max_seq_len: int
    seq_lens: torch.Tensor
    block_table: torch.Tensor
    slot_mapping: torch.Tensor
    use_cascade: bool
    common_prefix_len: int
    cu_prefix_query_lens: object
    prefix_kv_lens: object
    suffix_kv_lens: object
    causal: object = True
    sliding_window: object = None
    mm_prefix_range_tensor: object = None
    rswa_prefix_lens: object = None
class FlashAttentionBackend:
    pass
class FlashAttentionImpl:
    def __init__(self, num_heads, head_size, scale, num_kv_heads, alibi_slopes, sliding_window, kv_cache_dtype,
                 logits_soft_cap=None, attn_type=AttentionType.DECODER, kv_sharing_target_layer_name=None, sinks=None):
        assert sinks is None
        self.num_heads, self.head_size, self.scale, self.num_kv_heads = num_heads, head_size, scale, num_kv_heads
        self.alibi_slopes, self.kv_cache_dtype, self.attn_type = alibi_slopes, kv_cache_dtype, attn_type
        self.sliding_window = (-1, -1) if sliding_window is None else (sliding_window - 1, 0)
        self.logits_soft_cap = logits_soft_cap or 0
        self.dcp_world_size = self.pcp_world_size = 1
class FlashAttentionMetadataBuilder:
    def __init__(self):
        self.aot_schedule = True
""",
}


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds every module of vLLM."""

    def __init__(self, version, sources):
        self.version, self.sources = version, sources

    def find_spec(self, name, path=None, target=None):
        if name != "vllm" and not name.startswith("vllm."):
            return None
        if self.sources is not None and name in REAL:
            file = self.sources / (name.replace(".", "/") + ".py")
            return importlib.util.spec_from_file_location(name, file)
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        if spec.name == "vllm.version":
            module = types.ModuleType(spec.name)
            module.__version__ = self.version
        elif spec.name in STUBS:
            module = types.ModuleType(spec.name)
        else:
            module = _StandIn(spec.name)
        return module

    def exec_module(self, module):
        if module.__name__ in STUBS and not (self.sources is not None and module.__name__ in REAL):
            exec(STUBS[module.__name__], module.__dict__)


class _StandIn(types.ModuleType):
    """A module in which every name accepts anything."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        value = _KNOWN.get(name) or mock.MagicMock(name=name)
        setattr(self, name, value)
        return value


#: Stand-ins that must answer like vLLM's on a Hopper GPU without parallelism.
_KNOWN = {
    "get_flash_attn_version": lambda **_: 3,
    "flash_attn_supports_sinks": lambda: False,
    "flash_attn_supports_quant_query_input": lambda: True,
    "get_current_vllm_config_or_none": lambda: None,
    "get_dcp_group": lambda: types.SimpleNamespace(world_size=1, rank_in_group=0),
    "get_pcp_group": lambda: types.SimpleNamespace(world_size=1, rank_in_group=0),
}


def install(monkeypatch, version="0.26.0"):
    """Installs the stand-ins for `import vllm`, with that version, for one test."""
    named = os.environ.get("VLLM_SOURCES")
    for name in [name for name in sys.modules if name == "vllm" or name.startswith(("vllm.", "kgen_attn.vllm"))]:
        monkeypatch.delitem(sys.modules, name)
    finder = _Finder(version, pathlib.Path(named) if named else None)
    monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])


def forget():
    """Removes the stand-ins."""
    for name in [name for name in sys.modules if name == "vllm" or name.startswith(("vllm.", "kgen_attn.vllm"))]:
        del sys.modules[name]
