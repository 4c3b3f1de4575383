#!/usr/bin/env python3
"""Copies templates/ in a form that compute-sanitizer's racecheck can follow.

    python3 scripts/racecheck/templates.py DIR        # templates/ of this repository, changed, to DIR

* Warps that arrive at a named barrier also wait there: after `bar.arrive` racecheck reports even accesses that block
  barriers separate as races.
* Warpgroups take no turns: no memory depends on their order, and if a warpgroup that passes its turn waited until the
  other takes it, both would deadlock when they clear rows together.
* One lane reads an announcement and broadcasts it; the same lane arrives when the warp is done with it: racecheck
  does not see that the other lanes have reached a __syncwarp() before (docs/checking.md).
* Named barriers that a warpgroup of fwd_mla_sm90 passes alone, where it clears rows, or of fwd_sm90, before it hands
  over its part of shared keys, are passed by the others too: after one of them racecheck reports even accesses that
  later barriers of all separate as races.

Exit code 1, with a message, if a text to be changed is missing: a partly changed kernel may hang.
"""

import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

READ_BY_ALL = re.compile(r"^( *)const words4 (said|of_keys) = (.*);$", re.M)
READ_BY_ONE = r"\1words4 \2 = {};\n\1if (lane_index() == 0) \2 = \3;"
TURNS = {
    "hopper/consumer_rings.tera": {"{ barrier_wait(1 + warpgroup, 256); }": "{}", "{ barrier_arrive(1 + (warpgroup + 1) % CONSUMERS, 256); }": "{}"},
    "include/kgen/turns.cuh": {"    barrier_wait(barrier, threads);\n": "", "    barrier_arrive(barrier + static_cast<int>(word >> 31), threads);\n": ""},
}
CLEARED_BY_SOME = {"if (end < own_keys + BLOCK_N) {": "if (end < STEP_KEYS) {", "first_key + own_keys < 0": "first_key < 0"}
HANDED_OVER = {"        if (!joins) {\n            barrier_wait(4 + warpgroup, 128);\n": "        barrier_wait(7, 128 * CONSUMERS);\n        if (!joins) {\n"}
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
    for name in ("hopper/next_item.tera", "hopper/v_producer.tera"):
        file = copy / name
        text = changed(file.read_text(), file, READ_BY_ALL, READ_BY_ONE)
        of_keys = f"{{%- if plan.features.positions %}}\n{passed_on('of_keys')}\n{{%- endif %}}\n" if "of_keys" in text else ""
        file.write_text(changed(text, file, MEETING, of_keys + passed_on("said")))
    for name, parts in TURNS.items():
        for old, new in parts.items():
            (copy / name).write_text(changed((copy / name).read_text(), name, re.escape(old), new))
    share = copy / "hopper/shared_keys_mainloop.tera"
    for alone, together in HANDED_OVER.items():
        share.write_text(changed(share.read_text(), share, re.escape(alone), together))
    mla = copy / "hopper/mla/mainloop.tera"
    for some, everyone in CLEARED_BY_SOME.items():
        mla.write_text(changed(mla.read_text(), mla, re.escape(some), everyone))


if __name__ == "__main__":
    main()
