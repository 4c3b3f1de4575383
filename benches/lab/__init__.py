"""Common parts of all benches of this folder; described in benches/README.md. A bench adds its shapes and its calls.

Modules: `stats` and `record` need only Python; `timing`, `peers`, `kgen`, `attention`, `dense` and `paged` use PyTorch,
which they import if it is installed; `bench` combines them. Times are always microseconds per call.
"""

from .bench import Bench, Contender, main, named, suite, unjudged

__all__ = ["Bench", "Contender", "main", "named", "suite", "unjudged"]
