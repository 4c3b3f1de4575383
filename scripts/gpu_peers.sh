#!/usr/bin/env bash
# Times a suite of kgen beside the peers of a GPU machine that has torch.
#
#   scripts/gpu_peers.sh [SUITE] [OUT] [FLAGS OF `kgen bench`...]      default: models peers.jsonl
#
# PEERS     the folder with the peers' files (default .peers): wheels (fa3-fwd, flash-attn-4 and what it needs),
#           _vllm_fa3_C.abi3.so.xz, cu13.txz (CuTe DSL's library), 06-fused-attention.py, as far as there are any
# PEER      names of peers (default all)
# KGEN      the kgen binary (default target/release/kgen); LIBRARY the kernels (default build/lib/libkgen.so)
#
# OUT gets a row for each contender at each point, OUT.json the document of `kgen bench`; the table is printed. OUT.db
# is the store, to which further runs are added.
set -euo pipefail
cd "$(dirname "$0")/.."
suite=${1:-models} out=${2:-peers.jsonl}
shift $(($# < 2 ? $# : 2))
kgen=${KGEN:-target/release/kgen} peers=${PEERS:-.peers}
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
# The standard library unpacks all of it; the machine may lack unzip and xz.
python3 - "$peers" "$site" <<'PYTHON'
import lzma, shutil, sys, tarfile, zipfile
from pathlib import Path

peers, site = map(Path, sys.argv[1:])
for wheel in peers.glob("*.whl"):
    zipfile.ZipFile(wheel).extractall(site)
for archive in peers.glob("*.txz"):
    tarfile.open(archive).extractall(site)
for packed in peers.glob("*.so.xz"):
    (site / packed.stem).write_bytes(lzma.decompress(packed.read_bytes()))
for tutorial in peers.glob("06-fused-attention.py"):
    shutil.copy(tutorial, site)
PYTHON
db=$out.db code=0 # kept: a run that is stopped leaves its rows there
"$kgen" bench --list-peers --site "$site" || true
"$kgen" bench --suite "$suite" --peer "${PEER:-all}" --site "$site" --library "${LIBRARY:-build/lib/libkgen.so}" \
    --db "$db" --out "$out.json" "$@" || code=$?
"$kgen" db export --db "$db" --as jsonl --out "$out"
exit $code
