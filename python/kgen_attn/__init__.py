"""kgen's attention kernels for PyTorch, with FlashAttention's functions.

Importing the package loads neither torch nor the kernels; the first access to one of its functions does. `python -m
kgen_attn` prints the library's contents.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from .errors import KgenError, LibraryError, MissingKernel

if TYPE_CHECKING:
    from .dropout import dropout_mask
    from .huggingface import register
    from .interface import flash_attn_func, flash_attn_varlen_func
    from .kvcache import flash_attn_with_kvcache
    from .packed import (
        flash_attn_kvpacked_func,
        flash_attn_qkvpacked_func,
        flash_attn_varlen_kvpacked_func,
        flash_attn_varlen_qkvpacked_func,
    )
    from .sdpa import scaled_dot_product_attention

__all__ = [
    "KgenError",
    "LibraryError",
    "MissingKernel",
    "dropout_mask",
    "flash_attn_func",
    "flash_attn_kvpacked_func",
    "flash_attn_qkvpacked_func",
    "flash_attn_varlen_func",
    "flash_attn_varlen_kvpacked_func",
    "flash_attn_varlen_qkvpacked_func",
    "flash_attn_with_kvcache",
    "register",
    "scaled_dot_product_attention",
]

_MODULES = {
    "dropout_mask": "dropout",
    "flash_attn_func": "interface",
    "flash_attn_varlen_func": "interface",
    "flash_attn_with_kvcache": "kvcache",
    "flash_attn_kvpacked_func": "packed",
    "flash_attn_qkvpacked_func": "packed",
    "flash_attn_varlen_kvpacked_func": "packed",
    "flash_attn_varlen_qkvpacked_func": "packed",
    "register": "huggingface",
    "scaled_dot_product_attention": "sdpa",
}


def __getattr__(name: str):
    if name == "__version__":
        from importlib import metadata

        return metadata.version(__name__)
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module `{__name__}` has no attribute `{name}`")
    try:
        value = getattr(importlib.import_module(f".{module}", __name__), name)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ImportError(f"`{__name__}.{name}` needs PyTorch 2.4 or newer, which is not installed: `pip install torch`") from error
    globals()[name] = value  # later accesses bypass this function
    return value
