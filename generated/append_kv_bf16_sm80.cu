// append_kv_bf16_sm80
//
// Appends new rows of K and V of bf16 to a cache, and applies the rotary embedding to the new K and to Q, for
// compute capability 8.0 and newer.
//
// Threads process shares of rows (kgen/row_shares.cuh). A thread of the first blocks takes the same share of a row of K
// and of V, for 1 of the heads, so that their place in the cache is looked up once; a thread of the other blocks
// takes a share in 2 heads of Q, which have the same cosines.
// Each starts its loads of K, V or Q first: the lookup of their destinations is a chain of dependent loads and takes
// longer.
// Head dims, layouts and the cache's dtype are run-time parameters: the kernel is limited by memory, not by arithmetic.
//
// Made by kgen 0.1.0 from templates/append_kv/append_kv.cu.tera; edit that, not this. To compile this file alone:
//   nvcc -O3 -std=c++17 -gencode "arch=compute_80,code=[sm_80,compute_80]" -Iinclude -c append_kv_bf16_sm80.cu

#include "kgen.h"
#include "kgen/append_kv_params.cuh"
#include "kgen/divisor.cuh"
#include "kgen/floats.cuh"
#include "kgen/global.cuh"
#include "kgen/launch.cuh"
#include "kgen/platform.cuh"
#include "kgen/round_fp8.cuh"
#include "kgen/row_shares.cuh"
#include "kgen/types.cuh"

