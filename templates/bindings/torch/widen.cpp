#include "widen.h"

#include "aten.h"

namespace kgen_torch {

widened widen_queries(kgen_fwd_params& p, const view& q, const std::optional<Tensor>& q_descale, const std::optional<Tensor>& k_descale, const device_scope& device) {
    const bool packed = q.rank == 3;
    widened made = {packed ? device.allocate({q.size(0), q.size(1), q.size(2)}, ScalarType::BFloat16)
                           : device.allocate({q.size(0), q.size(1), q.size(2), q.size(3)}, ScalarType::BFloat16),
                    std::nullopt};
    aten::copy(*q.tensor, made.q);
    p.q = made.q.data_ptr();
    p.q_head_stride = q.size(-1);
    p.q_row_stride = q.size(-2) * q.size(-1);
    p.q_batch_stride = packed ? 0 : q.size(1) * p.q_row_stride;
    p.dtype = KGEN_DTYPE_BF16;
    p.kv_dtype = KGEN_DTYPE_FP8_E4M3;
    if (q_descale) {
        made.k_descale = device.allocate({p.batch, p.num_heads_k}, ScalarType::Float);
        if (k_descale) aten::multiply(*q_descale, *k_descale, *made.k_descale);
        else aten::copy(*q_descale, *made.k_descale);
        p.k_descale = static_cast<const float*>(made.k_descale->data_ptr());
        p.k_descale_batch_stride = p.num_heads_k, p.k_descale_head_stride = 1;
    }
    p.q_descale = nullptr;
    p.q_descale_batch_stride = p.q_descale_head_stride = 0;
    return made;
}

}  // namespace kgen_torch
