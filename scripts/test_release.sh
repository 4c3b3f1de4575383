#!/usr/bin/env bash
# Tests the files of a release as users get them: the wheel in a fresh environment, the archive unpacked, both outside
# this repository.
#
#   scripts/test_release.sh [BINARY]      packs BINARY (default target/release/kgen) and tests the results
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
binary=$(realpath "${1:-${CARGO_TARGET_DIR:-$root/target}/release/kgen}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
    echo "error: $1" >&2
    exit 1
}

"$root/scripts/release.sh" --binary "$binary" --output "$work/dist"
"$root/scripts/release.sh" --binary "$binary" --output "$work/again" >/dev/null
cmp "$work/dist/SHA256SUMS" "$work/again/SHA256SUMS" || fail "a second run gives other files"

mkdir "$work/place"
cd "$work/place"
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --no-index "$work"/dist/kgen-*.whl
kgen=$work/venv/bin/kgen
cmp "$kgen" "$binary" || fail "pip installed another binary"
"$kgen" doctor || (($? == 3)) || fail "kgen doctor of the wheel ends with $?"
"$kgen" generate --quiet --head-dim 128 --dtype bf16 --causal --target blackwell --output kernels
compgen -G "kernels/*.cu" >/dev/null || fail "the installed kgen writes no kernel"
"$work/venv/bin/pip" uninstall --quiet --yes kgen
[[ ! -e $kgen ]] || fail "pip left the binary behind"

tar -xzf "$work"/dist/kgen-*.tar.gz
archive=$(echo kgen-*-linux)
cmp "$archive/kgen" "$binary" || fail "the archive holds another binary"
for file in man/man1/kgen.1 man/man1/kgen-build.1 completions/kgen.bash completions/_kgen completions/kgen.fish LICENSE-MIT; do
    [[ -s $archive/$file ]] || fail "the archive has no $file"
done
bash -n "$archive/completions/kgen.bash"
echo "the wheel and the archive install and run"
