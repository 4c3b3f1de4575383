#!/usr/bin/env python3
"""Host time of the dispatcher, without a GPU: the generated one, launchers that return at once, and a device that answers at once.

    kgen generate --all --output everything
    python3 benches/dispatch_host.py everything [--only sm90]

Prints for a few requests what `kgen_fwd`, `kgen_fwd_workspace` and `kgen_bwd` take, the least of several rounds in
nanoseconds, and how many questions a call asks CUDA's runtime: those take the real one 20 to 100 ns each, which is not
in the times. --only keeps the kernels whose names contain a text.
"""

import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

CUDA = """
#pragma once
#include <stddef.h>
enum cudaError_t { cudaSuccess = 0, cudaErrorInvalidValue = 1 };
enum cudaDeviceAttr { cudaDevAttrComputeCapabilityMajor, cudaDevAttrComputeCapabilityMinor, cudaDevAttrMaxSharedMemoryPerBlockOptin,
    cudaDevAttrMultiProcessorCount, cudaDevAttrMemoryClockRate, cudaDevAttrL2CacheSize, cudaDevAttrGlobalMemoryBusWidth };
extern "C" {
cudaError_t cudaGetDevice(int*);
cudaError_t cudaDeviceGetAttribute(int*, cudaDeviceAttr, int);
cudaError_t cudaGetLastError();
const char* cudaGetErrorString(cudaError_t);
const char* cudaGetErrorName(cudaError_t);
}
"""

LAUNCH = """
#pragma once
#include <cuda_runtime_api.h>
#include <stdarg.h>
#include <stdio.h>
#include "kgen.h"
namespace kgen {
inline thread_local char last_error[256] = "";
inline int fail(int code, const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(last_error, sizeof last_error, format, arguments);
    va_end(arguments);
    return code;
}
}
"""

MAIN = """
#include <stdlib.h>
#include <chrono>
#include "kgen/launch.cuh"
static long asked;
extern "C" cudaError_t cudaGetDevice(int* device) { ++asked; *device = 0; return cudaSuccess; }
extern "C" cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
    ++asked;
    static const int answers[] = {9, 0, 232448, 132, 2619000, 50 << 20, 5120};
    *value = answers[attribute];
    return cudaSuccess;
}
extern "C" cudaError_t cudaGetLastError() { return cudaSuccess; }
extern "C" const char* cudaGetErrorString(cudaError_t) { return ""; }
extern "C" const char* cudaGetErrorName(cudaError_t) { return ""; }
extern "C" const char* kgen_last_error() { return kgen::last_error; }

template <class F>
static void tell(const char* name, F f) {
    if (const int code = f()) printf("%-44s code %d: %s\\n", name, code, kgen_last_error());
    asked = 0;
    f();
    const long questions = asked;
    double least = 1e9;
    for (int round = 0; round < 40; ++round) {
        const int calls = 500;
        const auto begin = std::chrono::steady_clock::now();
        for (int i = 0; i < calls; ++i) f();
        const double ns = std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin).count() / calls;
        if (ns < least) least = ns;
    }
    printf("%-44s %8.0f ns %4ld questions\\n", name, least, questions);
}

int main() {
    static int32_t cu[] = {0, 8, 16};
    static char somewhere[64];
    kgen_fwd_params p = {};
    p.struct_size = sizeof p, p.flags = KGEN_FLAG_CAUSAL, p.batch = 2, p.num_heads = 32, p.num_heads_k = 8, p.head_dim = p.head_dim_v = 128;
    p.dtype = KGEN_DTYPE_BF16, p.seqlen_q = p.seqlen_k = 4096, p.softmax_scale = 0.1f, p.q = p.k = p.v = p.o = somewhere;
    p.q_row_stride = p.o_row_stride = 4096, p.k_row_stride = p.v_row_stride = 1024, p.q_head_stride = p.o_head_stride = p.k_head_stride = p.v_head_stride = 128;
    p.q_batch_stride = p.o_batch_stride = 4096 * 4096, p.k_batch_stride = p.v_batch_stride = 4096 * 1024;
    const auto fwd = [&] { return kgen_fwd(&p, nullptr); };
    const auto workspace = [&] { return kgen_fwd_workspace(&p) == size_t(-1); };
    // Another number of keys in each call: no choice is remembered.
    const auto anew = [&] { p.seqlen_k = 2048 + (p.seqlen_k + 1) % 2048; return kgen_fwd(&p, nullptr); };
    const auto both = [&](const char* name) {
        tell(name, fwd);
        tell("    with other lengths each time", anew);
    };
    both("kgen_fwd, 4096 queries");
    tell("kgen_fwd_workspace", workspace);
    kgen_bwd_params b = {};
    b.struct_size = sizeof b, b.flags = p.flags, b.batch = 2, b.num_heads = 32, b.num_heads_k = 8, b.head_dim = b.head_dim_v = 128, b.dtype = p.dtype;
    b.seqlen_q = b.seqlen_k = 4096, b.softmax_scale = 0.1f;
    tell("kgen_bwd", [&] { return kgen_bwd(&b, nullptr); });
    p.seqlen_q = 1, p.flags = 0, p.workspace = somewhere, p.workspace_bytes = size_t(1) << 40;
    both("kgen_fwd, 1 query, splits weighed");
    p.seqused_k = cu;
    both("the same, lengths on the device");
    p.flags = KGEN_FLAG_CAUSAL, p.page_table = cu, p.page_table_stride = 256, p.page_size = 16, p.num_pages = 512;
    p.cu_seqlens_q = cu, p.seqlen_q = 1, p.total_q = 2;
    both("pages, 1 query each");
    p.batch = 64, p.seqlen_q = 512, p.total_q = 575;
    both("pages, queries mixed");
    p.num_splits = 32;
    both("the same, num_splits 32");
    return 0;
}
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("generated", type=pathlib.Path, help="a folder of `kgen generate`")
    parser.add_argument("--only", default="", help="kernels whose names contain this")
    args = parser.parse_args()
    text = (args.generated / "kgen_dispatch.cpp").read_text()
    rows = re.findall(r"^ *KERNEL\((\w+), (\w+), ([01]), .*$", text, re.M)
    kept = [row for row in rows if args.only in row[0] or "combine" in row[0] or "scheduler" in row[0]]
    for row in rows:
        if row not in kept:
            text = re.sub(rf"^ *KERNEL\({row[0]}, .*\n", "", text, flags=re.M)
    stubs = "".join(
        f"int {name}(const {params}*, cudaStream_t) {{ return 0; }}\n"
        + (f"size_t {name}_workspace(const {params}*) {{ return 0; }}\n" if workspace == "1" else "")
        for name, params, workspace in kept
    )
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "kgen").mkdir()
        (folder / "cuda_runtime_api.h").write_text(CUDA)
        (folder / "kgen" / "launch.cuh").write_text(LAUNCH)
        (folder / "dispatch.cpp").write_text(text)
        (folder / "main.cpp").write_text(MAIN + 'extern "C" {\n' + stubs + "}\n")
        include = [f"-I{folder}", f"-I{args.generated / 'include'}"]
        program = folder / "program"
        sources = [folder / "dispatch.cpp", folder / "main.cpp"]
        subprocess.run(["c++", "-std=c++17", "-O2", *include, *sources, "-o", program], check=True)
        print(f"{len(kept)} kernels", flush=True)
        return subprocess.run([program], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
