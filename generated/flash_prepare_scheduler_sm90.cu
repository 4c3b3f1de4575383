// flash_prepare_scheduler_sm90
//
// Split-KV, before the first half: chooses on the device the number of splits for the keys of each sequence, so that a
// batch of unequal lengths keeps the whole GPU busy. Compute capability 9.0 and newer.
//
// The rule. A sequence has `tiles` row tiles (16 rows: queries x heads of a key head) for each key head, and `units`
// pieces of 16 keys; without rows or keys it is empty and gets 0 splits. With a window or chunks only the keys that its
// last query sees count. With T units per split, a sequence has ceil(units / T) splits, of at least 8 units each, and
// that many blocks for each tile. With B concurrent blocks (concurrent_blocks, or two per multiprocessor) and an
// average load of A = (sum of tiles x units) / B units per block,
//
//   T = the smallest that makes at most B blocks in total, so that all run at once, if one exists with 2 T <= 3 A;
//       otherwise blocks run in waves, which balances better: half the average, floor(A / 2);
//
// but never less than 8 units. A sequence then gets this number of splits, at most num_splits. In waves, sequences of
// at most 2/3 A units stay whole: if lengths are similar, halves balance no better and have to be merged.
//
// It also clears the counters with which the last blocks of fwd_split merge partial results (arrivals), if given.
//
// One block of 256 threads; each warp tests its own T, so the search takes few rounds.
// Made by kgen 0.1.0 from templates/attention/prepare_scheduler.cu.tera; edit that, not this. To compile this file
// alone:
//   nvcc -O3 -std=c++17 -gencode arch=compute_90a,code=sm_90a -Iinclude -c flash_prepare_scheduler_sm90.cu

#include "kgen.h"
#include "kgen/append.cuh"
#include "kgen/atomics.cuh"
#include "kgen/device.cuh"
#include "kgen/features.cuh"
#include "kgen/floats.cuh"
#include "kgen/fwd_params.cuh"
#include "kgen/global.cuh"
#include "kgen/grid_order.cuh"
#include "kgen/launch.cuh"
#include "kgen/params.cuh"
#include "kgen/platform.cuh"
#include "kgen/shared.cuh"
#include "kgen/split_plan.cuh"
#include "kgen/split_sizes.cuh"
#include "kgen/sync.cuh"