namespace {

using namespace kgen;

constexpr int THREADS = 128;
constexpr int MIN_BLOCKS_PER_SM = 7;
constexpr int PAIRS = 1;  // of rows, per thread: one of K and one of V, or two of Q
constexpr int QUERIES = 2 * PAIRS;

using element = bf16;

struct work {
    kgen_append_kv_params p;
    uint32_t kv_blocks;                   // the first blocks; the others take Q
    uint32_t blocks;
    int32_t kv_shares, q_shares;          // of all rows
    divisor kv_row_shares, q_row_shares;  // of one row
    divisor kv_groups, q_groups;          // of heads: a thread of group g has heads g, g + number of groups, ...
    divisor seqlen_new, seqlen_q;         // 1 if rows are packed
    divisor page_size;
    int32_t capacity;  // rows of a sequence that the cache can hold
};

// Four values of an FP8 dtype, the first in the lowest byte.
KGEN_DEVICE uint32_t narrow_to_bytes(float a, float b, float c, float d, int dtype) {
    if (dtype == KGEN_DTYPE_FP8_E4M3)
        return round_to_e4m3(a) | round_to_e4m3(b) << 8 | round_to_e4m3(c) << 16 | round_to_e4m3(d) << 24;
    return round_to_e5m2(a) | round_to_e5m2(b) << 8 | round_to_e5m2(c) << 16 | round_to_e5m2(d) << 24;
}

KGEN_DEVICE rotary_tables tables_of(const kgen_append_kv_params& p) {
    return {static_cast<const uint16_t*>(p.rotary_cos), static_cast<const uint16_t*>(p.rotary_sin), p.rotary_row_stride,
            (p.flags & KGEN_FLAG_ROTARY_INTERLEAVED) != 0};
}

// ── Rows

// A row of K, V or Q: row `row` of sequence `batch`. Packed rows after the last sequence's have batch -1.
struct place {
    int batch, row;
};

// `index` counts the rows of all sequences. The row belongs to the last sequence that begins at or before it; others
// that begin at the same row are empty.
KGEN_DEVICE place place_of(int index, const int32_t* cu_seqlens, int batch, const divisor& seqlen) {
    if (cu_seqlens == nullptr) {
        const int b = quotient(index, seqlen);
        return {b, index - b * static_cast<int>(seqlen.number)};
    }
    int low = 0, high = batch;
    while (low < high) {
        const int middle = (low + high) / 2;
        if (load_global(cu_seqlens + middle + 1) <= index) low = middle + 1;
        else high = middle;
    }
    if (low == batch) return {-1, 0};
    return {low, index - load_global(cu_seqlens + low)};
}

// Element offset of a row at its first head. For packed rows it does not depend on the search for the sequence.
KGEN_DEVICE int64_t row_offset(int index, const int32_t* cu_seqlens, const divisor& seqlen, int64_t batch_stride,
                               int64_t row_stride) {
    if (cu_seqlens != nullptr) return index * row_stride;
    const int b = quotient(index, seqlen);
    return b * batch_stride + (index - b * static_cast<int>(seqlen.number)) * row_stride;
}

// The position of a row for the rotation; -1: outside the tables.
KGEN_DEVICE int position_of(const kgen_append_kv_params& p, int index, const place& at, bool by_row) {
    int64_t position;
    if (p.positions != nullptr) {
        position = load_global(p.positions + index);
    } else {
        const int32_t* starts = p.seqlens_rotary != nullptr ? p.seqlens_rotary : p.cache_seqlens;
        position = static_cast<int64_t>(load_global(starts + at.batch)) + (by_row ? at.row : 0);
    }
    return 0 <= position && position < p.rotary_rows ? static_cast<int>(position) : -1;
}

// A row of the cache; page -1: none.
struct destination {
    int page, row;
};

KGEN_DEVICE destination destination_of(const work& w, int index, const place& at) {
    const kgen_append_kv_params& p = w.p;
    if (p.slot_mapping != nullptr) {
        const int64_t slot = load_global(p.slot_mapping + index);
        if (slot < 0 || slot >= w.capacity) return {-1, 0};
        const int page = quotient(static_cast<int>(slot), w.page_size);
        return {page, static_cast<int>(slot) - page * p.page_size};
    }
    const int length = load_global(p.cache_seqlens + at.batch);
    const int64_t row = static_cast<int64_t>(length) + at.row;
    if (length < 0 || row >= w.capacity) return {-1, 0};
    destination to = {at.batch, static_cast<int>(row)};
    if (p.page_table != nullptr) {
        const int entry = quotient(to.row, w.page_size);
        to = {load_global(p.page_table + at.batch * p.page_table_stride + entry), to.row - entry * p.page_size};
    } else if (p.cache_batch_idx != nullptr) {
        to.page = load_global(p.cache_batch_idx + at.batch);
    }
    return 0 <= to.page && to.page < p.num_pages ? to : destination{-1, 0};
}

// ── K and V

struct cache_tensor {
    void* base;
    int64_t page_stride, row_stride, head_stride;
};

// The factor of a head; 1 if the caller gave none, or the cache is not FP8.
KGEN_DEVICE float descale_of(const kgen_append_kv_params& p, const float* factors, int64_t at) {
    return factors == nullptr || p.cache_dtype == p.dtype ? 1.0f : load_global(factors + at);
}

// Stores a share of a row of K or V.
template <bool PIECES>
KGEN_DEVICE void store_in_cache(const kgen_append_kv_params& p, const cache_tensor& cache, const destination& to,
                                int head, const share& s, const held& h, const angles& by, float descale) {
    const int64_t row = to.page * cache.page_stride + to.row * cache.row_stride + head * cache.head_stride;
    const bool interleaved = (p.flags & KGEN_FLAG_ROTARY_INTERLEAVED) != 0;
    if (p.cache_dtype == p.dtype) {
        store_share<PIECES>(static_cast<uint16_t*>(cache.base) + row, s, rotated<element>(h, s, by, interleaved));
    } else {
        const auto narrow = [&](float a, float b, float c, float d) {
            return narrow_to_bytes(a, b, c, d, p.cache_dtype);
        };
        store_share_as_bytes<element, PIECES>(static_cast<uint8_t*>(cache.base) + row, s, h, by, interleaved,
                                              1.0f / descale, narrow);
    }
}

template <bool PIECES>
KGEN_DEVICE void append_rows(const work& w, int number) {
    if (number >= w.kv_shares) return;
    const kgen_append_kv_params& p = w.p;
    const int row_and_group = quotient(number, w.kv_row_shares),
        part = number - row_and_group * static_cast<int>(w.kv_row_shares.number);
    const int groups = static_cast<int>(w.kv_groups.number);
    const int index = quotient(row_and_group, w.kv_groups), group = row_and_group - index * groups;
    const share of_k = share_of(part, p.rotary_dim / 16, p.head_dim / 8), of_v = share_of(part, 0, p.head_dim_v / 8);

    const auto* k_row = static_cast<const uint16_t*>(p.k) +
                        row_offset(index, p.cu_seqlens_new, w.seqlen_new, p.k_batch_stride, p.k_row_stride);
    const auto* v_row = static_cast<const uint16_t*>(p.v) +
                        row_offset(index, p.cu_seqlens_new, w.seqlen_new, p.v_batch_stride, p.v_row_stride);
    held k[PAIRS], v[PAIRS];
    KGEN_UNROLL
    for (int i = 0; i < PAIRS; ++i) {
        const int head = group + i * groups;
        if (head >= p.num_heads_k) continue;
        k[i] = load_share<PIECES>(k_row + head * p.k_head_stride, of_k);
        v[i] = load_share<PIECES>(v_row + head * p.v_head_stride, of_v);
    }

    const place at = place_of(index, p.cu_seqlens_new, p.batch, w.seqlen_new);
    if (at.batch < 0) return;
    const int position = p.rotary_dim == 0 ? 0 : position_of(p, index, at, true);
    if (position < 0) return;
    float k_descale[PAIRS] = {}, v_descale[PAIRS] = {};
    const auto load_descales = [&](int entry) {
        KGEN_UNROLL
        for (int i = 0; i < PAIRS; ++i) {
            const int head = min(group + i * groups, p.num_heads_k - 1);
            k_descale[i] = descale_of(p, p.k_descale,
                                      entry * p.k_descale_batch_stride + head * p.k_descale_head_stride);
            v_descale[i] = descale_of(p, p.v_descale,
                                      entry * p.v_descale_batch_stride + head * p.v_descale_head_stride);
        }
    };
    // Loads that depend on the length, or on nothing, are issued before the load of the page table: only the stores,
    // and per-page factors, depend on the table.
    const bool by_page = (p.flags & KGEN_FLAG_DESCALE_BY_PAGE) != 0;
    if (!by_page) load_descales(at.batch);
    angles by = { {0, 0, 0, 0}, {0, 0, 0, 0} };
    if (of_k.rotates) by = load_angles<PIECES>(tables_of(p), position, of_k);
    const destination to = destination_of(w, index, at);
    if (to.page < 0) return;
    if (by_page) load_descales(to.page);
    const cache_tensor k_cache = {p.k_cache, p.k_cache_page_stride, p.k_cache_row_stride, p.k_cache_head_stride};
    const cache_tensor v_cache = {p.v_cache, p.v_cache_page_stride, p.v_cache_row_stride, p.v_cache_head_stride};
    KGEN_UNROLL
    for (int i = 0; i < PAIRS; ++i) {
        const int head = group + i * groups;
        if (head >= p.num_heads_k) continue;
        store_in_cache<PIECES>(p, k_cache, to, head, of_k, k[i], by, k_descale[i]);
        store_in_cache<PIECES>(p, v_cache, to, head, of_v, v[i], by, v_descale[i]);
    }
}

// ── Q

template <bool PIECES>
KGEN_DEVICE void rotate_queries(const work& w, int number) {
    if (number >= w.q_shares) return;
    const kgen_append_kv_params& p = w.p;
    const int row_and_group = quotient(number, w.q_row_shares),
        part = number - row_and_group * static_cast<int>(w.q_row_shares.number);
    const int groups = static_cast<int>(w.q_groups.number);
    const int index = quotient(row_and_group, w.q_groups), group = row_and_group - index * groups;
    const share s = share_of(part, p.rotary_dim / 16, p.head_dim / 8);

    const auto* row = static_cast<const uint16_t*>(p.q) +
                      row_offset(index, p.cu_seqlens_q, w.seqlen_q, p.q_batch_stride, p.q_row_stride);
    held q[QUERIES];
    KGEN_UNROLL
    for (int i = 0; i < QUERIES; ++i) {
        const int head = group + i * groups;
        if (head < p.num_heads) q[i] = load_share<PIECES, true>(row + head * p.q_head_stride, s);
    }

    const place at = place_of(index, p.cu_seqlens_q, p.batch, w.seqlen_q);
    if (at.batch < 0) return;
    const int position = position_of(p, index, at, (p.flags & (KGEN_FLAG_CAUSAL | KGEN_FLAG_WINDOW)) != 0);
    if (position < 0) return;
    angles by = { {0, 0, 0, 0}, {0, 0, 0, 0} };
    if (s.rotates) by = load_angles<PIECES>(tables_of(p), position, s);
    auto* out = static_cast<uint16_t*>(p.q_out) +
                row_offset(index, p.cu_seqlens_q, w.seqlen_q, p.q_out_batch_stride, p.q_out_row_stride);
    KGEN_UNROLL
    for (int i = 0; i < QUERIES; ++i) {
        const int head = group + i * groups;
        if (head >= p.num_heads) continue;
        store_share<PIECES>(out + head * p.q_out_head_stride, s,
                            rotated<element>(q[i], s, by, (p.flags & KGEN_FLAG_ROTARY_INTERLEAVED) != 0));
    }
}

// ── Lengths

// Writes seqlens_after: each thread writes the lengths of some sequences.
KGEN_DEVICE void tell_lengths(const work& w, int number) {
    const kgen_append_kv_params& p = w.p;
    for (int batch = number; batch < p.batch; batch += static_cast<int>(w.blocks) * THREADS) {
        const int before = load_global(p.cache_seqlens + batch);
        const int fresh = p.cu_seqlens_new == nullptr
                              ? p.seqlen_new
                              : load_global(p.cu_seqlens_new + batch + 1) - load_global(p.cu_seqlens_new + batch);
        const int64_t after = before < 0 ? 0 : static_cast<int64_t>(before) + fresh;
        store_global(p.seqlens_after + batch, after < w.capacity ? static_cast<int32_t>(after) : w.capacity);
    }
}

template <bool PIECES>
KGEN_KERNEL(THREADS, MIN_BLOCKS_PER_SM) append(KGEN_PARAMETER work w) {
    const uint32_t block = block_index();
    if (w.p.seqlens_after != nullptr) tell_lengths(w, static_cast<int>(block * THREADS + thread_index()));
    if (block < w.kv_blocks) append_rows<PIECES>(w, static_cast<int>(block * THREADS + thread_index()));
    else rotate_queries<PIECES>(w, static_cast<int>((block - w.kv_blocks) * THREADS + thread_index()));
}

int32_t up(int64_t amount, int64_t unit) { return static_cast<int32_t>((amount + unit - 1) / unit); }

}  // namespace

