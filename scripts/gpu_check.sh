#!/usr/bin/env bash
# Builds, checks and times everything that the local NVIDIA GPU can run, with the machine's own nvcc (13.0 or newer).
#
#   [STEPS="build check runas sanitize bench-fwd"] scripts/gpu_check.sh [OUT_DIR]
#
# Needs no Rust: KGEN names the kgen binary (default target/release/kgen). Logs, JSON and summary.json go to OUT_DIR
# (default build/gpu); `python3 scripts/gpu_report.py tables OUT_DIR` creates the tables of docs/results/ from them. A
# step whose tool is not installed is skipped with a message. Exits 1 if any step failed; later steps still run.
#
#   STEPS                   some of: build check runas tma sanitize bench bench-fwd bench-bwd bench-decode bench-tma
#                           side-by-side
#   LIMIT                   seconds for all steps (1500): the one that runs then is stopped, the rest is skipped
#   KGEN_VARIANTS           another grid, such as one whose tiles copy by TMA
#   SELECT                  narrows every build and check, such as "--kind fwd --head-dim 64,128"
#   CHECK_FLAGS             how much is checked (--thorough)
#   CHECK_JOBS              variants at once on the GPU (4)
#   SANITIZE_FLAGS          narrows the sanitizer's cases of each template, such as "--case sq17"
#   SANITIZE_TEMPLATES      only templates whose name contains one of these strings
#   BENCH_FLAGS             what `kgen bench` times (--seqlen 8192), of SELECT's kernels for this GPU's targets
#   BENCH_FWD_FLAGS, BENCH_BWD_FLAGS, BENCH_DECODE_FLAGS, BENCH_TMA_FLAGS, SIDE_BY_SIDE_FLAGS
set -uo pipefail
cd "$(dirname "$0")/.."
kgen=${KGEN:-target/release/kgen}
out=${1:-build/gpu}
steps=${STEPS:-"build check runas sanitize bench-fwd"}
limit=${LIMIT:-1500}
read -ra select <<<"${SELECT:-}"
read -ra check_flags <<<"${CHECK_FLAGS:---thorough}"
check_flags+=(-j "${CHECK_JOBS:-4}")
mkdir -p "$out"
rm -f "$out"/*.tsv "$out"/*.json "$out"/*.jsonl

wants() { [[ " $steps " == *" $1 "* ]]; }

record() { printf '%s\t%s\t%s\t%s\n' "$@" >>"$out/steps.tsv"; }

skip() {
    echo "$1: skipped, $2"
    record "$1" "skipped: $2" 0 ""
}

# step NAME COMMAND...: standard output to NAME.json, everything else to NAME.log.
step() {
    local name=$1 left=$((limit - SECONDS)) begin=$SECONDS code status=passed
    shift
    if ((left <= 0)); then
        skip "$name" "the time of all steps was spent"
        return
    fi
    timeout -k 20 "$left" "$@" >"$out/$name.json" 2>"$out/$name.log"
    code=$?
    if ((code == 124 || code == 137)); then status="stopped: out of time"; elif ((code)); then status="failed: exit code $code"; fi
    record "$name" "$status" $((SECONDS - begin)) "$*"
    echo "$name: $status, $((SECONDS - begin)) s"
    ((code == 0)) || tail -n 15 "$out/$name.log"
}

# A library of one variant in a form that racecheck can follow.
build_for_racecheck() {
    local variant=$1 folder=$2
    shift 2
    rm -rf "$folder" && mkdir -p "$folder" && python3 scripts/racecheck/templates.py "$folder/templates" &&
        "$kgen" --templates "$folder/templates" build --filter "name == $variant" --build-dir "$folder" \
            --generated "$folder/generated" --offline --allow-spills "$@" &>"$folder.log"
}

sanitize() {
    local template=$1 variant=$2 tool
    local -a check
    shift 2
    for tool in memcheck racecheck initcheck synccheck; do
        check=("$@")
        if [[ $tool == racecheck ]] && grep -qE 'barrier_arrive|hopper/walk' "templates/attention/${template%%-*}.cu.tera"; then
            build_for_racecheck "$variant" "$out/racecheck-$template" || true  # a missing library fails the step
            check+=(--templates "$out/racecheck-$template/templates" --library "$out/racecheck-$template/lib/libkgen.so")
        fi
        # The tools run concurrently: each uses one core and a small part of the GPU.
        step "sanitize-$template-$tool" compute-sanitizer --tool "$tool" --target-processes all --error-exitcode 9 \
            --log-file "$out/sanitize-$template-$tool.txt" "$kgen" check --filter "name == $variant" --device gpu --fresh \
            --format json --time-limit 600 "${check[@]}" &
    done
    wait
}

bench() {
    local name=$1 script=$2 suite=$3
    shift 3
    if [[ ! -f $script ]]; then
        skip "$name" "there is no such bench"
    elif ! python3 -c 'import torch' 2>/dev/null; then
        skip "$name" "PyTorch is not installed"
    else
        step "$name" python3 "$script" "$suite" --library build/lib/libkgen.so --out "$out/$name-rows.jsonl" "$@"
    fi
}

date -u +%Y-%m-%dT%H:%MZ | tee "$out/machine.txt"
nvidia-smi --query-gpu=name,driver_version,compute_cap,clocks.sm,temperature.gpu --format=csv,noheader | tee -a "$out/machine.txt"
step doctor "$kgen" doctor --format json
step list "$kgen" list --plan --format json "${select[@]}"
capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d .)
python3 scripts/gpu_report.py plan "$capability" <"$out/list.json" >"$out/plan.tsv" || exit 1
planned() { awk -F '\t' -v key="$1" '$1 == key { print $2 }' "$out/plan.tsv"; }
native=$(planned native) portable=$(planned portable) run_as=$(planned run_as)

if [[ -n $native ]]; then
    wants build && step build "$kgen" build --target "$native" "${select[@]}" --generated "$out/generated" --offline --format json
    wants check && step check "$kgen" check --target "$native" "${select[@]}" --device gpu --format json "${check_flags[@]}"
fi
if wants runas && [[ -n $portable && -n $run_as ]]; then
    step runas-build "$kgen" build --run-as "$run_as" --target "$portable" "${select[@]}" --offline --format json
    step runas-check "$kgen" check --run-as "$run_as" --target "$portable" "${select[@]}" --device gpu --format json "${check_flags[@]}"
fi
if wants tma && [[ -n $run_as ]]; then
    tma=("$kgen" --variants scripts/tma.toml)
    step tma-build "${tma[@]}" build --run-as "$run_as" "${select[@]}" --build-dir "$out/tma" --offline --format json
    step tma-check "${tma[@]}" check --run-as "$run_as" "${select[@]}" --library "$out/tma/run-as-$run_as/lib/libkgen.so" --device gpu \
        --format json "${check_flags[@]}"
fi
if wants sanitize; then
    if command -v compute-sanitizer >/dev/null; then
        read -ra sanitize_flags <<<"${SANITIZE_FLAGS:-}"
        while IFS=$'\t' read -r _ template variant as; do
            words=${SANITIZE_TEMPLATES:-$template}
            for word in $words; do
                [[ $template == *"$word"* ]] || continue
                sanitize "$template" "$variant" ${as:+--run-as "$as"} "${sanitize_flags[@]}"
                break
            done
        done < <(grep '^sanitize' "$out/plan.tsv")
        tma_library="$out/tma/run-as-$run_as/lib/libkgen.so"
        if [[ -f $tma_library && fwd_sm80-tma == *"${SANITIZE_TEMPLATES:-tma}"* ]]; then
            sanitize fwd_sm80-tma flash_fwd_hdim64_bf16_causal_sm120 --variants scripts/tma.toml --run-as "$run_as" \
                --library "$tma_library" "${sanitize_flags[@]}"
        fi
    else
        skip sanitize "compute-sanitizer is not installed"
    fi
fi
# shellcheck disable=SC2086
{
    if wants bench && [[ -n $native ]]; then
        step bench "$kgen" bench --target "$native" "${select[@]}" --format json ${BENCH_FLAGS:---seqlen 8192}
    fi
    wants bench-fwd && bench bench-fwd benches/dense.py forward --target sm80 --peers fa2 ${BENCH_FWD_FLAGS:-}
    wants bench-bwd && bench bench-bwd benches/dense.py backward ${BENCH_BWD_FLAGS:-}
    wants bench-decode && bench bench-decode benches/serving.py decode ${BENCH_DECODE_FLAGS:-}
    wants bench-tma && step bench-tma python3 benches/tiles.py tma --kgen "$kgen" --out "$out/bench-tma-rows.jsonl" ${BENCH_TMA_FLAGS:-}
    wants side-by-side && bench side-by-side benches/dense.py forward ${SIDE_BY_SIDE_FLAGS:-}
}

nvidia-smi --query-gpu=clocks.sm,temperature.gpu,power.draw --format=csv,noheader | tee -a "$out/machine.txt"
python3 scripts/gpu_report.py summary "$out"
