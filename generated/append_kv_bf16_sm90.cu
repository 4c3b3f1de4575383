// append_kv_bf16_sm90
//
// Appends new rows of K and V of bf16 to a cache, and applies the rotary embedding to the new K and to Q, for
// compute capability 9.0.
//
// A row is cut into pieces of 8 elements. A thread has a share of two pieces, which the rotation pairs: pieces j and
// j + rotary_dim / 16 of a row, with one piece each of cosines and sines, whether pairs of columns are interleaved or
// not. A thread of the first blocks takes the same share of a row of K and of V, for 1 of the heads, so that their
// place in the cache is looked up once; one of the other blocks takes it of 2 heads of Q, which share their cosines.
// Each starts its loads of K, V or Q first: looking up where they go is a chain of dependent loads, and takes longer. Blocks get ready while those of the kernel before still run.
// Head dims, layouts and the cache's dtype are given at run time: the kernel waits for memory, not for arithmetic.
//
// Made by kgen 0.1.0 from templates/append_kv/append_kv.cu.tera; edit that, not this. To compile this file alone:
//   nvcc -O3 -std=c++17 -gencode arch=compute_90a,code=sm_90a -Iinclude -c append_kv_bf16_sm90.cu

#include "kgen.h"
#include "kgen/append_kv_params.cuh"
#include "kgen/atomics.cuh"
#include "kgen/bytes.cuh"
#include "kgen/divisor.cuh"
#include "kgen/elements.cuh"
#include "kgen/global.cuh"
#include "kgen/grid_order.cuh"
#include "kgen/launch.cuh"
#include "kgen/math.cuh"

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
    int32_t kv_shares, q_shares;          // of all rows
    divisor kv_row_shares, q_row_shares;  // of one row
    divisor kv_groups, q_groups;          // of heads: head g of each is a thread's first one, and those after it are as far apart
    divisor seqlen_new, seqlen_q;         // 1 where rows are packed
    divisor page_size;
    int32_t capacity;  // rows of a sequence that the cache has a place for
};

// ── Shares of rows

// Two pieces of a row; -1: none.
struct share {
    int first, second;
    bool rotates;
};

// The pieces that `turned` shares rotate come first; what is left of `pieces` is copied, in two halves too, so that
// threads side by side always have pieces side by side.
KGEN_DEVICE share share_of(int index, int turned, int pieces) {
    if (index < turned) return {index, index + turned, true};
    const int half = (pieces - 2 * turned + 1) / 2, first = index + turned;
    if (first >= 2 * turned + half) return {-1, -1, false};
    return {first, first + half < pieces ? first + half : -1, false};
}

// A share of a row of K, V or Q, as it is in memory.
struct held {
    words4 first, second;
};

// 8 elements. PIECES: tensors are aligned to 16 bytes. WRITTEN: this launch writes there too, as Q is in place.
template <bool PIECES, bool WRITTEN = false>
KGEN_DEVICE words4 load_piece(const uint16_t* from) {
    if constexpr (PIECES) {
        if constexpr (WRITTEN) return load_written(reinterpret_cast<const words4*>(from));
        else return load_global(reinterpret_cast<const words4*>(from));
    } else {
        uint32_t words[4] = {0, 0, 0, 0};
        KGEN_UNROLL
        for (int i = 0; i < 8; ++i) words[i / 2] |= static_cast<uint32_t>(WRITTEN ? load_written(from + i) : load_global(from + i)) << (i % 2 * 16);
        return {words[0], words[1], words[2], words[3]};
    }
}

template <bool PIECES, bool WRITTEN = false>
KGEN_DEVICE held load_share(const uint16_t* row, const share& s) {
    held h = { {0, 0, 0, 0}, {0, 0, 0, 0} };
    if (s.first >= 0) h.first = load_piece<PIECES, WRITTEN>(row + s.first * 8);
    if (s.second >= 0) h.second = load_piece<PIECES, WRITTEN>(row + s.second * 8);
    return h;
}

template <bool PIECES>
KGEN_DEVICE void store_piece(uint16_t* to, const words4& piece) {
    if constexpr (PIECES) {
        store_global(static_cast<void*>(to), piece);
    } else {
        const uint32_t words[4] = {piece.x, piece.y, piece.z, piece.w};
        KGEN_UNROLL
        for (int i = 0; i < 8; ++i) store_element(to + i, static_cast<uint16_t>(words[i / 2] >> (i % 2 * 16)));
    }
}

