"""Run by kgen as `python kgen_peers [SITE...]`."""

import sys
from pathlib import Path

# The package's own folder would hide modules of libraries that have the same names.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

from kgen_peers.worker import main

sys.exit(main(sys.argv[1:]))
