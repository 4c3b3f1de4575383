#!/usr/bin/env bash
# A library of kernels for the emulator, with the dispatcher: for testing programs that load libkgen.so without a GPU.
#
#   scripts/emulator_library.sh OUT_DIR [SELECTION...]      for example: --head-dim 64 --dtype bf16 --kind fwd,bwd
#   --target sm80
#
# Writes OUT_DIR/libkgen_emulated.so. KGEN names the kgen binary (default target/release/kgen), CXX the compiler (c++).
# Every tensor must be registered with the emulator before a call; python/kgen_attn/library.py does that.
set -euo pipefail
cd "$(dirname "$0")/.."
kgen=${KGEN:-target/release/kgen}
if (($# == 0)); then
    echo "usage: scripts/emulator_library.sh OUT_DIR [SELECTION...]" >&2
    exit 2
fi
out=$1
shift
mkdir -p "$out/objects"
rm -f "$out"/objects/*.o
"$kgen" --templates templates generate "$@" --output "$out/generated"
flags=(-std=c++17 -fPIC -ffp-contract=off -Wno-attributes -O1 -I templates/emulator -I "$out/generated/include" -x c++ -c)
printf '%s\0' "$out"/generated/*.cu "$out/generated/kgen_dispatch.cpp" templates/emulator/runtime.cpp |
    xargs -0 -P "$(nproc)" -I{} sh -c 'source=$1; shift; "$@" "$source" -o "$0/$(basename "$source").o"' "$out/objects" {} "${CXX:-c++}" "${flags[@]}"
"${CXX:-c++}" -shared -o "$out/libkgen_emulated.so" "$out"/objects/*.o -lpthread
echo "$out/libkgen_emulated.so"
