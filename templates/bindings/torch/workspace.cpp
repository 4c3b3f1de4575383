#include "workspace.h"

#include <cstring>

#include "numbers.h"

namespace kgen_torch {

namespace {

struct answer {
    kgen_fwd_params asked;  // the result of numbers_of(); struct_size is 0 before the first question
    int32_t device;
    size_t bytes;
};

}  // namespace

size_t workspace_of(const kgen_fwd_params& p, int32_t device) {
    if (p.head_dim != p.head_dim_v) return kgen_fwd_workspace(&p);  // addresses show that V is inside K
    thread_local answer last = {};
    const kgen_fwd_params asked = numbers_of(p);
    if (last.device != device || std::memcmp(&last.asked, &asked, sizeof asked) != 0) {
        last.bytes = kgen_fwd_workspace(&p);  // 0 if it is refused: kgen_fwd() then reports the reason
        std::memcpy(&last.asked, &asked, sizeof asked);
        last.device = device;
    }
    return last.bytes;
}

}  // namespace kgen_torch
