// Tensor maps, on the emulator: the view itself instead of the driver's encoding.
#pragma once

#include "kgen/launch.cuh"
#include "kgen/emulator.h"
#include "kgen/tensor_view.cuh"

namespace kgen {

// Same size and alignment as the driver's.
struct alignas(64) tensor_map {
    emulator::tensor_map_contents contents;
};
static_assert(sizeof(tensor_map) == 128, "the size of a CUtensorMap");

// Makes the map of a tensor accepted by tma_takes(). `name` is the launcher, `tensor` its name for the tensor. Fails
// if the driver would.
inline int make_tensor_map(tensor_map& map, const tensor_view& view, const char* name, const char* tensor) {
    if (emulator::device_capability() < 90) {
        return fail(KGEN_ERROR_LAUNCH, "%s: cuTensorMapEncodeTiled refused %s: the device has no TMA (compute capability 9.0 and newer)", name, tensor);
    }
    char why[160];
    if (!tma_takes(view, why, sizeof why)) return fail(KGEN_ERROR_LAUNCH, "%s: cuTensorMapEncodeTiled refused %s: %s", name, tensor, why);
    emulator::tensor_map_contents& c = map.contents;
    c = {emulator::TENSOR_MAP_MARK, view.base, {}, {}, {}, static_cast<uint8_t>(view.rank), static_cast<uint8_t>(view.element_bytes),
         static_cast<uint8_t>(view.swizzle)};
    uint64_t strides[TMA_MAX_RANK] = {};
    tma_strides(view, strides);
    for (uint32_t i = 0; i < view.rank; ++i) {
        c.extents[i] = view.extents[i];
        c.strides[i] = strides[i];
        c.box[i] = static_cast<uint16_t>(view.box[i]);
    }
    return KGEN_SUCCESS;
}

}  // namespace kgen
