#!/usr/bin/env bash
# Proves the emulator: right kernels give right numbers and clean reports, broken ones do not.
#
#   tests/emulator/run.sh [KERNELS]
#
# KERNELS is a folder of generated forward kernels; without it they are generated from kernels.toml with `kgen` (the
# one in $KGEN, else cargo's). CXX picks the host compiler.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
compiler=${CXX:-c++}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

kernels=${1:-}
if [ -z "$kernels" ]; then
    kernels=$work/generated
    ${KGEN:-cargo run --quiet --manifest-path "$root/Cargo.toml" --release --} --variants "$here/kernels.toml" generate --all --output "$kernels"
fi

flags="-std=c++17 -ffp-contract=off -fPIC -Wall -Wextra -I $root/templates/emulator -I $root/templates/include"
$compiler $flags -O2 -c "$root/templates/emulator/runtime.cpp" -o "$work/runtime.o"
$compiler $flags -O2 "$here/harness.cpp" -o "$work/harness" -ldl
$compiler $flags -O1 "$here/words.cpp" "$work/runtime.o" -o "$work/words"

failed=0
"$work/words" || failed=1

cases=(1,2,2,113,203 1,2,1,128,128,gapped 2,4,2,17,1 2,2,2,64,130,packed 1,1,1,203,113,unaligned 1,8,2,64,64,unaligned 1,1,1,1,257 1,1,1,113,333,steep)
for seed in 2 3 4 5; do cases+=(1,1,1,130,203,gapped,$seed); done
for kernel in "$kernels"/flash_fwd_*.cu; do
    name=$(basename "$kernel" .cu)
    $compiler -x c++ $flags -O1 -shared -o "$work/$name.so" "$kernel" -x none "$work/runtime.o"
    "$work/harness" "$work/$name.so" "$name" "${cases[@]}" > "$work/output" && result=pass || result=FAIL
    echo "$result  $name  $(grep -c '^pass' "$work/output") of ${#cases[@]} cases"
    if [ $result = FAIL ]; then cat "$work/output"; failed=1; fi
done
python3 "$here/plant_faults.py" "$work" "$kernels" "$compiler" || failed=1
exit $failed
