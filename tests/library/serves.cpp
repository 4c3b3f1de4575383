// Whether kgen/features.cuh finds that a kernel serves a request, for each line of the input: the request's flags,
// window, chunk, softcap, whether it has slopes and sinks, and the kernel's features. Prints 1 or 0.
#include <stdio.h>

#include "kgen/features.cuh"

int main() {
    kgen_fwd_params p = {};
    kgen_attention_features& f = p.features;
    static float somewhere[1];
    int slopes, sinks;
    uint32_t held;
    while (scanf("%x %d %d %d %f %d %d %x", &p.flags, &f.window_left, &f.window_right, &f.attention_chunk, &f.softcap, &slopes, &sinks, &held) == 8) {
        f.alibi_slopes = slopes != 0 ? somewhere : nullptr;
        f.sinks = sinks != 0 ? somewhere : nullptr;
        f.sinks_dtype = KGEN_DTYPE_FP32;
        if (kgen::read_features(p, "serves") != KGEN_SUCCESS) return 1;
        puts(kgen::serves_features(kgen::asked_features(p), held) ? "1" : "0");
    }
    return 0;
}
