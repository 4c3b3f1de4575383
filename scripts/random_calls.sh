#!/usr/bin/env bash
# Random calls to the Python package compared with float64 (python/tests/test_random.py), in several processes at once.
#
#   KGEN_LIBRARY=build/lib/libkgen.so scripts/random_calls.sh [CALLS [FIRST_SEED [PROCESSES]]]
#
# CALLS in total (20000), divided among PROCESSES (8), each with its own seed, from FIRST_SEED (1) on. PYTHON names an
# interpreter with torch, numpy and pytest (python3). A process's output goes to OUT/random-SEED.txt (build/random); its
# count and each wrong call are printed. Exits 1 if a process failed. A library of the whole grid leaves the fewest
# calls without a kernel. Each process computes on one thread (OMP_NUM_THREADS).
set -uo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
calls=${1:-20000} first=${2:-1} processes=${3:-8}
out=$(mkdir -p "${OUT:-build/random}" && cd "${OUT:-build/random}" && pwd)
KGEN_LIBRARY=$(realpath "${KGEN_LIBRARY:?names the library}")
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
export KGEN_LIBRARY PYTHONPATH=$root/python${PYTHONPATH:+:$PYTHONPATH}
cd "$root/python/tests"

running=()
for ((seed = first; seed < first + processes; ++seed)); do
    KGEN_CALLS=$(((calls + processes - 1) / processes)) KGEN_SEED=$seed \
        "${PYTHON:-python3}" -m pytest -q -s -p no:cacheprovider test_random.py >"$out/random-$seed.txt" 2>&1 &
    running+=($!)
done
failed=0
for process in "${running[@]}"; do wait "$process" || failed=1; done
for ((seed = first; seed < first + processes; ++seed)); do
    output=$out/random-$seed.txt
    grep -h -A1 "^\.*KGEN_CALL=" "$output"
    grep -ho "seed $seed: [0-9]* calls.*" "$output" || { echo "seed $seed: ended early; see $output"; failed=1; }
done
exit "$failed"
