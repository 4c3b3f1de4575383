// Features that a call requests: reading them, checking them, and matching them with kernels. For the host compiler as
// well as nvcc.
#pragma once

#include <stdint.h>

#include "kgen.h"
#include "kgen/launch.cuh"

namespace kgen {

// A feature of kernels.
struct feature_row {
    uint32_t bit;         // KGEN_FEATURE_*
    const char* name;     // in messages
    const char* missing;  // what a call without it lacks, if kernels serve only calls with it; otherwise nullptr
    bool positions;       // its kernels compute the positions of rows and keys
};

// Every feature, by bit. src/kernel/features.rs has the same table, which a test compares.
constexpr feature_row FEATURE_ROWS[] = {
    {KGEN_FEATURE_CAUSAL, "causal", "KGEN_FLAG_CAUSAL", false},
    {KGEN_FEATURE_WINDOW, "window", nullptr, true},
    {KGEN_FEATURE_CHUNK, "chunk", nullptr, true},
    {KGEN_FEATURE_SOFTCAP, "softcap", nullptr, false},
    {KGEN_FEATURE_ALIBI, "alibi", nullptr, true},
    {KGEN_FEATURE_SINKS, "sinks", nullptr, false},
    {KGEN_FEATURE_PAGED, "paged", "a page_table", false},
    {KGEN_FEATURE_KV_E4M3, "kv_e4m3", "kv_dtype KGEN_DTYPE_FP8_E4M3", false},
    {KGEN_FEATURE_KV_E5M2, "kv_e5m2", "kv_dtype KGEN_DTYPE_FP8_E5M2", false},
    {KGEN_FEATURE_CACHE, "cache", nullptr, false},
    {KGEN_FEATURE_QV, "qv", "qv", false},
    {KGEN_FEATURE_PACKGQA, "packgqa", nullptr, false},
    {KGEN_FEATURE_PAGE_DESCALE, "page_descale", nullptr, false},
    {KGEN_FEATURE_APPEND, "append", "k_new", false},
    {KGEN_FEATURE_BIAS, "bias", nullptr, true},
    {KGEN_FEATURE_DROPOUT, "dropout", nullptr, false},
    {KGEN_FEATURE_LONG, "long", nullptr, false},
    {KGEN_FEATURE_M128, "m128", nullptr, false},
    {KGEN_FEATURE_SPLITKV, "splitkv", nullptr, false},
};

// The features that kernels cannot ignore: they serve only requests that use them.
constexpr uint32_t features_not_left_aside() {
    uint32_t features = 0;
    for (const feature_row& row : FEATURE_ROWS) features |= row.missing != nullptr ? row.bit : 0;
    return features;
}

// The features whose kernels compute the positions of rows and keys.
constexpr uint32_t features_with_positions() {
    uint32_t features = 0;
    for (const feature_row& row : FEATURE_ROWS) features |= row.positions ? row.bit : 0;
    return features;
}

constexpr uint32_t NOT_LEFT_ASIDE = features_not_left_aside();
constexpr uint32_t WITH_POSITIONS = features_with_positions();

// Flags that concern features.
constexpr uint32_t FEATURE_FLAGS = KGEN_FLAG_CAUSAL | KGEN_FLAG_WINDOW;

// A window side without limit: as many keys as a sequence may have in kernels with row positions. Larger numbers would
// overflow in `position - window_left`, which nvcc computes even if the preceding comparison rules it out.
constexpr int32_t NO_LIMIT = (1 << 30) - 1;

// Checks the fields of dropout.
template <class Params>
int check_dropout(const Params& p, const char* name) {
    if (p.reserved_5 != 0)
        return fail(KGEN_ERROR_UNSUPPORTED, "%s: params.reserved_5 is %d and must be 0", name, p.reserved_5);
    if (!(p.p_dropout >= 0.0f && p.p_dropout < 1.0f)) {
        return fail(KGEN_ERROR_INVALID_VALUE, "%s: p_dropout %g must be at least 0 and below 1", name,
                    static_cast<double>(p.p_dropout));
    }
    if (p.p_dropout == 0.0f || (p.rng_state != nullptr && reinterpret_cast<uintptr_t>(p.rng_state) % 8 == 0))
        return KGEN_SUCCESS;
    return fail(KGEN_ERROR_INVALID_VALUE, "%s: p_dropout is %g, and rng_state %p must be 8-byte aligned and not NULL",
                name, static_cast<double>(p.p_dropout), static_cast<const void*>(p.rng_state));
}

// Checks the documented ranges and brings masks into a canonical form: KGEN_FLAG_CAUSAL if the right side ends at the
// position, NO_LIMIT for a window side without limit, and no KGEN_FLAG_WINDOW if the other fields already express it.
template <class Params>
int read_features(Params& p, const char* name) {
    kgen_attention_features& f = p.features;
    const bool windowed = (p.flags & KGEN_FLAG_WINDOW) != 0;
    if (windowed && (f.window_left < -1 || f.window_right < -1)) {
        return fail(KGEN_ERROR_INVALID_VALUE,
                    "%s: window_left %d and window_right %d must be -1, for no limit, or more", name, f.window_left,
                    f.window_right);
    }
    if (f.attention_chunk < 0)
        return fail(KGEN_ERROR_INVALID_VALUE, "%s: attention_chunk %d must not be negative", name, f.attention_chunk);
    if (!(f.softcap >= 0.0f && f.softcap <= 3.402823466e38f)) {
        return fail(KGEN_ERROR_INVALID_VALUE, "%s: softcap %g must be finite and >= 0", name,
                    static_cast<double>(f.softcap));
    }
    if (f.sinks != nullptr && f.sinks_dtype != KGEN_DTYPE_FP32 && f.sinks_dtype != KGEN_DTYPE_BF16) {
        return fail(KGEN_ERROR_INVALID_VALUE, "%s: sinks_dtype %d must be KGEN_DTYPE_FP32 or KGEN_DTYPE_BF16", name,
                    f.sinks_dtype);
    }
    if (f.reserved != 0)
        return fail(KGEN_ERROR_UNSUPPORTED, "%s: features.reserved is %d and must be 0", name, f.reserved);
    if (const int code = check_dropout(p, name)) return code;
    if (windowed && f.window_right == 0) p.flags |= KGEN_FLAG_CAUSAL;
    const bool causal = (p.flags & KGEN_FLAG_CAUSAL) != 0;
    f.window_left = windowed && f.window_left >= 0 && f.window_left < NO_LIMIT ? f.window_left : NO_LIMIT;
    f.window_right = causal ? 0
                            : windowed && f.window_right >= 0 && f.window_right < NO_LIMIT ? f.window_right : NO_LIMIT;
    p.flags &= ~KGEN_FLAG_WINDOW;
    if (f.window_left != NO_LIMIT || (!causal && f.window_right != NO_LIMIT)) p.flags |= KGEN_FLAG_WINDOW;
    return KGEN_SUCCESS;
}

// Checks the fields of the bias, which is of type fp32 or of the type of O.
template <class Params>
int check_bias(const Params& p, const char* name) {
    if (p.reserved_4 != 0)
        return fail(KGEN_ERROR_UNSUPPORTED, "%s: params.reserved_4 is %d and must be 0", name, p.reserved_4);
    const int32_t own = p.dtype == KGEN_DTYPE_FP8_E4M3 ? KGEN_DTYPE_BF16 : p.dtype;
    if (p.bias == nullptr || p.bias_dtype == KGEN_DTYPE_FP32 || p.bias_dtype == own) return KGEN_SUCCESS;
    return fail(KGEN_ERROR_INVALID_VALUE, "%s: bias_dtype %d must be KGEN_DTYPE_FP32 or %d, the type of o", name,
                p.bias_dtype, own);
}

// Requested features other than masks and scores.
inline uint32_t asked_of_keys(const kgen_fwd_params& p) {
    return (p.page_table != nullptr ? KGEN_FEATURE_PAGED : 0) |
           (p.kv_dtype == KGEN_DTYPE_FP8_E4M3 ? KGEN_FEATURE_KV_E4M3 : 0) |
           (p.kv_dtype == KGEN_DTYPE_FP8_E5M2 ? KGEN_FEATURE_KV_E5M2 : 0) |
           (p.cache_batch_idx != nullptr || p.leftpad_k != nullptr ? KGEN_FEATURE_CACHE : 0) |
           (p.qv != nullptr ? KGEN_FEATURE_QV : 0) |
           (p.k_page_descale != nullptr || p.v_page_descale != nullptr ? KGEN_FEATURE_PAGE_DESCALE : 0) |
           (p.k_new != nullptr ? KGEN_FEATURE_APPEND : 0);
}
inline uint32_t asked_of_keys(const kgen_bwd_params&) { return 0; }

// Refuses cache fields together with another layout of K and V (cu_seqlens_k or a page table).
inline int refuse_two_places(const kgen_fwd_params& p, const char* name) {
    if ((p.cache_batch_idx == nullptr && p.leftpad_k == nullptr) ||
        (p.cu_seqlens_k == nullptr && p.page_table == nullptr))
        return KGEN_SUCCESS;
    return fail(KGEN_ERROR_INVALID_VALUE,
                "%s: cache_batch_idx and leftpad_k must be NULL with cu_seqlens_k or a page_table", name);
}

// Refuses per-page factors unless K and V are FP8 in pages.
inline int refuse_stray_page_descales(const kgen_fwd_params& p, const char* name) {
    if ((p.k_page_descale == nullptr && p.v_page_descale == nullptr) || (p.page_table != nullptr && p.kv_dtype != 0))
        return KGEN_SUCCESS;
    return fail(KGEN_ERROR_INVALID_VALUE, "%s: k_page_descale and v_page_descale need a page_table and a kv_dtype",
                name);
}

// Calls `visit` with each pointer to a tensor of masks and scores.
template <class Params, class Visit>
void each_feature_tensor(Params& p, const Visit& visit) {
    visit(p.features.alibi_slopes), visit(p.features.sinks), visit(p.bias), visit(p.rng_state);
}

// The features that parameters request (KGEN_FEATURE_*), after read_features().
template <class Params>
uint32_t asked_features(const Params& p) {
    const kgen_attention_features& f = p.features;
    return ((p.flags & KGEN_FLAG_CAUSAL) != 0 ? KGEN_FEATURE_CAUSAL : 0) |
           ((p.flags & KGEN_FLAG_WINDOW) != 0 ? KGEN_FEATURE_WINDOW : 0) |
           (f.attention_chunk > 0 ? KGEN_FEATURE_CHUNK : 0) | (f.softcap > 0.0f ? KGEN_FEATURE_SOFTCAP : 0) |
           (f.alibi_slopes != nullptr ? KGEN_FEATURE_ALIBI : 0) | (f.sinks != nullptr ? KGEN_FEATURE_SINKS : 0) |
           (p.bias != nullptr ? KGEN_FEATURE_BIAS : 0) | (p.p_dropout > 0.0f ? KGEN_FEATURE_DROPOUT : 0) |
           asked_of_keys(p);
}

// The features of `asked` that a kernel with the features `held` lacks. A window includes a causal mask.
inline uint32_t lacking_features(uint32_t asked, uint32_t held) {
    return asked & ~(held | ((held & KGEN_FEATURE_WINDOW) != 0 ? KGEN_FEATURE_CAUSAL : 0));
}

// True if a kernel with the features `held` computes the request: it has every requested feature, applies no mask that
// is not requested, and reads K and V from pages if and only if they are paged.
inline bool serves_features(uint32_t asked, uint32_t held) {
    return lacking_features(asked, held) == 0 && (held & ~asked & NOT_LEFT_ASIDE) == 0;
}

// The missing parameter of a call, given the features `unasked` that a kernel requires and the call does not use.
inline const char* not_left_aside(uint32_t unasked) {
    for (const feature_row& row : FEATURE_ROWS) {
        if ((unasked & row.bit) != 0 && row.missing != nullptr) return row.missing;
    }
    return "unknown";
}

// Most keys that one query sees, as limited by windows and chunks, after read_features(); INT32_MAX: no limit.
inline int32_t most_keys_seen(const kgen_attention_features& f) {
    const bool windowed = f.window_left != NO_LIMIT && f.window_right != NO_LIMIT;
    const int64_t in_window = windowed ? static_cast<int64_t>(f.window_left) + f.window_right + 1 : INT32_MAX;
    const int64_t in_chunk = f.attention_chunk > 0 ? f.attention_chunk : INT32_MAX;
    const int64_t most = in_window < in_chunk ? in_window : in_chunk;
    return most < INT32_MAX ? static_cast<int32_t>(most) : INT32_MAX;
}

// The name of the first of a set of features.
inline const char* feature_name(uint32_t features) {
    for (const feature_row& row : FEATURE_ROWS) {
        if ((features & row.bit) != 0) return row.name;
    }
    return "unknown";
}

}  // namespace kgen
