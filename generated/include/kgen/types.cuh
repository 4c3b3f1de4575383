// The element types, as bit patterns with a name. CUDA's own half and bfloat16 headers cost half a CPU second
// of compile time a file, and nothing here does arithmetic on 16-bit values: the tensor cores do, and everything else is fp32.
#pragma once

#include <stdint.h>

namespace kgen {

struct fp16 {
    uint16_t bits;
};

struct bf16 {
    uint16_t bits;
};

static_assert(sizeof(fp16) == 2 && sizeof(bf16) == 2, "elements are 16 bits");

// Four 32-bit words moved at once.
struct alignas(16) words4 {
    uint32_t x, y, z, w;
};

}  // namespace kgen
