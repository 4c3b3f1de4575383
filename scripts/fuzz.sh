#!/usr/bin/env bash
# The fuzzers of `cargo test`, run for longer: random command lines, grids and filters, kills at random times, hostile
# calls to the C interface.
#
#     scripts/fuzz.sh [TIMES] [SEED]
#
# TIMES multiplies the work of `cargo test` (default 50: some minutes); SEED selects other inputs (default: the time).
# A failure prints the seed; the same TIMES and SEED repeat it.
set -euo pipefail
cd "$(dirname "$0")/.."

export KGEN_FUZZ=${1:-50} KGEN_FUZZ_SEED=${2:-$(date +%s)}
echo "fuzzing $KGEN_FUZZ times, seed $KGEN_FUZZ_SEED"
trap 'echo "FAILED: scripts/fuzz.sh $KGEN_FUZZ $KGEN_FUZZ_SEED does it again" >&2' ERR

cargo test --release --test integration fuzz_input:: -- --nocapture
cargo test --release --test integration hostile_calls -- --nocapture
