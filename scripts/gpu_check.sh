#!/usr/bin/env bash
# Builds, checks and times the grid on a machine with an NVIDIA GPU and its own nvcc (13.0 or newer).
#
#   scripts/gpu_check.sh [OUT_DIR]
#
# Needs no Rust: KGEN names the kgen binary (default target/release/kgen). Writes its logs to OUT_DIR (default
# build/gpu); what is worth keeping goes to docs/results/, dated. Steps that need PyTorch or compute-sanitizer are
# skipped, and say so, where those are missing. Exits 1 if any step failed; later steps still run.
set -uo pipefail
cd "$(dirname "$0")/.."
kgen=${KGEN:-target/release/kgen}
out=${1:-build/gpu}
sanitize=${SANITIZE_FILTER:-"hdim == 64 and dtype == bf16 and causal"}
mkdir -p "$out"
failed=()

step() {
    local name=$1
    shift
    printf '\n== %s: %s\n' "$name" "$*"
    if "$@" >"$out/$name.log" 2>&1; then
        tail -n "${lines:-6}" "$out/$name.log"
    else
        echo "FAILED ($?)"
        tail -n 40 "$out/$name.log"
        failed+=("$name")
    fi
}

date -u +%Y-%m-%dT%H:%MZ | tee "$out/machine.txt"
nvidia-smi --query-gpu=name,driver_version,clocks.sm,temperature.gpu --format=csv,noheader | tee -a "$out/machine.txt"

step doctor "$kgen" doctor
step build "$kgen" build --all
step check "$kgen" check --all --device gpu ${CHECK_FLAGS:---thorough}

if command -v compute-sanitizer >/dev/null; then
    for tool in memcheck racecheck initcheck synccheck; do
        lines=2 step "sanitizer-$tool" compute-sanitizer --tool "$tool" --target-processes all --error-exitcode 9 \
            "$kgen" check --filter "$sanitize" --device gpu --fresh --time-limit 300
    done
else
    echo "compute-sanitizer is not installed: skipped"
fi

if python3 -c 'import torch' 2>/dev/null; then
    # shellcheck disable=SC2086
    lines=40 step fwd-vs-fa2 python3 benches/fwd_vs_fa2.py --library build/lib/libkgen.so --out "$out/fwd_vs_fa2.json" ${BENCH_FLAGS:-}
else
    echo "PyTorch is not installed: side-by-side timing skipped"
fi

if ((${#failed[@]})); then
    printf '\nfailed: %s\n' "${failed[*]}"
    exit 1
fi
printf '\nall steps passed\n'