KGEN_DEVICE void widen(const words4& piece, float (&values)[8]) {
    unpack<element>(piece.x, values[0], values[1]);
    unpack<element>(piece.y, values[2], values[3]);
    unpack<element>(piece.z, values[4], values[5]);
    unpack<element>(piece.w, values[6], values[7]);
}

KGEN_DEVICE words4 narrow(const float (&values)[8]) {
    return {pack<element>(values[0], values[1]), pack<element>(values[2], values[3]), pack<element>(values[4], values[5]),
            pack<element>(values[6], values[7])};
}

// Four values of an FP8 dtype, the first in the lowest byte.
KGEN_DEVICE uint32_t narrow_to_bytes(float a, float b, float c, float d, int dtype) {
    return dtype == KGEN_DTYPE_FP8_E4M3 ? pack_e4m3(a, b, c, d) : pack_e5m2(a, b, c, d);
}

template <bool PIECES>
KGEN_DEVICE void store_bytes(uint8_t* to, const float (&values)[8], float scale, int dtype) {
    words2 bytes;
    bytes.x = narrow_to_bytes(values[0] * scale, values[1] * scale, values[2] * scale, values[3] * scale, dtype);
    bytes.y = narrow_to_bytes(values[4] * scale, values[5] * scale, values[6] * scale, values[7] * scale, dtype);
    if constexpr (PIECES) {
        store_global(static_cast<void*>(to), bytes);
    } else {
        const uint32_t words[2] = {bytes.x, bytes.y};
        KGEN_UNROLL
        for (int i = 0; i < 8; ++i) store_element(to + i, static_cast<uint8_t>(words[i / 4] >> (i % 4 * 8)));
    }
}

// ── Rotation

// Cosines and sines of a share: of the 8 pairs that its two pieces make, or, interleaved, of the 4 pairs within the
// first piece and the 4 within the second.
struct angles {
    words4 cos, sin;
};

// Of 4 pairs from column `4 * quarter` on.
template <bool PIECES>
KGEN_DEVICE words2 load_quarter(const uint16_t* row, int quarter) {
    const words4 piece = load_piece<PIECES>(row + quarter / 2 * 8);
    return quarter % 2 == 0 ? words2{piece.x, piece.y} : words2{piece.z, piece.w};
}

template <bool PIECES>
KGEN_DEVICE words4 load_pairs(const uint16_t* row, const share& s, bool interleaved) {
    if (!interleaved) return load_piece<PIECES>(row + s.first * 8);
    const words2 low = load_quarter<PIECES>(row, s.first), high = load_quarter<PIECES>(row, s.second);
    return {low.x, low.y, high.x, high.y};
}

// `s` rotates.
template <bool PIECES>
KGEN_DEVICE angles load_angles(const kgen_append_kv_params& p, int position, const share& s) {
    const bool interleaved = (p.flags & KGEN_FLAG_ROTARY_INTERLEAVED) != 0;
    const int64_t row = position * p.rotary_row_stride;
    return {load_pairs<PIECES>(static_cast<const uint16_t*>(p.rotary_cos) + row, s, interleaved),
            load_pairs<PIECES>(static_cast<const uint16_t*>(p.rotary_sin) + row, s, interleaved)};
}

// The products are exact, as factors have at most 11 bits: each result is rounded once.
KGEN_DEVICE void turn(float& x, float& y, float cos, float sin) {
    const float old = x;
    x = fused_multiply_add(x, cos, -(y * sin));
    y = fused_multiply_add(y, cos, old * sin);
}

KGEN_DEVICE void rotate(float (&first)[8], float (&second)[8], const angles& by, bool interleaved) {
    float cos[8], sin[8];
    widen(by.cos, cos);
    widen(by.sin, sin);
    KGEN_UNROLL
    for (int i = 0; i < 8; ++i) {
        if (!interleaved) {
            turn(first[i], second[i], cos[i], sin[i]);
        } else if (i < 4) {
            turn(first[2 * i], first[2 * i + 1], cos[i], sin[i]);
        } else {
            turn(second[2 * i - 8], second[2 * i - 7], cos[i], sin[i]);
        }
    }
}

