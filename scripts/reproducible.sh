#!/bin/sh
# Builds a slice of the grid twice, from scratch, in two folders with separate caches, and compares every byte of
# objects, library and manifest. The compilers are those that `kgen build` finds here.
#
#   scripts/reproducible.sh                                  two small variants
#   scripts/reproducible.sh --head-dim 128 --target sm90     another selection
#   KGEN=target/debug/kgen scripts/reproducible.sh           with another kgen
set -eu
kgen=$(realpath "${KGEN:-target/release/kgen}")
[ $# -gt 0 ] || set -- --kind fwd --head-dim 64 --dtype bf16 --target sm80
caches=${XDG_CACHE_HOME:-$HOME/.cache}/kgen
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# The second name contains shell syntax.
one=$work/one two=$work/'two $(touch executed)'
for folder in "$one" "$two"; do
    cache=$(mktemp -d "$work/cache.XXXXXX")
    mkdir -p "$folder" "$cache/kgen"
    # Compilers are not reinstalled.
    [ ! -d "$caches/toolchain" ] || ln -s "$caches/toolchain" "$cache/kgen/toolchain"
    (cd "$folder" && XDG_CACHE_HOME=$cache "$kgen" build "$@" >build.log) || { cat "$folder/build.log"; exit 1; }
done
for part in obj lib; do diff -r "$one/build/$part" "$two/build/$part"; done
[ -z "$(find "$work" -name executed)" ] || { echo "the name of a folder was executed"; exit 1; }
(cd "$one/build" && sha256sum obj/* lib/*)
echo "both builds gave the same bytes"