namespace {

using namespace kgen;

constexpr int THREADS = 256;
constexpr int WARPS = THREADS / 32;
constexpr uint32_t SHARED_BYTES = 64;  // one flag per warp, for two rounds
static_assert(SHARED_BYTES == 2 * WARPS * sizeof(float), "a flag a warp, for two rounds");

struct work {
    int64_t tiles;
    int32_t units;
};

KGEN_DEVICE int32_t divide_up(int32_t a, int32_t b) { return (a + b - 1) / b; }

// The keys of a sequence that its last query sees.
KGEN_DEVICE int32_t keys_seen(const kgen_fwd_params& p, int32_t keys) {
    const int32_t last = keys - 1;
    const bool windowed = (p.flags & KGEN_FLAG_WINDOW) != 0;
    const int32_t in_window = windowed && last > p.features.window_left ? p.features.window_left + 1 : keys;
    return p.features.attention_chunk > 0 ? min(in_window, last % p.features.attention_chunk + 1) : in_window;
}

KGEN_DEVICE work work_of(const kgen_fwd_params& p, int batch) {
    const sequence queries = sequence_of(batch, p.cu_seqlens_q, p.seqused_q, p.seqlen_q);
    const sequence keys = p.k_new == nullptr ? sequence_of(batch, p.cu_seqlens_k, p.seqused_k, p.seqlen_k)
                                             : keys_with_new_rows(p, batch);
    if (queries.rows <= 0 || keys.rows <= 0) return {0, 0};
    const int64_t rows = static_cast<int64_t>(queries.rows) * (p.num_heads / p.num_heads_k);
    return {(rows + SPLIT_TILE_ROWS - 1) / SPLIT_TILE_ROWS * p.num_heads_k,
            divide_up(keys_seen(p, keys.rows), SPLIT_KEYS)};
}

// Number of splits of a sequence of `units` at `units_a_split` each; none is shorter than SPLIT_LEAST unless it is the
// only one.
KGEN_DEVICE int32_t splits_of(int32_t units, int32_t units_a_split) {
    return min(divide_up(units, units_a_split), max(1, units / SPLIT_LEAST));
}

// The sum over the batch of `term(sequence's work)`, the same in every lane of the warp.
template <class Term>
KGEN_DEVICE int64_t sum_over_batch(const kgen_fwd_params& p, Term term) {
    int64_t sum = 0;
    for (int batch = lane_index(); batch < p.batch; batch += 32) sum += term(work_of(p, batch));
    KGEN_UNROLL
    for (int step = 16; step > 0; step /= 2) sum += shuffle_xor(sum, step);
    return sum;
}

KGEN_DEVICE int64_t block_count(const kgen_fwd_params& p, int32_t units_a_split) {
    return sum_over_batch(p, [&](work w) { return w.tiles * splits_of(w.units, units_a_split); });
}

// The smallest T in [1, most] that makes at most `limit` blocks; `most` itself must. Called by all threads.
KGEN_DEVICE int32_t least_units_a_split(const kgen_fwd_params& p, int32_t most, int64_t limit) {
    const int32_t warp = warp_index();
    int32_t low = 1, high = most;  // `high` makes few enough, anything below `low` too many
    uint32_t flags = shared_base();
    while (low < high) {
        const int32_t step = divide_up(high - low, WARPS);
        const auto tried = [&](int32_t by_warp) { return min(high, low + by_warp * step); };
        const bool too_many = block_count(p, tried(warp)) > limit;
        if (lane_index() == 0) store_shared(flags + warp * 4, too_many ? 1.0f : 0.0f);
        block_sync();  // every warp has tested its T
        int32_t failed = 0;  // a larger T makes fewer blocks, so the first `failed` of them made too many
        for (int32_t w = 0; w < WARPS; ++w) failed += load_shared_float(flags + w * 4) != 0.0f ? 1 : 0;
        const int32_t next_low = failed > 0 ? tried(failed - 1) + 1 : low;
        if (failed < WARPS) high = tried(failed);
        low = next_low;
        flags = 2 * shared_base() + WARPS * 4 - flags;  // a warp that is ahead must not change what others still read
    }
    return high;
}

KGEN_KERNEL(THREADS, 1) prepare(KGEN_PARAMETER kgen_fwd_params p) {
    await_earlier_kernels();
    // Only now: if kernels of several calls waited at once, they would fill the multiprocessors, and the blocks of a
    // small launch would share the few places that become free while other multiprocessors stay idle.
    let_later_kernels_start();
    const int64_t blocks = p.concurrent_blocks;
    const int64_t load = sum_over_batch(p, [](work w) { return w.tiles * w.units; });
    const int64_t unsplit = sum_over_batch(p, [](work w) { return w.tiles; });
    const int32_t most = divide_up(max(p.seqlen_k, 1), SPLIT_KEYS);
    const int64_t whole_up_to = 2 * load / (3 * blocks);  // if all blocks run at once, T is larger than this
    int64_t units_a_split = load / (2 * blocks);
    if (unsplit <= blocks) {
        const int64_t at_once = least_units_a_split(p, most, blocks);
        if (2 * at_once * blocks <= 3 * load) units_a_split = at_once;
    }
    const int32_t chosen = units_a_split < SPLIT_LEAST
                               ? SPLIT_LEAST : units_a_split < most ? static_cast<int32_t>(units_a_split) : most;
    for (int batch = thread_index(); batch < p.batch; batch += THREADS) {
        const int32_t units = work_of(p, batch).units;
        store_global(p.split_counts + batch,
                     units <= whole_up_to ? min(units, 1) : min(p.num_splits, splits_of(units, chosen)));
    }
    for (int64_t word = thread_index(); p.arrivals != nullptr && word < p.arrivals_count; word += THREADS)
        store_relaxed(p.arrivals + word, 0u);
}

}  // namespace

extern "C" int flash_prepare_scheduler_sm90(const kgen_fwd_params* given, cudaStream_t stream) {
    constexpr const char* self = "flash_prepare_scheduler_sm90";
    kgen_fwd_params params;
    if (const int code = copy_fwd_params(given, self, params)) return code;
    if (const int code = check_shapes(params, FEATURE_FLAGS, self)) return code;
    if (const int code = check_split_numbers(params, self)) return code;
    if (const int code = refuse_query_limits(params, self)) return code;
    if (params.batch == 0) return KGEN_SUCCESS;
    if (params.split_counts == nullptr)
        return fail(KGEN_ERROR_INVALID_VALUE, "%s: split_counts must not be NULL", self);
    if (params.concurrent_blocks < 0) {
        return fail(KGEN_ERROR_INVALID_VALUE, "%s: concurrent_blocks %d must not be negative", self,
                    params.concurrent_blocks);
    }
    if (params.concurrent_blocks == 0) {
        params.concurrent_blocks = 2 * multiprocessor_count();
        if (params.concurrent_blocks == 0) return KGEN_ERROR_LAUNCH;  // last_error holds the reason
    }
    return launch_early(prepare, self, 1, THREADS, SHARED_BYTES, params, stream);
}
