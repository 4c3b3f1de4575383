"""The plugin of vLLM: an attention backend under the name CUSTOM, found through the entry point group
`vllm.general_plugins`. `LLM(..., attention_config={"backend": "CUSTOM"})` selects it.
"""

from __future__ import annotations

import logging

#: The vLLM version that the backend is written for; its classes change with every release.
VERSION = "0.26"

_BACKEND = "kgen_attn.vllm_backend.KgenBackend"


def register() -> None:
    """Registers kgen as the backend CUSTOM. vLLM calls this in each of its processes.

    If vLLM's version is not VERSION, it only prints a warning: the package may be installed for other purposes.
    """
    try:
        check_version()
        from vllm.v1.attention.backends.registry import AttentionBackendEnum, register_backend
    except ImportError as error:
        logging.getLogger(__name__).warning("%s", error)
        return
    register_backend(AttentionBackendEnum.CUSTOM, _BACKEND)


def check_version() -> None:
    """Raises `ImportError` if vLLM's version is not VERSION."""
    from vllm.version import __version__

    if not __version__.startswith(f"{VERSION}."):
        raise ImportError(f"kgen_attn's attention backend is written for vLLM {VERSION}; this is vLLM {__version__}")