// ── Rows

// A row of K, V or Q: row `row` of sequence `batch`. Packed rows after the last sequence's have batch -1.
struct place {
    int batch, row;
};

// `index` counts the rows of all sequences. The last sequence that begins at or before it holds it: others are empty.
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

// Element offset of a row at its first head. Packed, it does not wait for the search of its sequence.
KGEN_DEVICE int64_t row_offset(int index, const int32_t* cu_seqlens, const divisor& seqlen, int64_t batch_stride, int64_t row_stride) {
    if (cu_seqlens != nullptr) return index * row_stride;
    const int b = quotient(index, seqlen);
    return b * batch_stride + (index - b * static_cast<int>(seqlen.number)) * row_stride;
}

// The position of a row for the rotation; -1: the tables have none such.
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
KGEN_DEVICE void store_share(const kgen_append_kv_params& p, const cache_tensor& cache, const destination& to, int head, const share& s, const held& h,
                             const angles& by, float descale) {
    const int64_t row = to.page * cache.page_stride + to.row * cache.row_stride + head * cache.head_stride;
    const bool fp8 = p.cache_dtype != p.dtype;
    if (!fp8 && !s.rotates) {
        auto* elements = static_cast<uint16_t*>(cache.base) + row;
        if (s.first >= 0) store_piece<PIECES>(elements + s.first * 8, h.first);
        if (s.second >= 0) store_piece<PIECES>(elements + s.second * 8, h.second);
        return;
    }
    float first[8], second[8];
    widen(h.first, first);
    widen(h.second, second);
    if (s.rotates) rotate(first, second, by, (p.flags & KGEN_FLAG_ROTARY_INTERLEAVED) != 0);
    if (fp8) {
        const float scale = 1.0f / descale;
        auto* bytes = static_cast<uint8_t*>(cache.base) + row;
        if (s.first >= 0) store_bytes<PIECES>(bytes + s.first * 8, first, scale, p.cache_dtype);
        if (s.second >= 0) store_bytes<PIECES>(bytes + s.second * 8, second, scale, p.cache_dtype);
    } else {
        auto* elements = static_cast<uint16_t*>(cache.base) + row;
        store_piece<PIECES>(elements + s.first * 8, narrow(first));
        store_piece<PIECES>(elements + s.second * 8, narrow(second));
    }
}

template <bool PIECES>
KGEN_DEVICE void append_rows(const work& w, int number) {
    if (number >= w.kv_shares) return;
    const kgen_append_kv_params& p = w.p;
    const int row_and_group = quotient(number, w.kv_row_shares), part = number - row_and_group * static_cast<int>(w.kv_row_shares.number);
    const int groups = static_cast<int>(w.kv_groups.number);
    const int index = quotient(row_and_group, w.kv_groups), group = row_and_group - index * groups;
    const share of_k = share_of(part, p.rotary_dim / 16, p.head_dim / 8), of_v = share_of(part, 0, p.head_dim_v / 8);

    const auto* k_row = static_cast<const uint16_t*>(p.k) + row_offset(index, p.cu_seqlens_new, w.seqlen_new, p.k_batch_stride, p.k_row_stride);
    const auto* v_row = static_cast<const uint16_t*>(p.v) + row_offset(index, p.cu_seqlens_new, w.seqlen_new, p.v_batch_stride, p.v_row_stride);
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
            k_descale[i] = descale_of(p, p.k_descale, entry * p.k_descale_batch_stride + head * p.k_descale_head_stride);
            v_descale[i] = descale_of(p, p.v_descale, entry * p.v_descale_batch_stride + head * p.v_descale_head_stride);
        }
    };
    // What waits for the length, or for nothing, is loaded before the table is: only a store, and factors by page, wait
    // for that.
    const bool by_page = (p.flags & KGEN_FLAG_DESCALE_BY_PAGE) != 0;
    if (!by_page) load_descales(at.batch);
    angles by = { {0, 0, 0, 0}, {0, 0, 0, 0} };
    if (of_k.rotates) by = load_angles<PIECES>(p, position, of_k);
    const destination to = destination_of(w, index, at);
    if (to.page < 0) return;
    if (by_page) load_descales(to.page);
    const cache_tensor k_cache = {p.k_cache, p.k_cache_page_stride, p.k_cache_row_stride, p.k_cache_head_stride};
    const cache_tensor v_cache = {p.v_cache, p.v_cache_page_stride, p.v_cache_row_stride, p.v_cache_head_stride};
    KGEN_UNROLL
    for (int i = 0; i < PAIRS; ++i) {
        const int head = group + i * groups;
        if (head >= p.num_heads_k) continue;
        store_share<PIECES>(p, k_cache, to, head, of_k, k[i], by, k_descale[i]);
        store_share<PIECES>(p, v_cache, to, head, of_v, v[i], by, v_descale[i]);
    }
}