extern "C" int append_kv_bf16_sm80(const kgen_append_kv_params* given, cudaStream_t stream) {
    constexpr const char* self = "append_kv_bf16_sm80";
    work w = {};
    kgen_append_kv_params& p = w.p;
    if (const int code = check_append_kv_params(given, KGEN_DTYPE_BF16, "bf16", self, p)) return code;
    const int64_t rows = rows_to_append(p), queries = query_rows(p);
    // Shares of a row: half the number of its pieces.
    const int32_t longest = p.head_dim > p.head_dim_v ? p.head_dim : p.head_dim_v;
    const int32_t kv_row_shares = up(longest, 16), q_row_shares = up(p.head_dim, 16);
    const int32_t kv_groups = up(p.num_heads_k, PAIRS), q_groups = queries > 0 ? up(p.num_heads, QUERIES) : 1;
    if (const int code = check_shares(rows, kv_groups, kv_row_shares, self)) return code;
    if (const int code = check_shares(queries, q_groups, q_row_shares, self)) return code;
    w.kv_shares = static_cast<int32_t>(rows * kv_groups * kv_row_shares);
    w.q_shares = static_cast<int32_t>(queries * q_groups * q_row_shares);
    w.kv_row_shares = make_divisor(kv_row_shares);
    w.q_row_shares = make_divisor(q_row_shares);
    w.kv_groups = make_divisor(kv_groups);
    w.q_groups = make_divisor(q_groups);
    w.seqlen_new = make_divisor(p.cu_seqlens_new == nullptr && rows > 0 ? p.seqlen_new : 1);
    w.seqlen_q = make_divisor(p.cu_seqlens_q == nullptr && queries > 0 ? p.seqlen_q : 1);
    if (rows > 0 || p.seqlens_after != nullptr) {
        w.page_size = make_divisor(p.page_size);
        w.capacity = append_capacity(p);
    }
    w.kv_blocks = static_cast<uint32_t>(up(w.kv_shares, THREADS));
    w.blocks = w.kv_blocks + static_cast<uint32_t>(up(w.q_shares, THREADS));
    if (w.blocks == 0 && p.seqlens_after != nullptr && p.batch > 0) w.blocks = 1;
    const auto kernel = append_is_aligned(p) ? append<true> : append<false>;
    return launch(kernel, self, w.blocks, THREADS, 0, w, stream);
}
