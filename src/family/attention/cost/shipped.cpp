// The functions of kgen/path_cost.cuh as kgen's own program calls them; shipped.rs declares the structures again.
#include <stddef.h>

#include "kgen/path_cost.cuh"

extern "C" void kgen_cost_time(const kgen::request_cost* request, const kgen::kernel_cost* kernel,
                               const kgen::device_cost* device, const kgen::sharing* shares, kgen::kernel_time* time) {
    *time = kgen::time_of(*request, *kernel, *device, *shares);
}

extern "C" double kgen_cost_total(const kgen::kernel_time* time) { return time->total(); }

// Bytes of the structures, in the order of the arguments of kgen_cost_time.
extern "C" void kgen_cost_sizes(size_t sizes[5]) {
    sizes[0] = sizeof(kgen::request_cost), sizes[1] = sizeof(kgen::kernel_cost), sizes[2] = sizeof(kgen::device_cost);
    sizes[3] = sizeof(kgen::sharing), sizes[4] = sizeof(kgen::kernel_time);
}
