// Predicted time of a path of kgen_fwd(), from the numbers of the plans; src/family/attention/cost has the sources of
// the numbers, and `kgen predict` calls these functions. docs/dispatch.md explains them. For the host compiler as well
// as nvcc.
//
// The formula does not depend on names of kernels or devices: their differences are passed as numbers. Times are in
// nanoseconds, bandwidths in bytes per nanosecond.
#pragma once

#include <math.h>
#include <stdint.h>

#include <initializer_list>

#include "kgen/split_sizes.cuh"

namespace kgen {

// A kernel, as described by its plan.
struct kernel_cost {
    double rows;          // of a block's query tile
    double group_rows;    // rows per MMA group; a group without valid rows skips its products
    double keys;          // keys of a block per step
    double resident;      // blocks that a multiprocessor holds at once
    double launch_ns;     // from the launch to the first product, plus from the last store to the end
    double crowded_ns;    // extra launch time if the blocks fill more than half of the slots; longest_first: CROWDED
    double tile_cycles;   // a query tile, without its steps
    double chain_cycles;  // a step of a block that has a multiprocessor to itself
    // a step when enough blocks share a multiprocessor to keep its units busy; fwd_combine: to start a block
    double step_cycles;
    bool longest_first;   // the tiles with the most keys are assigned first
    bool orders_batch;    // also those of unequal sequences
};

struct device_cost {
    double multiprocessors;
    double cycles_per_ns;
    double dram_bytes_per_ns, l2_bytes_per_ns;
    double l2_bytes;
    double kept_bytes;  // bytes of a request that L2 may still hold from the kernel that wrote them
};

// The host's knowledge of a request. For unequal lengths this is the longest, and the mean if the caller gives totals.
struct request_cost {
    double batch, heads, heads_k;
    double queries, keys;  // per sequence, on average
    double longest_queries, longest_keys;  // of the longest sequence
    double head_dim, head_dim_v, element_bytes, kv_element_bytes;  // the latter of K and V
    double most_seen;     // most keys that one query sees, as limited by windows and chunks; HUGE_VAL: no limit
    double keys_to_mean;  // keys of a query's sequence, on average over queries, relative to `keys`
    bool causal, unequal;
    bool unequal_queries, unequal_keys;  // with more than one sequence
    bool keys_unknown;  // lengths of K differ, and their sum is unknown
    double longer;      // guess: this many sequences have the most queries, the others one each; 0: no guess
    double spread;      // weight of the alternative guess that queries are spread evenly: 0 to 1
};

// A batch in which some sequences have as many queries as the longest and the others one each: serving engines mix
// prompts and decoding this way.
struct parted_request {
    request_cost many, few;
};

// The two parts of a batch in which `r.longer` sequences are long. A prompt has at least as many keys as queries.
inline parted_request parted(const request_cost& r) {
    parted_request parts = {r, r};
    parts.many.batch = r.longer, parts.many.queries = r.longest_queries;
    parts.many.keys = fmax(r.keys, fmin(r.longest_keys, r.longest_queries));
    parts.few.batch = r.batch - r.longer, parts.few.queries = parts.few.longest_queries = 1;
    for (request_cost* part : {&parts.many, &parts.few}) part->unequal_queries = false, part->keys_to_mean = 1;
    return parts;
}

// Mean length of `batch` sequences. One has the maximum length; if the total is unknown, the others are assumed to have
// about half of it on average.
inline double mean_length(double longest, double batch, double total, bool unequal) {
    if (!unequal || batch <= 1) return longest;
    if (total <= 0) return (longest + (batch - 1) * ((longest + 1) / 2)) / batch;
    return fmin(longest, fmax(1, total / batch));
}

// Mean number of keys over queries, relative to the mean over sequences. In self-attention, long sequences have more of
// both: lengths are modelled as the longest times a power of a uniform variable in 0 to 1, with the power that gives
// the known mean. If queries and keys differ in length independently, one sequence is assumed to be the longest in
// both.
inline double keys_to_mean(const request_cost& r) {
    if (!r.unequal_queries || !r.unequal_keys) return 1;
    if (r.longest_queries == r.longest_keys && r.queries == r.keys) {
        return r.longest_keys * r.longest_keys / (r.keys * (2 * r.longest_keys - r.keys));
    }
    const double queries = r.queries * r.batch, keys = r.keys * r.batch;
    const double others = fmax(0, queries - r.longest_queries) * fmax(0, keys - r.longest_keys) / (r.batch - 1);
    return (r.longest_queries * r.longest_keys + others) / queries / r.keys;
}

// The alternative guess if the number of keys is unknown: one long sequence among short ones.
inline request_cost with_one_long_sequence(request_cost r) {
    r.keys = (r.longest_keys + (r.batch - 1) * fmax(1, floor(r.longest_keys / 16))) / r.batch;
    r.keys_to_mean = keys_to_mean(r);
    return r;
}

// The division of a sequence's keys among blocks.
struct sharing {
    bool packed;         // a tile's rows are those of all heads that read one key head
    double splits;       // of each sequence, on average
    bool balanced;       // longer sequences have more splits
    double most_splits;  // of the longest sequence
};

// The times of one kernel; see kgen_candidate.
struct kernel_time {
    double launch, tile, chain, step, memory;