// ── Q

template <bool PIECES>
KGEN_DEVICE void rotate_queries(const work& w, int number) {
    if (number >= w.q_shares) return;
    const kgen_append_kv_params& p = w.p;
    const int row_and_group = quotient(number, w.q_row_shares), part = number - row_and_group * static_cast<int>(w.q_row_shares.number);
    const int groups = static_cast<int>(w.q_groups.number);
    const int index = quotient(row_and_group, w.q_groups), group = row_and_group - index * groups;
    const share s = share_of(part, p.rotary_dim / 16, p.head_dim / 8);

    const auto* row = static_cast<const uint16_t*>(p.q) + row_offset(index, p.cu_seqlens_q, w.seqlen_q, p.q_batch_stride, p.q_row_stride);
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
    if (s.rotates) by = load_angles<PIECES>(p, position, s);
    auto* out = static_cast<uint16_t*>(p.q_out) + row_offset(index, p.cu_seqlens_q, w.seqlen_q, p.q_out_batch_stride, p.q_out_row_stride);
    KGEN_UNROLL
    for (int i = 0; i < QUERIES; ++i) {
        const int head = group + i * groups;
        if (head >= p.num_heads) continue;
        uint16_t* to = out + head * p.q_out_head_stride;
        if (s.rotates) {
            float first[8], second[8];
            widen(q[i].first, first);
            widen(q[i].second, second);
            rotate(first, second, by, (p.flags & KGEN_FLAG_ROTARY_INTERLEAVED) != 0);
            q[i] = {narrow(first), narrow(second)};
        }
        if (s.first >= 0) store_piece<PIECES>(to + s.first * 8, q[i].first);
        if (s.second >= 0) store_piece<PIECES>(to + s.second * 8, q[i].second);
    }
}

template <bool PIECES>
KGEN_KERNEL(THREADS, MIN_BLOCKS_PER_SM) append(KGEN_PARAMETER work w) {
    let_later_kernels_start();
    await_earlier_kernels();  // what is read is there, and nobody reads what is overwritten any more
    const uint32_t block = block_index();
    if (block < w.kv_blocks) append_rows<PIECES>(w, static_cast<int>(block * THREADS + thread_index()));
    else rotate_queries<PIECES>(w, static_cast<int>((block - w.kv_blocks) * THREADS + thread_index()));
}

int32_t up(int64_t amount, int64_t unit) { return static_cast<int32_t>((amount + unit - 1) / unit); }

}  // namespace

extern "C" int append_kv_bf16_sm90(const kgen_append_kv_params* given, cudaStream_t stream) {
    constexpr const char* self = "append_kv_bf16_sm90";
    work w = {};
    kgen_append_kv_params& p = w.p;
    if (const int code = check_append_kv_params(given, KGEN_DTYPE_BF16, "bf16", self, p)) return code;
    const int64_t rows = new_rows(p), queries = query_rows(p);
    // A row's shares: half as many as it has pieces.
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
    if (rows > 0) {
        w.page_size = make_divisor(p.page_size);
        const int64_t pages = p.slot_mapping != nullptr ? p.num_pages : p.page_table != nullptr ? p.pages_per_sequence : 1;
        const int64_t capacity = pages * p.page_size;
        w.capacity = static_cast<int32_t>(capacity < INT32_MAX ? capacity : INT32_MAX);
    }
    w.kv_blocks = static_cast<uint32_t>(up(w.kv_shares, THREADS));
    const uint32_t blocks = w.kv_blocks + static_cast<uint32_t>(up(w.q_shares, THREADS));
    const auto kernel = append_is_aligned(p) ? append<true> : append<false>;
    return launch_early(kernel, self, blocks, THREADS, 0, w, stream);
}
