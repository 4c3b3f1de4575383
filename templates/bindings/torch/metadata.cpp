#include "metadata.h"

#include "aten.h"
#include "errors.h"

namespace kgen_torch {

namespace {

constexpr int64_t COUNTS = 4;  // index of the first sequence's count

// Index of the first counter of row tiles.
int64_t first_arrival(int64_t batch) { return COUNTS + (batch + 3) / 4 * 4; }

}  // namespace

int64_t metadata_length(int64_t batch) { return first_arrival(batch) + (batch > 0 ? 3 * ((batch + 3) / 4 * 4) - COUNTS : 0); }

Tensor make_metadata(kgen_fwd_params& p, const device_scope& device) {
    constexpr const char* op = "_vllm_fa3_C.get_scheduler_metadata";
    const Tensor made = device.allocate({metadata_length(p.batch)}, ScalarType::Int);
    aten::fill(made, 0);
    p.split_counts = static_cast<int32_t*>(made.data_ptr()) + COUNTS;
    int code = kgen_fwd_metadata(&p, device.stream());
    if (code == KGEN_ERROR_NO_VARIANT && p.dtype == KGEN_DTYPE_FP8_E4M3) {
        p.dtype = KGEN_DTYPE_BF16, p.kv_dtype = KGEN_DTYPE_FP8_E4M3;  // as `fwd` will do: widen.h
        code = kgen_fwd_metadata(&p, device.stream());
    }
    if (code == KGEN_ERROR_NO_VARIANT && p.head_dim_v > p.head_dim) {
        p.qv = p.seqused_k;  // DeepSeek MLA: `fwd` will get a `q_v` that is not an argument here; not read
        code = kgen_fwd_metadata(&p, device.stream());
    }
    if (code == KGEN_ERROR_NO_VARIANT) aten::fill(aten::part(made, COUNTS, p.batch), 1);
    else require_success(code, op);
    return made;
}

void enter_metadata(kgen_fwd_params& p, const view& q, const std::optional<Tensor>& metadata) {
    if (!metadata) return;
    const view given(q.op, "scheduler_metadata", *metadata);
    given.require_dtype({ScalarType::Int});
    given.require_shape({metadata_length(p.batch)});
    given.require_contiguous();
    given.require_device_of(q);
    int32_t* words = given.data_as<int32_t>();
    p.work_counter = reinterpret_cast<uint32_t*>(words);
    p.split_counts = words + COUNTS;
    p.arrivals = reinterpret_cast<uint32_t*>(words + first_arrival(p.batch));
    p.arrivals_count = metadata_length(p.batch) - first_arrival(p.batch);
}

}  // namespace kgen_torch
