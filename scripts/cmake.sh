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

# A separate project links the library and prints the number of variants and the result of an empty request.
mkdir "$work/user"
cat > "$work/user/main.c" <<'C'
#include <kgen.h>
#include <kgen_launchers.h>
#include <stdio.h>
int main(void) {
    size_t count;
    kgen_variants(&count);
    const int code = flash_fwd_hdim32_bf16_sm80(NULL, NULL);
    printf("%zu %d %s\n", count, code, kgen_last_error());
    return kgen_abi_version() != KGEN_ABI_VERSION;
}
C
said="1 flash_fwd_hdim32_bf16_sm80: params is NULL"

cat > "$work/user/CMakeLists.txt" <<'C'
cmake_minimum_required(VERSION 3.20)
project(user LANGUAGES C CXX)
find_package(kgen 0.1 REQUIRED)
add_executable(user main.c)
target_link_libraries(user PRIVATE kgen::kgen)
set_target_properties(user PROPERTIES LINKER_LANGUAGE CXX)
C
installed() { # FOLDER NUMBER: FOLDER's build, installed and found by a project, is a library of NUMBER kernels
  quietly cmake --install "$work/$1" --prefix "$work/$1/prefix" || fail "$1: does not install"
  quietly cmake -S "$work/user" -B "$work/$1/user" "-DCMAKE_PREFIX_PATH=$work/$1/prefix" "-DCUDAToolkit_ROOT=$(dirname "$(dirname "$nvcc")")" || fail "$1: the package is not found"
  quietly cmake --build "$work/$1/user" || fail "$1: the installed library does not link"
  test "$("$work/$1/user/user")" = "$2 $said" || fail "$1: the installed library says $("$work/$1/user/user")"
}
installed shared "$all"
done_with "all of them, installed and found by find_package"

quietly cmake -S "$folder" -B "$work/static" -DBUILD_SHARED_LIBS=OFF '-DKGEN_KINDS=fwd_split;fwd' -DKGEN_HEAD_DIMS=32 -DKGEN_DTYPES=bf16 -DKGEN_FEATURES=none -DKGEN_TARGETS=sm80 || fail "a part does not configure"
grep -q "kgen: 4 of $all kernels" "$work/log" || fail "a part is not of 4 kernels"
quietly cmake --build "$work/static" --parallel 2 || fail "a part does not build"
installed static 4
done_with "two kernels by kind, head dim, dtype, features and target, and their helpers, as libkgen.a, installed and found"

# A parent project that sets architecture flags, one of which nvcc does not support.
cat > "$work/user/CMakeLists.txt" <<'C'
cmake_minimum_required(VERSION 3.20)
set(CMAKE_CUDA_FLAGS "-gencode arch=compute_75,code=sm_75 --generate-code=arch=compute_86,code=[sm_86,compute_86] -lineinfo")
set(CMAKE_CUDA_ARCHITECTURES 75)
set(CMAKE_CUDA_SEPARABLE_COMPILATION ON)
project(user LANGUAGES C CXX CUDA)
add_compile_options("$<$<COMPILE_LANGUAGE:CUDA>:-gencode;arch=compute_75,code=sm_75>" -march=native)
set(KGEN_KERNELS "flash_fwd_hdim32_*;flash_fwd_split_*")
set(KGEN_KINDS fwd)
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

refused() { # TEXT ARGUMENT...: the folder refuses the arguments, with the message TEXT
  text=$1
  shift
  ! quietly cmake -S "$folder" -B "$work/static" -U 'KGEN_*' "$@" || fail "taken: $*"
  tr -s ' \n' ' ' < "$work/log" | grep -q -e "$text" || fail "$* is refused without saying $text"
}
refused '`flash_fwd_hdim33_bf16_sm80` means no kernel of ' -DKGEN_KERNELS=flash_fwd_hdim33_bf16_sm80
refused 'is no name of a kernel' '-DKGEN_KERNELS=*_sm80;(x'
refused 'has `backward`; known here: bwd fwd ' -DKGEN_KINDS=fwd,backward
refused 'has `33`; known here: 32 ' -DKGEN_HEAD_DIMS=33
refused 'has ``; known here: bf16 ' -DKGEN_DTYPES=,
refused 'has `softcap`; known here: ' -DKGEN_FEATURES=softcap
refused 'has `sm90`; known here: sm80 sm100 ' -DKGEN_TARGETS=sm90
refused 'is selected by all of: KGEN_KINDS=fwd_combine KGEN_HEAD_DIMS=32 ' -DKGEN_KINDS=fwd_combine -DKGEN_HEAD_DIMS=32
refused 'kgen has no option KGEN_HEAD_DIM; ' -DKGEN_HEAD_DIM=32
done_with "names and words that no kernel has, empty selections and unknown options are refused"

