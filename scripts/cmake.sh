#!/bin/sh
# Builds a generated folder with CMake in the usual ways, with kgen's own nvcc and no GPU. CMake and Ninja are installed
# by pip into a temporary folder if CMake is not in PATH. Prints one line per check; exits with code 1 at the first
# failure.
#
#   scripts/cmake.sh [KGEN]      KGEN: the binary; default target/release/kgen
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
kgen=${1:-$root/target/release/kgen}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() { echo "error: $1" >&2; sed -n '1,60p' "$work/log" >&2; exit 1; }
done_with() { echo "ok: $1"; }
quietly() { "$@" > "$work/log" 2>&1; }

if ! command -v cmake > /dev/null; then
  quietly python3 -m pip install --disable-pip-version-check --target "$work/tools" cmake==3.31.6 ninja==1.13.0 || fail "pip cannot install CMake"
  PATH=$work/tools/bin:$PATH PYTHONPATH=$work/tools
  export PATH PYTHONPATH
fi
command -v ninja > /dev/null && { CMAKE_GENERATOR=Ninja; export CMAKE_GENERATOR; }

quietly "$kgen" toolchain install || fail "no nvcc"
nvcc=$("$kgen" toolchain show --format json | python3 -c 'import json, sys; print(json.load(sys.stdin)[0]["program"])')
CUDACXX=$nvcc
export CUDACXX
folder=$work/generated
quietly "$kgen" --templates "$root/templates" generate --head-dim 32 --dtype bf16 --full --target sm80,sm100 --output "$folder" || fail "nothing generated"
all=$(ls "$folder" | grep -c '\.cu$')

quietly cmake -S "$folder" -B "$work/shared" -DKGEN_EXAMPLES=ON || fail "does not configure"
quietly cmake --build "$work/shared" --parallel 2 || fail "does not build"
test -f "$work/shared/libkgen.so" || fail "no libkgen.so"
"$work/shared/attention" nobody 2>&1 | grep -q flash_fwd_hdim32_bf16_sm80 || fail "the example lists no variants"
done_with "$all kernels as libkgen.so, and the example"

# A program of another project: the number of variants, and the answer to an empty request.
mkdir "$work/user"
cat > "$work/user/main.c" <<'C'
#include <kgen.h>
#include <kgen_launchers.h>
#include <stdio.h>
int main(void) {
    size_t count;
    kgen_variants(&count);
    const int code = flash_fwd_hdim32_bf16_sm80(NULL, NULL);
    printf("%zu %d %s %u\n", count, code, kgen_last_error(), kgen_abi_version());
    return 0;
}
C
said="1 flash_fwd_hdim32_bf16_sm80: params is NULL 3"

quietly cmake -S "$folder" -B "$work/static" -DBUILD_SHARED_LIBS=OFF '-DKGEN_KERNELS=flash_fwd_split_*_sm80;flash_fwd_hdim32_*_sm80' || fail "a part does not configure"
quietly cmake --build "$work/static" --parallel 2 || fail "a part does not build"
quietly cmake --install "$work/static" --prefix "$work/prefix" || fail "does not install"
cat > "$work/user/CMakeLists.txt" <<'C'
cmake_minimum_required(VERSION 3.20)
project(user LANGUAGES C CXX)
find_package(kgen 0.1 REQUIRED)
add_executable(user main.c)
target_link_libraries(user PRIVATE kgen::kgen)
set_target_properties(user PROPERTIES LINKER_LANGUAGE CXX)
C
quietly cmake -S "$work/user" -B "$work/user/build" "-DCMAKE_PREFIX_PATH=$work/prefix" "-DCUDAToolkit_ROOT=$(dirname "$(dirname "$nvcc")")" || fail "the package is not found"
quietly cmake --build "$work/user/build" || fail "the installed library does not link"
test "$("$work/user/build/user")" = "4 $said" || fail "the installed library says $("$work/user/build/user")"
done_with "two kernels by name and their helpers as libkgen.a, installed and found by find_package"

# A parent with architecture flags of its own, one of which nvcc does not know.
cat > "$work/user/CMakeLists.txt" <<'C'
cmake_minimum_required(VERSION 3.20)
set(CMAKE_CUDA_FLAGS "-gencode arch=compute_75,code=sm_75 --generate-code=arch=compute_86,code=[sm_86,compute_86] -lineinfo")
set(CMAKE_CUDA_ARCHITECTURES 75)
set(CMAKE_CUDA_SEPARABLE_COMPILATION ON)
project(user LANGUAGES C CXX CUDA)
add_compile_options("$<$<COMPILE_LANGUAGE:CUDA>:-gencode;arch=compute_75,code=sm_75>" -march=native)
set(KGEN_KERNELS "flash_fwd_hdim32_*")
add_subdirectory(${FOLDER} kgen)
add_executable(user main.c)
target_link_libraries(user PRIVATE kgen::kgen)
set_target_properties(user PROPERTIES LINKER_LANGUAGE CXX)
C
quietly cmake -S "$work/user" -B "$work/user/sub" "-DFOLDER=$folder" -DCMAKE_EXPORT_COMPILE_COMMANDS=ON || fail "does not configure as a part of another project"
quietly cmake --build "$work/user/sub" --parallel 2 || fail "does not build as a part of another project"
test "$("$work/user/sub/user")" = "2 $said" || fail "as a part it says $("$work/user/sub/user")"
grep sm80.cu "$work/user/sub/compile_commands.json" | grep command > "$work/log"
grep -q -e -lineinfo "$work/log" && grep -q -e -march=native "$work/log" || fail "a parent's other flags are lost"
! grep -q -e _75 -e _86 "$work/log" || fail "a parent's architectures reach the kernels"
done_with "inside a project with architectures of its own"

! quietly cmake -S "$folder" -B "$work/typo" -DKGEN_KERNELS=flash_fwd_hdim33_bf16_sm80 || fail "a kernel that is not there was taken"
grep -q 'means no kernel of' "$work/log" || fail "a kernel that is not there is not named"
done_with "a name that no kernel has is refused"

# One kernel in a program that knows nothing else of kgen.
quietly "$kgen" --templates "$root/templates" generate --head-dim 32 --dtype bf16 --full --target sm80 --output "$work/one/my.cu" || fail "no single kernel"
cat > "$work/one/main.c" <<'C'
#include "my.h"
#include <stdio.h>
int main(void) {
    const int code = flash_fwd_hdim32_bf16_sm80(NULL, NULL);
    printf("%d %s %u\n", code, kgen_last_error(), kgen_abi_version());
    return 0;
}
C
cd "$work/one"
line=$(sed -n 's|^// *\(nvcc .*my.cu\)$|\1|p' my.cu)
quietly sh -c "\"$nvcc\" ${line#nvcc }" || fail "the line in its header does not compile it"
quietly cc -Wall -Wextra -Werror -Iinclude -c main.c || fail "my.h is not plain C"
quietly "$nvcc" main.o my.o -o main || fail "it does not link alone"
test "$(./main)" = "$said" || fail "it says $(./main)"
done_with "one kernel by the line in its header, with my.h"
