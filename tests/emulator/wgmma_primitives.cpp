// Tests of warpgroup products (wgmma) on the emulator: their semantics, and the reports for kernels that misuse them.
// Exit status 1 if a statement is false. tests/faults compiles it together with the runtime.

#include <math.h>
#include <string.h>

#include "kgen/byte_tile.cuh"
#include "kgen/bytes.cuh"
#include "kgen/global.cuh"
#include "kgen/ldmatrix.cuh"
#include "kgen/math.cuh"
#include "kgen/mbarrier.cuh"
#include "kgen/quad.cuh"
#include "kgen/registers.cuh"
#include "kgen/shared.cuh"
#include "kgen/stmatrix.cuh"
#include "kgen/sync.cuh"
#include "kgen/tile.cuh"
#include "kgen/tma.cuh"
#include "kgen/transpose_bytes.cuh"
#include "kgen/wgmma.cuh"

KGEN_WGMMA_WIDTH(8)
KGEN_WGMMA_WIDTH(16)
KGEN_WGMMA_WIDTH(64)
KGEN_WGMMA_WIDTH(80)
KGEN_WGMMA_WIDTH(112)
KGEN_WGMMA_WIDTH(256)
KGEN_WGMMA_WIDTH_FP8(8)
KGEN_WGMMA_WIDTH_FP8(16)
KGEN_WGMMA_WIDTH_FP8(24)
KGEN_WGMMA_WIDTH_FP8(64)
KGEN_WGMMA_WIDTH_FP8(112)
KGEN_WGMMA_WIDTH_FP8(256)

#include "statements.hpp"

// The GPU header's primitives beside the emulator's. Only those without inline PTX are called.
#undef KGEN_WGMMA_WIDTH
#undef KGEN_WGMMA_WIDTH_FP8
#define kgen kgen_on_gpu
#include "../include/kgen/wgmma.cuh"
#undef kgen

namespace {

constexpr uint32_t WARPGROUP = 128;
constexpr uint32_t A_TILE = emulator::SHARED_BASE, B_TILE = A_TILE + 64 * 1024;
constexpr uint32_t BYTES = 192 * 1024;

#include "wgmma_operands.hpp"
#include "wgmma_products.hpp"
#include "wgmma_misuse.hpp"
#include "wgmma_order.hpp"
#include "wgmma_matrices.hpp"

}  // namespace

int main() {
    kgen_emulator_device(90);
    products();
    sums_of_fp8();
    misuse<bf16>();
    misuse<e4m3>();
    misuse_of_registers();
    misuse_of_any_element();
    groups();
    order();
    registers();
    stored_matrices();
    descriptors();
    transposed_bytes();
    stored_rows();
    printf("%d false\n", failures);
    return failures == 0 ? 0 : 1;
}