# One kernel in a program without any other part of kgen.
quietly "$kgen" --templates "$root/templates" generate --head-dim 32 --dtype bf16 --full --target sm80 --output "$work/one/my.cu" || fail "no single kernel"
cat > "$work/one/main.c" <<'C'
#include "my.h"
#include <stdio.h>
int main(void) {
    const int code = flash_fwd_hdim32_bf16_sm80(NULL, NULL);
    printf("%d %s\n", code, kgen_last_error());
    return kgen_abi_version() != KGEN_ABI_VERSION;
}
C
cd "$work/one"
line=$(sed -n 's|^// *\(nvcc .*my.cu\)$|\1|p' my.cu)
quietly sh -c "\"$nvcc\" ${line#nvcc }" || fail "the line in its header does not compile it"
quietly cc -Wall -Wextra -Werror -Iinclude -c main.c || fail "my.h is not plain C"
quietly "$nvcc" main.o my.o -o main || fail "it does not link alone"
test "$(./main)" = "$said" || fail "it says $(./main)"
done_with "one kernel by the line in its header, with my.h"
cd "$work"

# The same kernel with its helpers as sources inside a project.
vendor() { quietly "$kgen" --templates "$root/templates" vendor "$work/user/third_party/kgen" "$@"; }
vendor --head-dim 32 --dtype bf16 --full --target sm80 --kind fwd,fwd_split || fail "nothing vendored"
cat > "$work/user/CMakeLists.txt" <<'C'
cmake_minimum_required(VERSION 3.20)
project(user LANGUAGES C CXX)
add_subdirectory(third_party/kgen)
add_executable(user main.c)
target_link_libraries(user PRIVATE kgen::kgen)
C
for shared in OFF ON; do
  quietly cmake -S "$work/user" -B "$work/vendored$shared" -DBUILD_SHARED_LIBS=$shared || fail "a vendored folder does not configure, shared $shared"
  quietly cmake --build "$work/vendored$shared" --parallel 2 || fail "a vendored folder does not build, shared $shared"
  test "$("$work/vendored$shared/user")" = "4 $said" || fail "a vendored folder says $("$work/vendored$shared/user")"
done
quietly make -C "$work/user/third_party/kgen" -j2 "NVCC=$nvcc" "BUILD=$work/made" || fail "its Makefile does not build it"
quietly cc -Wall -Wextra -Werror "-I$work/user/third_party/kgen/include" -c "$work/user/main.c" -o "$work/main.o" || fail "its header is not plain C"
quietly "$nvcc" "$work/main.o" "$work/made/libkgen.a" -o "$work/by_make" || fail "what make built does not link"
test "$("$work/by_make")" = "4 $said" || fail "what make built says $("$work/by_make")"
vendor --check || fail "building has changed a vendored folder"
done_with "vendored: by add_subdirectory, static and shared, and by make"

vendor --no-dispatcher flash_fwd_hdim32_bf16_sm80 || fail "not narrowed"
sed '/kgen_variants/d; s/size_t count;/const size_t count = 0;/' "$work/user/main.c" > "$work/user/one.c"
sed -i s/main.c/one.c/ "$work/user/CMakeLists.txt"
quietly cmake -S "$work/user" -B "$work/alone" || fail "kernels without the dispatcher do not configure"
quietly cmake --build "$work/alone" || fail "kernels without the dispatcher do not build"
test "$("$work/alone/user")" = "0 $said" || fail "without the dispatcher it says $("$work/alone/user")"
vendor --remove && test ! -e "$work/user/third_party/kgen" || fail "something stays"
done_with "vendored: one kernel without the dispatcher, and taken away"
