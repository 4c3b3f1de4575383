#!/usr/bin/env bash
# Tests the Torch ops of vLLM's interface (docs/vllm.md) without a GPU: built for tensors in host memory, with emulated
# kernels.
#
#   scripts/test_torch_ops.sh [PYTEST_ARGUMENT...]
#
# KGEN names the kgen binary (default target/release/kgen), PYTHON a Python with torch 2.10 or newer and pytest
# (python3), CXX the compiler (c++). VLLM_INTERFACE names vLLM's vllm_flash_attn/flash_attn_interface.py, for the tests
# that run it unmodified; without it they are skipped. BUILD, a folder, keeps what is built between runs.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
if [[ -z ${BUILD:-} ]]; then
    BUILD=$(mktemp -d)
    trap 'rm -rf "$BUILD"' EXIT
fi
package=$BUILD/vllm/vllm_flash_attn
mkdir -p "$package"
touch "$BUILD/vllm/__init__.py" "$package/__init__.py"

# Every kind of kernel that the ops use, with one or two head dims.
kernels=(flash_fwd_hdim64_bf16_{causal,window_softcap_alibi_sinks,causal_paged,paged_window_softcap_alibi_sinks,causal_paged_kv_e4m3,causal_cache}_sm80
    flash_fwd_split_hdim64_bf16_{causal_paged,paged_window_softcap_alibi_sinks,causal_paged_kv_e4m3,causal_cache,causal_cache_append,causal_paged_append}_sm80
    flash_fwd_hdim128_bf16_causal_paged_sm80 flash_fwd_split_hdim128_bf16_causal_paged_sm80 flash_fwd_split_hdim64_fp16_causal_paged_sm80
    flash_fwd_hdim64_{bf16,fp8}_causal_paged_sm90 flash_fwd_hdim64_fp8_causal_sm89 flash_fwd_split_hdim64_512_bf16_causal_paged_qv_sm90
    flash_fwd_combine_sm80 flash_prepare_scheduler_sm80 append_kv_bf16_sm80)
"$root/scripts/emulator_library.sh" "$BUILD/emulated" "${kernels[@]}"

# The same library with counters of launches and workspace queries.
objcopy --redefine-sym kgen_fwd_workspace=uncounted_kgen_fwd_workspace "$BUILD/emulated/objects/kgen_dispatch.cpp.o"
start=$(nm -u "$BUILD/emulated/objects/flash_fwd_combine_sm80.cu.o" | awk '/8emulator3run/ {print $2}')
"${CXX:-c++}" -std=c++17 -fPIC -O1 -Wno-attributes -I "$root/templates/emulator" -I "$BUILD/emulated/generated/include" "-DCOUNT=__wrap_$start" "-DSTART=__real_$start" \
    -c "$root/tests/torch_ops/launches.cpp" -o "$BUILD/emulated/launches.o"
"${CXX:-c++}" -shared -o "$BUILD/emulated/libkgen_counted.so" "$BUILD"/emulated/objects/*.o "$BUILD/emulated/launches.o" "-Wl,--wrap=$start" -lpthread

export PYTHON=${PYTHON:-python3} INCLUDE=$BUILD/emulated/generated/include
# With libstdc++ linked statically if it is available, as by compilers without the shared one.
static=
[[ $("${CXX:-c++}" -print-file-name=libstdc++.a) != /* ]] || static=-static-libstdc++
LDFLAGS=$static KEY=CPU DEVICE=$root/tests/torch_ops/device_emulated.cpp EXPORTS=$root/tests/torch_ops/exports.map "$root/scripts/torch_ops.sh" "$package" "$BUILD/emulated/libkgen_counted.so"
# The ops in the form that is shipped, without a GPU: they compile, load and register the same schemas.
mkdir -p "$BUILD/shipped/vllm/vllm_flash_attn"
touch "$BUILD/shipped/vllm/__init__.py" "$BUILD/shipped/vllm/vllm_flash_attn/__init__.py"
"$root/scripts/torch_ops.sh" "$BUILD/shipped/vllm/vllm_flash_attn" "$BUILD/emulated/libkgen_counted.so"

cd "$root/tests/torch_ops"
KGEN_TORCH_OPS=$BUILD/shipped "$PYTHON" -m pytest -q -p no:cacheprovider test_schemas.py
KGEN_TORCH_OPS=$BUILD "$PYTHON" -m pytest -q -p no:cacheprovider "$@"
