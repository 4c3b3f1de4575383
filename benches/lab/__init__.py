"""What all benches of this folder have in common; benches/README.md describes it. A bench adds its shapes and its
calls.

Modules: `stats` and `record` need nothing but Python; `timing`, `peers`, `kgen`, `attention` and `paged` use PyTorch,
which they import if it is there; `bench` ties them together. Times are microseconds of one call everywhere.
"""

from .bench import Bench, Contender, named, parser

__all__ = ["Bench", "Contender", "named", "parser"]
