#!/usr/bin/env bash
# Updates the repository's part of the grid: the kernels of the set `vendored` in generated/, and the hashes of all
# kernels in generated.b3 (`kgen generate --all --output DIR && (cd DIR && b3sum --check ../generated.b3)`).
#
#   scripts/generated.sh [--check]       --check: write nothing, fail and name outdated files
#
# KGEN: the binary, default target/release/kgen.
set -euo pipefail
cd "$(dirname "$0")/.."
kgen=${KGEN:-${CARGO_TARGET_DIR:-target}/release/kgen}
status=0
"$kgen" generate --set vendored --exact --output generated "$@" || status=$?
"$kgen" generate --all --hashes generated.b3 "$@" || status=$?
exit "$status"
