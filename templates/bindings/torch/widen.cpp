#include "widen.h"

#include <cstring>
#include <limits>

#include "aten.h"
#include "numbers.h"

namespace kgen_torch {

namespace {

constexpr int CONVERTING_LAUNCHES = 2;  // of the queries and of the factors

struct answer {
    kgen_fwd_params asked;  // the result of numbers_of(); struct_size is 0 before the first question
    int32_t device;
    bool faster;
};

struct predicted {
    double all_ns;
    double launch_ns;  // of the kernel that computes attention
};

// The time of the path that the library takes with unlimited workspace; infinite if it has none.
predicted predict(kgen_fwd_params p) {
    p.workspace = p.o, p.workspace_bytes = std::numeric_limits<int64_t>::max();  // nothing is launched
    kgen_candidate rows[KGEN_MOST_CANDIDATES];
    kgen_choice choice = {};
    choice.struct_size = sizeof choice, choice.candidate_size = sizeof *rows;
    choice.candidates = rows, choice.capacity = KGEN_MOST_CANDIDATES;
    if (kgen_explain_choice(&p, &choice) != KGEN_SUCCESS || choice.chosen < 0) return {std::numeric_limits<double>::infinity(), 0};
    return {rows[choice.chosen].predicted_ns, rows[choice.chosen].launch_ns};
}

// Changes a request to bf16 queries.
void ask_for_bf16_queries(kgen_fwd_params& p) {
    p.dtype = KGEN_DTYPE_BF16;
    p.kv_dtype = KGEN_DTYPE_FP8_E4M3;
    p.q_descale = nullptr;
    p.q_descale_batch_stride = p.q_descale_head_stride = 0;
}

}  // namespace

bool is_faster_widened(const kgen_fwd_params& p, int32_t device) {
    thread_local answer last = {};
    const kgen_fwd_params asked = numbers_of(p);
    if (last.device != device || std::memcmp(&last.asked, &asked, sizeof asked) != 0) {
        kgen_fwd_params wide = p;
        ask_for_bf16_queries(wide);
        const predicted as_given = predict(p), widened = predict(wide);
        last.faster = widened.all_ns + CONVERTING_LAUNCHES * widened.launch_ns < as_given.all_ns;
        std::memcpy(&last.asked, &asked, sizeof asked);
        last.device = device;
    }
    return last.faster;
}

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
    ask_for_bf16_queries(p);
    if (q_descale) {
        made.k_descale = device.allocate({p.batch, p.num_heads_k}, ScalarType::Float);
        if (k_descale) aten::multiply(*q_descale, *k_descale, *made.k_descale);
        else aten::copy(*q_descale, *made.k_descale);
        p.k_descale = static_cast<const float*>(made.k_descale->data_ptr());
        p.k_descale_batch_stride = p.num_heads_k, p.k_descale_head_stride = 1;
    }
    return made;
}

}  // namespace kgen_torch
