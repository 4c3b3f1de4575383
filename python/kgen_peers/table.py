"""The peers by name: the file of each, and what its `load` takes."""

import importlib

PEERS = {
    "eager": ("eager", {}),
    "sdpa-flash": ("sdpa", {"backend": "FLASH_ATTENTION"}),
    "sdpa-cudnn": ("sdpa", {"backend": "CUDNN_ATTENTION"}),
    "sdpa-efficient": ("sdpa", {"backend": "EFFICIENT_ATTENTION"}),
    "sdpa-math": ("sdpa", {"backend": "MATH"}),
    "compile": ("eager", {"compiled": True}),
    "flex": ("flex", {}),
    "fa2": ("fa2", {}),
    "fa3": ("fa3", {}),
    "fa4": ("fa4", {}),
    "flashinfer": ("flashinfer", {}),
    "triton": ("triton_tutorial", {}),
}


def load(name):
    """The peer of this name; raises `Absent` if its library is not there."""
    module, given = PEERS[name]
    return importlib.import_module(f"kgen_peers.peers.{module}").load(**given)
