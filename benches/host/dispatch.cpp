// Times the generated dispatcher on a device whose queries are counted, for benches/host.py. Prints a line for each
// request: its name, the queries per call, and microseconds per call by round, separated by tabs.
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
    if (const int code = f()) fprintf(stderr, "%s: code %d: %s\n", name, code, kgen_last_error());
    asked = 0;
    f();
    printf("%s\t%ld", name, asked);
    for (int round = 0; round < 40; ++round) {
        const int calls = 500;
        const auto begin = std::chrono::steady_clock::now();
        for (int i = 0; i < calls; ++i) f();
        const std::chrono::duration<double, std::micro> taken = std::chrono::steady_clock::now() - begin;
        printf("\t%.3f", taken.count() / calls);
    }
    printf("\n");
}

extern "C" {
#include "stubs.inc"
}

int main() {
    static int32_t cu[] = {0, 8, 16};
    static char somewhere[64];
    kgen_fwd_params p = {};
    p.struct_size = sizeof p, p.flags = KGEN_FLAG_CAUSAL, p.batch = 2, p.num_heads = 32, p.num_heads_k = 8,
        p.head_dim = p.head_dim_v = 128;
    p.dtype = KGEN_DTYPE_BF16, p.seqlen_q = p.seqlen_k = 4096, p.softmax_scale = 0.1f,
        p.q = p.k = p.v = p.o = somewhere;
    p.q_row_stride = p.o_row_stride = 4096, p.k_row_stride = p.v_row_stride = 1024,
        p.q_head_stride = p.o_head_stride = p.k_head_stride = p.v_head_stride = 128;
    p.q_batch_stride = p.o_batch_stride = 4096 * 4096, p.k_batch_stride = p.v_batch_stride = 4096 * 1024;
    const auto fwd = [&] { return kgen_fwd(&p, nullptr); };
    const auto workspace = [&] { return kgen_fwd_workspace(&p) == size_t(-1); };
    // Another number of keys in each call: no choice is remembered.
    const auto anew = [&] { p.seqlen_k = 2048 + (p.seqlen_k + 1) % 2048; return kgen_fwd(&p, nullptr); };
    const auto both = [&](const char* name) {
        tell(name, fwd);
        char longer[80];
        snprintf(longer, sizeof longer, "%s, other lengths each time", name);
        tell(longer, anew);
    };
    both("kgen_fwd, 4096 queries");
    tell("kgen_fwd_workspace", workspace);
    kgen_bwd_params b = {};
    b.struct_size = sizeof b, b.flags = p.flags, b.batch = 2, b.num_heads = 32, b.num_heads_k = 8,
        b.head_dim = b.head_dim_v = 128, b.dtype = p.dtype;
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
