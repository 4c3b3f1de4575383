#!/usr/bin/env bash
# Builds vLLM's two extension modules on libkgen: _vllm_fa2_C.abi3.so and _vllm_fa3_C.abi3.so (docs/vllm.md).
#
#   scripts/torch_ops.sh OUT_DIR [LIBKGEN]
#
# LIBKGEN, a libkgen.so of any selection, is copied beside them as libkgen_vllm.so; it is not needed to build. No CUDA
# is needed either: Torch's headers and libraries come from the Python that PYTHON names (default python3), which must
# have torch 2.10 or newer. CXX is the compiler (c++), LDFLAGS goes to the linker, INCLUDE is the folder with kgen.h.
#
# For tests: KEY, the dispatch key (CUDA), DEVICE, the file that implements device.h (device_cuda.cpp), and EXPORTS,
# the version script with the symbols that the modules export (exports.map).
#
# Both modules need libkgen_vllm.so, found beside them ($ORIGIN): the kernels are there once, for both, and can be
# replaced without building the modules again. That name is no other library's, so that a libkgen.so which the process
# has already loaded is not taken in its place.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
if (($# < 1 || $# > 2)); then
    echo "usage: scripts/torch_ops.sh OUT_DIR [LIBKGEN]" >&2
    exit 2
fi
out=$1
sources=$root/templates/bindings/torch
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cxx=${CXX:-c++}
{
    read -r torch
    read -r python_include
    read -r version
} < <("${PYTHON:-python3}" -c '
import os, sysconfig, torch
print(os.path.dirname(torch.__file__))
print(sysconfig.get_path("include"))
print(torch.__version__)')
if ! printf '2.10\n%s\n' "${version%%[a-z+]*}" | sort -V -C; then
    echo "error: torch $version has no stable interface with lists; 2.10 or newer is needed" >&2
    exit 3
fi

# The interface of torch 2.10, which newer versions keep.
flags=(-std=c++17 -O2 -fPIC -fvisibility=hidden -fvisibility-inlines-hidden -Wall -Wextra -DTORCH_TARGET_VERSION=0x020a000000000000
    "-DKGEN_TORCH_KEY=${KEY:-CUDA}" -I "$sources" -I "${INCLUDE:-$root/generated/include}" -isystem "$torch/include" -isystem "$python_include")
compile() {
    local object=$1 source=$2
    shift 2
    "$cxx" "${flags[@]}" "$@" -c "$source" -o "$work/$object.o"
}

# A stub of libkgen_vllm.so for the linker: its name and the functions that are called.
for function in kgen_fwd kgen_fwd_workspace kgen_fwd_metadata kgen_explain_choice kgen_append_kv kgen_last_error ${DEVICE:+kgen_emulator_tensor}; do
    echo "void $function(void) {}"
done > "$work/stub.c"
"${CC:-cc}" -shared -fPIC -Wl,-soname,libkgen_vllm.so "$work/stub.c" -o "$work/libkgen_vllm.so"

for part in view numbers workspace attention append widen metadata; do compile "$part" "$sources/$part.cpp"; done
compile device "${DEVICE:-$sources/device_cuda.cpp}"
cuda=()
[[ -n ${DEVICE:-} ]] || cuda=(-ltorch_cuda)
for version in 2 3; do
    name=_vllm_fa${version}_C
    compile "fa$version" "$sources/fa$version.cpp"
    compile "module$version" "$sources/module.cpp" "-DKGEN_TORCH_MODULE=$name"
    "$cxx" -shared "-Wl,--version-script=${EXPORTS:-$sources/exports.map}" -Wl,-rpath,'$ORIGIN' -o "$out/$name.abi3.so" \
        "$work"/{"fa$version","module$version",view,numbers,workspace,attention,append,widen,metadata,device}.o \
        -Wl,--no-as-needed -L "$work" -lkgen_vllm -L "$torch/lib" "${cuda[@]}" -ltorch_cpu -lc10 ${LDFLAGS:-} 2> "$work/log" || { cat "$work/log" >&2; exit 1; }
    echo "$out/$name.abi3.so"
done
if (($# == 2)); then
    cp "$2" "$out/libkgen_vllm.so"
    echo "$out/libkgen_vllm.so"
fi