    // The time of two parts of a batch in one launch: the times for which they keep units busy add up.
    kernel_time beside(const kernel_time& other) const {
        return {fmax(launch, other.launch), fmax(tile, other.tile), chain + other.chain, step + other.step,
                memory + other.memory};
    }

    // About a fifth of the work that should overlap with the longest part does not.
    double total() const {
        const double longest = fmax(fmax(chain, step), memory);
        return launch + tile + longest + 0.2 * (chain + step + memory - longest);
    }
};

// Query tiles of a sequence, which has `rows` rows. With unequal lengths the last tile is half full on average.
inline double tile_count(const request_cost& r, double rows, double tile_rows) {
    const double tiles = rows / tile_rows;
    return r.unequal_queries ? fmax(tiles + 0.5, 1) : ceil(tiles);
}

// A tile whose rows see no key takes this fraction of another tile's time without its steps, since it waits for
// nothing. So does a block of fwd_combine for a row that a shorter sequence does not have.
constexpr double WITHOUT_KEYS = 0.3;

// The last tile of a sequence takes at least this fraction of another one's steps, even if it has few groups of rows,
// which then wait for their own products. From 64 x 213 and 64 x 228 queries in tiles of 192 rows on an H200.
constexpr double LEAST_OF_LAST_TILE = 0.4;

// If slots do not end together, the last ones take longer by this fraction of an average tile.
constexpr double DRAIN = 0.375;

// The same if the last tiles are the shortest of a batch of unequal sequences.
constexpr double DRAIN_OF_SHORTEST = 0.1;

// Bytes of an L2 line, and the fraction of the unused rest of a line that is fetched in addition if a row of K or V
// does not fill its last line: the block of the next head, which needs the rest, often comes too late. If each block
// has a multiprocessor to itself, nothing is fetched in addition: the blocks then run in step.
constexpr double LINE_BYTES = 128, OF_LINE = 0.3;

// Fractions of the bytes that L2 may still hold. K and V of at most KEYS_KEPT are entirely in L2, those of KEYS_GONE or
// more not at all: the last writes have evicted the data that is read first.
constexpr double KEYS_KEPT = 0.4, KEYS_GONE = 0.64;

// Blocks that read the same K and V share what L2 holds. If L2 is too small for all keys and their paces differ, each
// further block fetches this fraction again. Blocks of fwd_split keep step if each has a multiprocessor to itself, and
// kernels that assign the longest tiles first group the heads by what L2 holds.
constexpr double READ_AGAIN = 0.071;

// In a sequence of more tiles than this, a partial one is a small part of what reads the keys.
constexpr double TILES_IN_STEP = 3;

// Under a causal mask, tiles are about equally long if the diagonal takes at most this part of the keys: a turn that is
// not full then takes as long as a full one.
constexpr double SHORT_DIAGONAL = 0.2;

// Cycles of a column of a valid row in the first tile of a slot in fwd_split: Q is read, and the results of the warps
// are merged in shared memory and written. From 1 to 16 rows of 64 to 256 columns on an H200. In 41472 tiles on an
// H100, later ones took no longer.
constexpr double OF_ROWS_AND_COLUMNS = 0.85;

// A tile of fwd or fwd_short that writes partial results takes this fraction of another one, without their steps:
// nothing is converted or staged, and its last stores overlap with the start of fwd_combine.
constexpr double STORES_PARTS = 0.7;

// Partial results beyond this fraction of L2 are written to device memory, since K and V, which are read meanwhile,
// evict them.
constexpr double PARTS_KEPT = 0.1;

// The extra launch time of kernels that assign the longest tiles first begins where their blocks fill the first
// fraction of the slots, and is complete from the second on: the fewer slots a call leaves, the more of the next wait.
constexpr double CROWDED_FROM = 0.25, CROWDED_TO = 0.625;

// Rows of a sequence before its first key.
inline double rows_without_keys(const request_cost& r) { return r.causal ? fmax(0, r.queries - r.keys) : 0; }

// Most keys that `queries` neighbouring queries of a sequence see together.
inline double most_seen_by(const request_cost& r, double queries) {
    return r.most_seen + fmax(0, fmin(queries, r.queries) - 1);
}

// Bytes fetched for a row: a fraction of the rest of its last line comes with it.
inline double fetched_of_row(double bytes, double of_line) {
    return bytes + of_line * (ceil(bytes / LINE_BYTES) * LINE_BYTES - bytes);
}

inline kernel_time time_of(const request_cost& r, const kernel_cost& k, const device_cost& d, const sharing& s) {
    const double group = s.packed ? r.heads / r.heads_k : 1;
    const double tiles_of_sequence = tile_count(r, r.queries * group, k.rows);
    const double blocks = r.batch * (s.packed ? r.heads_k : r.heads) * tiles_of_sequence * s.splits;
    // Under a causal mask each tile of a sequence sees more keys than the previous one: on average fewer by half of the
    // difference.
    const double seen = fmin(r.queries, r.keys), span = fmin(seen, k.rows / group);
    const bool diagonal = r.causal && seen > span;
    // With a window or chunks, no tile sees more keys than this.
    const double limit = most_seen_by(r, k.rows / group), longest_keys = fmin(r.longest_keys, limit);
    const double keys = fmin(longest_keys,
                             (diagonal ? (r.keys - (seen - span) / 2) * (seen / r.queries) : r.keys) * r.keys_to_mean);
    const double most = ceil((s.balanced ? fmin(r.keys, limit) : longest_keys) / s.splits / k.keys);
    const double average = fmin(most, diagonal ? keys / s.splits / k.keys + 0.5 : ceil(keys / s.splits / k.keys));
    const double longest = s.balanced ? fmax(average, ceil(longest_keys / s.most_splits / k.keys)) : most;

    // Blocks of the longest sequence start at arbitrary times, unless they start first; half of their extra steps run
    // after all others have ended.
    const double tail = r.unequal && !k.orders_batch ? (longest - average) / 2 : 0;

    // Rows before the first key: their tiles are only written.
    const double without_keys = rows_without_keys(r);
    const double with_keys = without_keys > 0 ? fmin(1, ceil(seen * group / k.rows) / tiles_of_sequence) : 1;
    const double full_tiles = with_keys + WITHOUT_KEYS * (1 - with_keys);

    const double tile_cycles = k.tile_cycles * (s.splits > 1 && !s.packed ? STORES_PARTS : 1);
    const double of_rows = s.packed && k.rows <= SPLIT_TILE_ROWS
                               ? OF_ROWS_AND_COLUMNS * r.head_dim_v * r.queries * group / tiles_of_sequence : 0;
    const double slots = d.multiprocessors * k.resident;
    const double blocks_with_keys = blocks * with_keys;
    // Blocks end at different times only if these need more than one turn.
    const double in_turns = k.longest_first ? blocks_with_keys : blocks;
    const double drain = r.unequal && k.orders_batch ? DRAIN_OF_SHORTEST : DRAIN;
    // numbers processed one after another: tiles and steps per slot, steps per multiprocessor
    double tiles, in_slot, in_multiprocessor;
    if (r.unequal || (diagonal && seen - span > SHORT_DIAGONAL * longest_keys)) {
        const auto turns = [&](double places) {
            return fmax(longest, blocks * average / places + (in_turns > places ? drain * average + tail : 0));
        };
        tiles = fmax(1, blocks * full_tiles / slots + (in_turns > slots ? 2 * drain : 0));
        in_slot = turns(slots), in_multiprocessor = turns(d.multiprocessors);
    } else {
        const auto turns = [&](double places) { return ceil(blocks_with_keys / places) * longest; };
        tiles = fmax(1, ceil(blocks / slots) * full_tiles);
        in_slot = turns(slots), in_multiprocessor = turns(d.multiprocessors);
    }
    // The last tile of a sequence, or its only one, may lack groups of rows. The fullest tile lacks the fewest.
    const double rows_of_groups = ceil(r.queries * group / k.group_rows) * k.group_rows;
    const double fullest = fmin(1, rows_of_groups / k.rows);
    const double whole_tiles = floor(rows_of_groups / k.rows), last_tile = rows_of_groups / k.rows - whole_tiles;
    const double cost_of_last = whole_tiles > 0 && last_tile > 0 ? fmax(last_tile, LEAST_OF_LAST_TILE) : last_tile;
    const double average_tile =
        fmin(1, (r.unequal_queries ? rows_of_groups / k.rows : whole_tiles + cost_of_last) / tiles_of_sequence);
    const double busy_steps = fmax(longest * fullest, in_multiprocessor * average_tile);
    // Bytes of a row of Q plus one of O, and of a row of K plus one of V.
    const double of_line = blocks > d.multiprocessors ? OF_LINE : 0;
    const auto fetched = [&](double bytes) {
        return fetched_of_row(r.head_dim * bytes, of_line) + fetched_of_row(r.head_dim_v * bytes, of_line);
    };
    const double row_bytes = fetched(r.element_bytes), key_bytes = fetched(r.kv_element_bytes);
    const double rows_bytes = row_bytes * r.batch * (r.queries - without_keys / 2) * r.heads;
    const double keys_bytes = key_bytes * r.batch * fmin(r.keys, most_seen_by(r, r.queries)) * r.heads_k;
    const double keys_gone = (keys_bytes / d.kept_bytes - KEYS_KEPT) / (KEYS_GONE - KEYS_KEPT);
    const double readers = fmin(d.multiprocessors, (s.packed ? 1 : r.heads / r.heads_k) * tiles_of_sequence);
    const bool in_step = k.longest_first || (s.packed && blocks <= d.multiprocessors);
    const bool out_of_step = !in_step && keys_bytes > d.l2_bytes;
    // A partial tile takes its steps faster than the whole ones beside it. It reads all keys by itself if L2 cannot
    // hold those of the heads, or parts of heads, that are processed at once, beside the partial results. Tiles of
    // unequal sequences are ordered by their lengths: it is not beside them.
    const double partial = s.packed || s.splits > 1
                               ? r.batch * (r.queries - without_keys) * r.heads * s.splits * (r.head_dim_v + 1) * 4 : 0;
    const double parts = r.batch * r.heads_k * s.splits, at_once = fmin(parts, d.multiprocessors / tiles_of_sequence);
    const bool runs_ahead = k.longest_first && !s.packed && !r.unequal && whole_tiles > 0 && last_tile > 0 &&
                            tiles_of_sequence <= TILES_IN_STEP && keys_bytes / parts * at_once + partial > d.l2_bytes;
    const double fetches = 1 + (out_of_step ? READ_AGAIN * (readers - 1) : 0) + (runs_ahead ? 1 : 0);
    const double from_dram = fmax(0, rows_bytes - d.kept_bytes) + fetches * keys_bytes * fmin(1, fmax(0, keys_gone)) +
                             (s.splits > 1 ? fmax(0, partial - PARTS_KEPT * d.l2_bytes) : 0);
    const double from_l2 = blocks * (keys / s.splits) * key_bytes + partial;
    // A slot's first tile is not hidden at all; further tiles start and end while other blocks fetch.
    const double later = (tiles - 1) * tile_cycles;
    const double crowded = k.longest_first ? (blocks / slots - CROWDED_FROM) / (CROWDED_TO - CROWDED_FROM)
                                           : blocks > slots / 2;
    const double launch = k.launch_ns + k.crowded_ns * fmin(1, fmax(0, crowded));
    return {launch, (tile_cycles + of_rows) / d.cycles_per_ns, (in_slot * k.chain_cycles + later) / d.cycles_per_ns,
            (busy_steps * k.step_cycles + later) / d.cycles_per_ns,
            fmax(from_dram / d.dram_bytes_per_ns, from_l2 / d.l2_bytes_per_ns) +
            tail * k.chain_cycles / d.cycles_per_ns};
}

// fwd_combine of rows of up to COLUMNS_OF_WARP columns, if there are more than BLOCKS_OF_ROWS for each multiprocessor:
// its warps, WARPS_OF_ROWS in a block, merge one row after another and read SPLITS_AT_ONCE splits with each group of
// lanes. Cycles of a row, and of each round of reads, from 1,600 to 60,000 rows on an H200. Not less than for as many
// rows as have blocks of their own, so that more work never takes less time.
constexpr double COLUMNS_OF_WARP = 256;
constexpr double BLOCKS_OF_ROWS = 8, WARPS_OF_ROWS = 4, SPLITS_AT_ONCE = 2, ROW_CYCLES = 6500, ROUND_CYCLES = 900;

// The merge of partial results, one block per row of the longest sequence in each; a block reads `keys` pieces of 8
// columns at once.
inline double combine_ns(const request_cost& r, const kernel_cost& k, const device_cost& d, double splits) {
    const double rows = r.batch * r.queries * r.heads,
        rows_with_keys = r.batch * (r.queries - rows_without_keys(r)) * r.heads;
    double pieces = 1;  // threads per row of a split
    while (pieces * 8 < r.head_dim_v) pieces *= 2;
    const double rounds = ceil(splits * pieces / k.keys);
    const double slots = d.multiprocessors * k.resident;
    const double launched = r.batch * r.longest_queries * r.heads;
    // The fraction of the rows that could have a block each.
    const double by_blocks = r.head_dim_v > COLUMNS_OF_WARP ? 1
                                                            : fmin(1, d.multiprocessors * BLOCKS_OF_ROWS / launched);
    const double empty = (launched - rows) * by_blocks / slots * (WITHOUT_KEYS * k.tile_cycles);
    const double merged = ceil(rows_with_keys * by_blocks / slots) * rounds * k.chain_cycles;
    const double started = fmin(launched * by_blocks, slots) / d.multiprocessors * k.step_cycles;  // hidden for more
    double busy = ceil(rows * by_blocks / slots) * k.tile_cycles + merged + empty + started;
    if (by_blocks < 1) {
        const double warps = d.multiprocessors * BLOCKS_OF_ROWS * WARPS_OF_ROWS;
        const double reads = ceil(splits / (32 / pieces) / SPLITS_AT_ONCE);
        busy = fmax(busy, ceil(launched / warps) * (ROW_CYCLES + reads * ROUND_CYCLES));
    }
    const double bytes = rows_with_keys * splits * (r.head_dim_v + 1) * 4;
    return k.launch_ns + fmax(busy / d.cycles_per_ns, bytes / d.l2_bytes_per_ns);
}

// Extra ns of a split-KV kernel that writes O itself: it finishes rows and stores O to the caller's tensor. Fitted to
// three calls of 5 to 8 us on an H100.
constexpr double UNSPLIT_NS = 700;

// Extra ns if split counts are given: the kernel scans them to enumerate work items. On an H200, 1.3 to 2.6 us in six
// decoding shapes in which no sequence is split.
constexpr double COUNTED_NS = 1500;

// Cycles of a merge by last blocks: the arrival of a block, behind a fence and between two barriers, in the last turn
// and in earlier turns, in which other blocks compute; the log-sum-exps of a row; a round of loads of partial O by each
// lane. Fitted to nine decoding shapes with 2 to 32 splits on an H200.
constexpr double COUNTING = 1750, COUNTING_BESIDE = 500, LOG_SUM_EXPS = 1500, ROUND_OF_PARTS = 1500;

// The merge of partial results by the last block of each row tile to finish. The rows of a tile are divided among
// warps, and a warp reads 32 pieces of 4 columns 8 times before it adds them. `balanced`: sequences with one split need
// no merge.
inline double last_block_ns(const request_cost& r, const kernel_cost& k, const device_cost& d, double splits,
                            bool balanced) {
    const double merged = balanced ? fmin(splits - 1, 1) : 1;  // fraction of all sequences
    const double group = r.heads / r.heads_k, warps = k.rows > 32 ? 8 : 4;
    const double tiles = r.batch * r.heads_k * tile_count(r, r.queries * group, k.rows);
    const double rows = ceil(fmin(k.rows, r.queries * group) / warps);
    double lanes = 4;  // lanes that share a split's row
    while (lanes < 32 && lanes * 4 < r.head_dim_v) lanes *= 2;
    const double rounds = ceil(splits * lanes / (32 * 8)) * ceil(r.head_dim_v / 128);
    const double turns = ceil(tiles * splits / (d.multiprocessors * k.resident));
    const double counted = COUNTING + (turns - 1) * COUNTING_BESIDE;
    const double busy = (counted + rows * (LOG_SUM_EXPS + rounds * ROUND_OF_PARTS)) / d.cycles_per_ns;
    const double bytes = r.batch * (r.queries - rows_without_keys(r)) * r.heads * splits * (r.head_dim_v + 1) * 4;
    return merged * fmax(busy, bytes / d.l2_bytes_per_ns) + (1 - merged) * UNSPLIT_NS;
}

// The choice of split counts: one block, whose warps iterate over the batch `rows` sequences at a time.
inline double scheduler_ns(const request_cost& r, const kernel_cost& k, const device_cost& d) {
    return k.launch_ns + ceil(r.batch / k.rows) * k.tile_cycles / d.cycles_per_ns;
}

// Mean number of splits that prepare_scheduler gives a sequence, with `blocks` concurrent blocks: all blocks run at
// once, or in two turns if sequences are not left whole.
inline double balanced_splits(const request_cost& r, double blocks, double most) {
    const double tiles = r.batch * r.heads_k * ceil(r.queries * (r.heads / r.heads_k) / SPLIT_TILE_ROWS);
    const double keys = fmin(r.keys, r.most_seen);
    if (tiles > blocks && 3 * fmin(r.longest_keys, r.most_seen) * blocks <= 2 * keys * tiles) return 1;
    const double splits = fmin((tiles <= blocks ? 1 : 2) * blocks / tiles, floor(keys / (SPLIT_KEYS * SPLIT_LEAST)));
    return fmax(1, fmin(splits, most));
}

// Most split counts to evaluate. They are in rising order: round numbers, and the counts that fill the device once and
// twice; none whose splits are too short to pay off.
constexpr int MOST_SPLIT_COUNTS = 18;

inline int split_counts_to_weigh(const request_cost& r, const kernel_cost& k, const device_cost& d,
                                 int32_t counts[MOST_SPLIT_COUNTS]) {
    constexpr int32_t ROUND[] = {2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256};
    const double tiles = r.batch * r.heads_k * ceil(r.queries * (r.heads / r.heads_k) / k.rows);
    const double filling = floor(d.multiprocessors * k.resident / tiles);
    const double most = fmin(MOST_SPLITS, ceil(fmin(r.longest_keys, r.most_seen) / (SPLIT_KEYS * SPLIT_LEAST)));
    int count = 0;
    const auto add = [&](double splits) {
        if (splits < 2 || splits > most) return;
        int place = 0;
        while (place < count && counts[place] < splits) ++place;
        if (place < count && counts[place] == splits) return;
        for (int i = count++; i > place; --i) counts[i] = counts[i - 1];
        counts[place] = static_cast<int32_t>(splits);
    };
    for (const int32_t splits : ROUND) add(splits);
    add(filling);
    add(2 * filling);
    return count;
}

// The numbers of blocks to evaluate that share the keys of a query tile, in rising order; none whose shares are shorter
// than two steps of a block, or that fill the device more than MOST_FILLED times: of so many rounds the last costs
// little.
constexpr int MOST_SHARERS = 10;
constexpr double MOST_FILLED = 12;

inline int sharers_to_weigh(const request_cost& r, const kernel_cost& k, const device_cost& d,
                            int32_t counts[MOST_SHARERS]) {
    constexpr int32_t COUNTS[MOST_SHARERS] = {2, 3, 4, 5, 6, 8, 10, 12, 16, 24};
    const double tiles = r.batch * r.heads * tile_count(r, r.queries, k.rows);
    const double most = fmin(fmin(r.longest_keys, most_seen_by(r, k.rows)) / (2 * k.keys),
                             MOST_FILLED * d.multiprocessors * k.resident / tiles);
    int count = 0;
    for (const int32_t splits : COUNTS) {
        if (splits <= most) counts[count++] = splits;
    }
    return count;
}

}  // namespace kgen
