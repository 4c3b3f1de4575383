// Prints for each input line whether kgen/features.cuh accepts a kernel for a request (1 or 0). The fields of a line:
// the request's flags, window, chunk, softcap, whether slopes, sinks, a page table (2: with descale factors per page
// for K, 3: for V), qv, a cache, new rows and a bias are passed, kv_dtype, and the kernel's features.
#include <stdio.h>

#include "kgen/features.cuh"

int main() {
    kgen_fwd_params p = {};
    kgen_attention_features& f = p.features;
    static float somewhere[1];
    static int32_t table[1];
    int slopes, sinks, paged, qv, cached, fresh, biased;
    uint32_t held;
    while (scanf("%x %d %d %d %f %d %d %d %d %d %d %d %d %x", &p.flags, &f.window_left, &f.window_right, &f.attention_chunk, &f.softcap, &slopes, &sinks, &paged, &qv, &cached, &fresh, &biased, &p.kv_dtype, &held) == 14) {
        f.alibi_slopes = slopes != 0 ? somewhere : nullptr;
        f.sinks = sinks != 0 ? somewhere : nullptr;
        f.sinks_dtype = KGEN_DTYPE_FP32;
        p.leftpad_k = cached != 0 ? table : nullptr;
        p.page_table = paged != 0 ? table : nullptr;
        p.k_page_descale = paged == 2 ? somewhere : nullptr;
        p.v_page_descale = paged == 3 ? somewhere : nullptr;
        p.qv = qv != 0 ? table : nullptr;
        p.bias = biased != 0 ? somewhere : nullptr;
        p.k_new = fresh != 0 ? table : nullptr;
        if (kgen::read_features(p, "serves") != KGEN_SUCCESS) return 1;
        puts(kgen::serves_features(kgen::asked_features(p), held) ? "1" : "0");
    }
    return 0;
}
