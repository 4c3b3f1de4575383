#!/usr/bin/env python3
"""Copies templates/ in a form that compute-sanitizer's racecheck can follow.

    python3 scripts/racecheck/templates.py DIR        # templates/ of this repository, changed, to DIR

* Warps that arrive at a named barrier also wait there: after `bar.arrive` racecheck reports even accesses that block
  barriers separate as races.
* One lane reads an announcement and passes it on to the others, the one that arrives when the warp is done with it:
  racecheck does not see that the others have reached a __syncwarp() before (docs/checking.md).

Exit code 1, with a message, if a text that is to be changed is not there: a kernel changed by half may hang.
"""

import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

READ_BY_ALL = re.compile(r"^( *)const words4 (said|of_keys) = (.*);$", re.M)
READ_BY_ONE = r"\1words4 \2 = {};\n\1if (lane_index() == 0) \2 = \3;"
MEETING = re.compile(r"^( *)warp_sync\(\);  // one lane will signal that the warp is done with it$", re.M)


def passed_on(name):
    words = ", ".join(f"shuffle({name}.{word}, 0)" for word in "xyzw")
    return rf"\1{name} = {{{words}}};"


def changed(text, file, pattern, replacement):
    text, count = re.subn(pattern, replacement, text)
    if count == 0:
        sys.exit(f"error: {file}: no text matches {getattr(pattern, 'pattern', pattern)!r}; change {Path(__file__).name} with it")
    return text


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__.strip())
    copy = Path(sys.argv[1])
    shutil.copytree(ROOT / "templates", copy)
    sync = copy / "include/kgen/sync.cuh"
    sync.write_text(changed(sync.read_text(), sync, r'"bar\.arrive ', '"bar.sync '))
    for name in ("hopper/walk.tera", "parts/kv/tma_producer.tera"):
        file = copy / "attention" / name
        text = changed(file.read_text(), file, READ_BY_ALL, READ_BY_ONE)
        of_keys = f"{{%- if plan.features.positions %}}\n{passed_on('of_keys')}\n{{%- endif %}}\n" if "of_keys" in text else ""
        file.write_text(changed(text, file, MEETING, of_keys + passed_on("said")))


if __name__ == "__main__":
    main()
