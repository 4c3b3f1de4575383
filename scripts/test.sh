#!/usr/bin/env bash
# Runs every test of the project, on a machine with Rust, a C++ compiler and Python's pip; no CUDA, no GPU. For the
# whole grid, use `kgen build-all`. Stops at the first failure and prints the name of the step.
set -euo pipefail
cd "$(dirname "$0")/.."

step() {
    current=$1
    printf '\n== %s (after %d s)\n' "$current" "$SECONDS"
}
trap 'printf "\nFAILED: %s\n" "${current:-setup}" >&2' ERR

step "format"
cargo fmt --check

step "clippy, warnings are errors"
cargo clippy --profile ci --all-targets --quiet -- -D warnings

step "unit, snapshot, fault and integration tests"
# More threads than cores: tests wait for compilers and child processes.
RUST_TEST_THREADS=$(($(nproc) * 3 / 2)) cargo test --profile ci --no-fail-fast

# The binary that the tests have just run: `cargo run` would compile the library again, without the tests' features.
kgen="${CARGO_TARGET_DIR:-target}/ci/kgen"

step "generated/ and generated.b3 are up to date"
KGEN="$kgen" scripts/generated.sh --check

step "a slice of the grid that reaches every template, target, dtype and mask: nvcc compiles it, the emulator smoke-tests it"
rm -rf build/log  # left by earlier runs, and searched for warnings
# The tests' passes and their emulator, each keyed by all that it depends on: no kernel is checked twice.
cache="${XDG_CACHE_HOME:-$HOME/.cache}/kgen" tests="${CARGO_TARGET_DIR:-target}/tmp/faults"
mkdir -p "$cache/emulator" "$tests/verdicts"
cp -R "$tests/verdicts" "$cache/"
cp -R "$tests"/emulator/kit-* "$cache/emulator/"
scripts/slice.py "$kgen"

step "a compiler cache in front of nvcc serves the second build"
scripts/test_launcher.sh "$kgen"

step "generated/include/kgen.h is strict C99"
printf '#include "kgen.h"\n' | cc -std=c99 -Wall -Wextra -Werror -pedantic -fsyntax-only -Igenerated/include -xc -

step "the wheel and the archive of a release, in a fresh environment"
scripts/test_release.sh "$kgen"

step "the commands of README.md"
KGEN="$kgen" scripts/readme_commands.sh

# Installs Chromium, which takes longer than the test: on demand.
if [[ -n ${KGEN_TEST_BROWSER:-} ]]; then
    step "a report of the published rows in a browser"
    KGEN="$kgen" scripts/report_browser.py
fi

current="done"
printf '\nall steps passed in %d s\n' "$SECONDS"
