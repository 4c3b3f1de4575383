// Compares the formulas of kgen/path_cost.cuh with values worked out by hand from docs/dispatch.md.
#include "by_hand.h"
#include "kgen/path_cost.cuh"

using namespace kgen;

static void expect_times(const char* of, const kernel_time& said, const kernel_time& by_hand) {
    expect(of, said.launch, by_hand.launch);
    expect(of, said.tile, by_hand.tile);
    expect(of, said.chain, by_hand.chain);
    expect(of, said.step, by_hand.step);
    expect(of, said.memory, by_hand.memory);
}

// Round numbers: 20 block slots, 100 bytes per ns from device memory and 1000 from L2.
constexpr device_cost DEVICE = {10, 1, 100, 1000, 8e6, 1e6};
constexpr kernel_cost KERNEL = {64, 64, 64, 2, 1000, 300, 500, 100, 60, false, false};
constexpr device_cost TWICE_AS_FAST = {10, 2, 100, 1000, 8e6, 1e6};  // twice the clock frequency
constexpr sharing WHOLE = {false, 1, false, 1};

// One head of 64 queries and 640 keys: one tile of ten steps. A row of Q and O together, or of K and V, has 256 bytes.
static request_cost one_tile() {
    request_cost r = {};
    r.batch = r.heads = r.heads_k = 1;
    r.queries = r.longest_queries = 64, r.keys = r.longest_keys = 640;
    r.head_dim = r.head_dim_v = 64, r.element_bytes = r.kv_element_bytes = 2;
    r.most_seen = HUGE_VAL, r.keys_to_mean = r.spread = 1;
    return r;
}

template <class Change>
static request_cost with(Change change) {
    request_cost r = one_tile();
    change(r);
    return r;
}

#define WITH(...) with([&](request_cost& r) { __VA_ARGS__; })

static kernel_time times(const request_cost& r, const sharing& s = WHOLE, const kernel_cost& k = KERNEL) {
    return time_of(r, k, DEVICE, s);
}

static void even_work() {
    expect_times("a tile", times(one_tile()), {1000, 500, 1000, 600, 163.84});
    const kernel_time fast = time_of(one_tile(), KERNEL, TWICE_AS_FAST, WHOLE);
    expect_times("a tile, another clock", fast, {1000, 250, 500, 300, 163.84});
    expect("a tile in all", times(one_tile()).total(), 1500 + 1000 + 0.2 * (600 + 163.84));
    expect("bound by memory", (kernel_time{1, 2, 30, 40, 50}).total(), 3 + 50 + 0.2 * 70);
    const kernel_time beside = kernel_time{1, 2, 3, 4, 5}.beside({2, 1, 10, 20, 30});
    expect_times("two parts of a batch", beside, {2, 2, 13, 24, 35});
    // 11 blocks occupy more than half of the 20 slots.
    expect("10 blocks", times(WITH(r.heads = 10)).launch, 1000);
    expect("11 blocks", times(WITH(r.heads = 11)).launch, 1300);
    // Two waves per slot, three per multiprocessor; the second tile of a slot counts in both.
    expect_times("25 blocks", times(WITH(r.heads = 25)), {1300, 500, 20 * 100 + 500, 30 * 60 + 500, 25 * 163.84});
    // Two tiles for 100 queries: 28 of 128 rows are padding. In MMA groups of 16 rows, 112 rows are computed.
    kernel_cost groups = KERNEL;
    groups.group_rows = 16;
    expect("the fullest tile", times(WITH(r.queries = r.longest_queries = 100), WHOLE, groups).step, 600);
    const auto short_tiles = [](request_cost& r) { r.queries = r.longest_queries = 100, r.heads = 20; };
    expect("tiles that lack rows", times(with(short_tiles), WHOLE, groups).step, 40 * 112.0 / 128 * 60 + 500);
    expect("a tile that lacks most rows", times(WITH(short_tiles(r), r.queries = r.longest_queries = 80), WHOLE, groups).step, 40 * 0.7 * 60 + 500);
    expect("a tile that lacks rows", times(WITH(r.queries = r.longest_queries = 20), WHOLE, groups).step, 300);
}

static void diagonals_and_places() {
    // 30 tiles for 20 slots; the diagonal takes a fifth of the keys: 64 of 320. Below, all tiles are as long.
    const auto chunk = [](request_cost& r) {
        r.causal = true, r.heads = 15, r.queries = r.longest_queries = 128;
    };
    const kernel_time steep = times(WITH(chunk(r), r.keys = r.longest_keys = 319));
    expect("a long diagonal", steep.chain, 1.875 * (287.0 / 64 + 0.5) * 100 + (1.5 + 0.75 - 1) * 500);
    expect("a short one", times(WITH(chunk(r), r.keys = r.longest_keys = 320)).chain, 2 * 500 + 500);
    // A quarter of the slots is free of charge, and from 5/8 on the launch takes all of the extra time.
    kernel_cost first = KERNEL;
    first.longest_first = true;
    const auto launch = [&](double heads) { return times(WITH(r.heads = heads), WHOLE, first).launch; };
    expect("5 of 20 slots", launch(5), 1000);
    expect("8 of 20 slots", launch(8), 1000 + 0.4 * 300);
    expect("13 of 20 slots", launch(13), 1300);
    // 80 and 64 queries: a whole tile and one that lacks groups of rows, which reads all keys by itself.
    first.group_rows = 16;
    const auto ahead = [](request_cost& r) { r.queries = r.longest_queries = 80, r.keys = r.longest_keys = 40000; };
    expect("a tile that runs ahead", times(with(ahead), WHOLE, first).memory, 2 * 102400);
    expect("of splits", times(with(ahead), {false, 4, false, 4}, first).memory, 2 * 102400);
    // L2 has 8 MB, 80 rows of 4 splits 83 kB, and 30925 keys the rest.
    const auto fewer = [&](double keys) {
        return times(WITH(ahead(r), r.keys = r.longest_keys = keys), {false, 4, false, 4}, first).memory;
    };
    expect("of splits, without their results", fewer(30920), 30920 * 2.56);
    expect("of splits, with their results", fewer(30930), 2 * 30930 * 2.56);
    first.orders_batch = true;
    expect("of unequal lengths", times(WITH(ahead(r), r.unequal = true), WHOLE, first).memory, 102400);
}

static void bytes() {
    // K and V of up to 0.4 of the usable L2 hit L2; from 0.64 on all of them come from device memory; in between, a
    // part.
    expect("K and V kept", times(WITH(r.keys = r.longest_keys = 1562.5)).memory, 400);
    expect("K and V half kept", times(WITH(r.keys = r.longest_keys = 2031.25)).memory, 2600);
    expect("K and V gone", times(WITH(r.keys = r.longest_keys = 2500)).memory, 6400);
    expect("a head's own K and V", times(WITH(r.batch = r.heads = r.heads_k = 5)).memory, 40960);
    // Q and O, minus the part that stays in L2.
    expect("Q and O", times(WITH(r.batch = r.heads = 10, r.keys = r.longest_keys = 64)).memory, 6384);
    // For rows of half a cache line, 0.3 of the other half is fetched too if several blocks share a multiprocessor.
    expect("half lines, in step", times(WITH(r.heads = 10, r.head_dim = r.head_dim_v = 32)).memory, 819.2);
    expect("half lines", times(WITH(r.heads = 11, r.head_dim = r.head_dim_v = 32)).memory, 1171.456);
    // Two heads read the same keys. If their blocks share multiprocessors, the second fetches 0.071 of them again.
    const auto long_keys = [](request_cost& r) { r.keys = r.longest_keys = 10000; };
    const auto five_heads = [&](request_cost& r) { long_keys(r), r.heads = 10, r.heads_k = 5; };
    expect("in step", times(with(five_heads), {true, 1, false, 1}).memory, 128000);
    expect("not packed", times(with(five_heads)).memory, 128000 * 1.071);
    expect("out of step", times(WITH(long_keys(r), r.heads = 12, r.heads_k = 6)).memory, 153600 * 1.071);
    const auto in_l2 = [](request_cost& r) { r.keys = r.longest_keys = 5000, r.heads = 12, r.heads_k = 6; };
    expect("out of step in L2", times(with(in_l2)).memory, 76800);
    expect("FP8 keys", times(WITH(r.kv_element_bytes = 1)).memory, 81.92);
    expect("V of other columns", times(WITH(r.head_dim_v = 192)).memory, 327.68);
}

static void masks() {
    const auto causal = [](request_cost& r) {
        r.causal = true;
        r.queries = r.longest_queries = r.keys = r.longest_keys = 256;
    };
    // Four tiles of 1 to 4 steps: on average 160 keys plus half a step.
    expect_times("a diagonal", times(with(causal)), {1000, 500, 400, 240, 163.84});
    const auto heads = [&](request_cost& r) { causal(r), r.heads = 20; };
    expect_times("20 diagonals", times(with(heads)), {1300, 500, 1312.5 + 1875, 25.125 * 60 + 1875, 80 * 40.96});
    // As many blocks as slots, so there is no second wave.
    const auto filled = [&](request_cost& r) { causal(r), r.heads = 5; };
    expect_times("5 diagonals", times(with(filled)), {1300, 500, 400, 7.125 * 60, 20 * 40.96});
    // Four heads in 64 rows are 16 queries: they see 136 keys on average, 904 of 1024.
    const auto packed = [&](request_cost& r) { causal(r), r.heads = 8, r.heads_k = 2; };
    const double partial = 256 * 8 * 0.26;
    const double read = 32 * 136 * 0.256 + partial;
    const kernel_time of_packed = times(with(packed), {true, 1, false, 1});
    expect_times("packed", of_packed, {1300, 500, 518.4375 + 675, 9.384375 * 60 + 675, read});
    const auto many_keys = [&](request_cost& r) { packed(r), r.keys = r.longest_keys = 1024; };
    const kernel_time halves = times(with(many_keys), {true, 2, false, 2});
    const double read_by_halves = 64 * 452 * 0.256 + 2 * partial;
    expect_times("packed halves", halves, {1300, 500, 2703.59375 + 1475, 51.2359375 * 60 + 1475, read_by_halves});
    // 70 of 256 queries see a key: 5 of 16 tiles.
    const kernel_time unseen = times(WITH(packed(r), r.keys = r.longest_keys = 70), {true, 1, false, 1});
    expect("packed rows without keys", unseen.chain, 200 + 290);
    expect("packed rows without keys", unseen.memory, 32 * 11.7578125 * 0.256 + 70 * 8 * 0.26);
    // A quarter of the tiles has keys, one step each; a tile without keys counts as 0.3 steps.
    const auto few_keys = [&](request_cost& r) { heads(r), r.keys = r.longest_keys = 64; };
    expect_times("rows without keys", times(with(few_keys)), {1300, 500, 100 + 450, 120 + 450, 80 * 16.384});
    const auto all_see = [&](request_cost& r) { few_keys(r), r.causal = false; };
    expect("without a mask all rows have keys", times(with(all_see)).chain, 4 * 100 + 3 * 500);
    // Q of rows without keys is not read, but their O is written.
    const auto unread = [&](request_cost& r) { few_keys(r), r.heads = 50, r.keys = r.longest_keys = 1; };
    expect("their bytes", times(with(unread)).memory, (256 * 50 * (256 - 127.5) - 1e6) / 100);
    // 30 tiles for 20 slots, 12 of them with keys. Longest-first order lets the others fill the gaps.
    const auto behind = [](request_cost& r) {
        r.causal = true, r.heads = 6;
        r.queries = r.longest_queries = 320, r.keys = r.longest_keys = 128;
    };
    kernel_cost longest_first = KERNEL;
    longest_first.longest_first = true;
    expect("the longest last", times(with(behind)).chain, 206.25 + 310);
    expect("the longest first", times(with(behind), WHOLE, longest_first).chain, 200);
    expect("the longest first, units", times(with(behind), WHOLE, longest_first).step, 222.75);
    // 64 queries together see 128 + 63 keys; all 256 see 383, which exceeds L2 for ten heads.
    const auto window = [](request_cost& r) {
        r.most_seen = 128;
        r.queries = r.longest_queries = 256, r.keys = r.longest_keys = 1280;
    };
    expect_times("a window", times(with(window)), {1000, 500, 300, 180, 4 * 191 * 0.256});
    const auto packed_window = [&](request_cost& r) {
        window(r), r.heads = 8, r.heads_k = 2, r.queries = r.longest_queries = 64;
    };
    const kernel_time windowed = times(with(packed_window), {true, 1, false, 1});
    expect("a window of packed heads", windowed.memory, 8 * 143 * 0.256 + 64 * 8 * 0.26);
    expect("a query's own window", most_seen_by(with(window), 1), 128);
    expect("not one query", most_seen_by(with(window), 0), 128);
    expect("keys that are read", times(WITH(window(r), r.heads_k = 10)).memory, 383 * 10 * 2.56);
}

static void unequal_lengths() {
    // Four sequences of at most 640 and on average 320 keys: half of the five extra steps are in the tail.
    const auto keys = [](request_cost& r) { r.batch = 4, r.unequal = r.unequal_keys = true, r.keys = 320; };
    expect_times("unequal keys", times(with(keys)), {1000, 500, 1000, 600, 327.68 + 250});
    kernel_cost ordered = KERNEL;
    ordered.longest_first = ordered.orders_batch = true;
    expect("unequal keys, the longest first", times(with(keys), WHOLE, ordered).memory, 327.68);
    expect("the end by another clock", time_of(with(keys), KERNEL, TWICE_AS_FAST, WHOLE).memory, 327.68 + 125);
    const auto heads = [&](request_cost& r) { keys(r), r.heads = 20; };
    expect_times("80 blocks", times(with(heads)), {1300, 500, 2437.5 + 1875, 44.375 * 60 + 1875, 6553.6 + 250});
    expect("80 blocks, the longest first", times(with(heads), WHOLE, ordered).chain, 2050 + 1600);
    // 1.5 times as many keys: 480, eight steps on average.
    const kernel_time more = times(WITH(keys(r), r.keys_to_mean = 1.5));
    expect("long sequences have more queries", more.memory, 4 * 480 * 0.256 + 100);
    const request_cost queries = WITH(r.batch = 4, r.unequal = r.unequal_queries = true);
    expect("the last tile is half full", tile_count(queries, 100, 64), 2.0625);
    expect("a tile at least", tile_count(queries, 10, 64), 1);
    expect("tiles of equal lengths", tile_count(one_tile(), 100, 64), 2);
    expect("no total", mean_length(100, 4, 0, true), (100 + 3 * 50.5) / 4);
    expect("two sequences", mean_length(100, 2, 0, true), 75.25);
    expect("a total of one", mean_length(100, 4, 1, true), 1);
    expect("a total", mean_length(100, 4, 200, true), 50);
    expect("a total of too much", mean_length(100, 4, 1000, true), 100);
    expect("a total of nearly nothing", mean_length(100, 4, 2, true), 1);
    expect("one sequence", mean_length(100, 1, 50, true), 100);
    expect("equal lengths", mean_length(100, 4, 200, false), 100);
    request_cost both = queries;
    both.unequal_keys = true, both.batch = 2;
    both.longest_queries = 710, both.queries = 394.5, both.longest_keys = 4902, both.keys = 3090.5;
    expect("both sides", keys_to_mean(both), (710.0 * 4902 + 79.0 * 1279) / 789 / 3090.5);
    both.longest_queries = both.longest_keys = 100, both.queries = both.keys = 50;
    expect("self-attention", keys_to_mean(both), 4.0 / 3);
    both.longest_queries = 90, both.longest_keys = 200;
    expect("one has more keys than all", keys_to_mean(both), 90.0 * 200 / 100 / 50);
    both.longest_queries = 200, both.longest_keys = 90;
    expect("one has more queries than all", keys_to_mean(both), 90.0 * 200 / 100 / 50);
    both.batch = 3, both.longest_queries = 100, both.queries = 80;
    expect("two others", keys_to_mean(both), 1.1);
    expect("one side", keys_to_mean(queries), 1);
    expect("one long sequence", with_one_long_sequence(WITH(keys(r), r.longest_keys = 1610)).keys, 477.5);
    const request_cost short_keys = with_one_long_sequence(WITH(keys(r), r.longest_keys = 12));
    expect("one long sequence of 12", short_keys.keys, 3.75);
    const parted_request parts = parted(with([](request_cost& r) {
        r.batch = 10, r.longer = 2, r.longest_queries = 512, r.keys = 300, r.longest_keys = 4096;
        r.unequal_queries = true, r.keys_to_mean = 2;
    }));
    for (const request_cost* part : {&parts.many, &parts.few}) {
        expect("one length", part->unequal_queries, 0);
        expect("its keys", part->keys_to_mean, 1);
    }
    expect("prompts", parts.many.batch, 2);
    expect("their queries", parts.many.queries, 512);
    expect("their keys", parts.many.keys, 512);
    expect("sequences that decode", parts.few.batch, 8);
    expect("their query", parts.few.queries * parts.few.longest_queries, 1);
    expect("keys of those", parts.few.keys, 300);
}

static void splits() {
    // 8 queries with 4 heads per key head are 32 rows. 8 blocks of 160 keys each write 256 rows of 65 numbers.
    const auto packed = [](request_cost& r) { r.heads = 8, r.heads_k = 2, r.queries = r.longest_queries = 8; };
    expect_times("four splits", times(with(packed), {true, 4, false, 4}), {1000, 500, 300, 180, 8 * 40.96 + 66.56});
    kernel_cost groups = KERNEL;
    groups.group_rows = 16;
    expect("half a tile", times(with(packed), {true, 4, false, 4}, groups).step, 90);
    // A tile of fwd_split with 8 rows of 64 columns, 0.85 cycles each; one of 20 rows has two tiles of 10.
    groups.rows = 16;
    const auto tile_of = [&](double queries) {
        return times(WITH(packed(r), r.queries = r.longest_queries = queries), {true, 4, false, 4}, groups).tile;
    };
    expect("8 rows", tile_of(2), 500 + 435.2);
    expect("10 rows a tile", tile_of(5), 500 + 544);
    // A whole tile's four blocks write 64 rows each instead of O. What exceeds a tenth of L2 goes to device memory.
    expect("parts of a tile", times(one_tile(), {false, 4, false, 4}).tile, 350);
    constexpr device_cost SMALL_L2 = {10, 1, 10, 1000, 1e5, 1e6};
    expect("parts in device memory", time_of(one_tile(), KERNEL, SMALL_L2, {false, 4, false, 4}).memory, 5656);
    // Longer sequences get more splits of 2 steps each; with three splits the longest has 4.
    const auto unequal = [&](request_cost& r) {
        packed(r), r.batch = 4, r.unequal = r.unequal_keys = true, r.keys = 320;
    };
    expect("balanced", times(with(unequal), {true, 4, true, 8}).chain, (32.0 * 2 / 20 + 0.375 * 2) * 100 + 1.35 * 500);
    const kernel_time longest = times(WITH(unequal(r), r.batch = 1), {true, 4, true, 3});
    expect("the longest has three", longest.chain, 400);
    expect("and ends later", longest.memory, 8 * 80 * 0.256 + 66.56 + 100);
    const kernel_time more_keys = times(WITH(unequal(r), r.batch = 1, r.keys_to_mean = 2), {true, 4, true, 8});
    expect("no more than the mean's steps", more_keys.chain, 200);
    expect("not balanced", times(with(unequal), {true, 4, false, 4}).chain, 445 + 675);

    // fwd_combine: 160 slots of 128 threads.
    constexpr kernel_cost COMBINE = {1, 1, 128, 16, 700, 0, 400, 50, 20, false, false};
    const auto merge = [&](const request_cost& r, double number) { return combine_ns(r, COMBINE, DEVICE, number); };
    expect("64 rows of 32 splits", merge(with(packed), 32), 700 + 400 + 2 * 50 + 128);
    expect("64 splits: bytes", merge(with(packed), 64), 700 + 1064.96);
    expect("9 columns of 8", merge(WITH(packed(r), r.head_dim_v = 65), 8), 700 + 400 + 50 + 128);
    expect("the same, 9 splits", merge(WITH(packed(r), r.head_dim_v = 65), 9), 700 + 400 + 2 * 50 + 128);
    // More than 8 blocks on each of 10 multiprocessors: 320 warps, which read 16 splits of 64 columns in two rounds.
    constexpr double TURN = 6500 + 900;
    expect("256 rows", merge(WITH(packed(r), r.heads = 32), 8), 700 + TURN);
    expect("512 rows, two turns", merge(WITH(packed(r), r.heads = 64), 8), 700 + 2 * TURN);
    expect("16 splits, two rounds", merge(WITH(packed(r), r.heads = 32), 16), 700 + TURN + 900);
    expect("rows that others lack", merge(WITH(packed(r), r.longest_queries = 32), 8), 700 + TURN);
    // Not less than 80 rows with a block each, half of which have keys.
    kernel_cost slow = COMBINE;
    slow.tile_cycles = 40000;
    const request_cost half = WITH(packed(r), r.heads = 32, r.causal = true, r.keys = 4);
    expect("as 80 blocks", combine_ns(half, slow, DEVICE, 8), 700 + 40000 + 50 + 160);

    expect("another clock", combine_ns(with(packed), COMBINE, TWICE_AS_FAST, 1), 700 + 578 / 2.0);
    expect("8 columns, 128 splits", merge(WITH(packed(r), r.head_dim_v = 8), 128), 700 + 578);
    expect("all rows have keys", merge(WITH(packed(r), r.causal = true), 64), 700 + 1064.96);

    // Merging in the last block: tiles of 16 rows over 4 warps, of 64 rows over 8; 8 splits of 64 columns are half a
    // round.
    kernel_cost split = KERNEL;
    split.rows = 16;
    const auto last = [&](const request_cost& r, double number, bool balanced = false) {
        return last_block_ns(r, split, DEVICE, number, balanced);
    };
    const auto decoding = [&](request_cost& r) { packed(r), r.queries = r.longest_queries = 1; };
    expect("a row a warp", last(with(decoding), 8), 1750 + 1500 + 1500);
    expect("32 splits in 4 turns", last(with(decoding), 32), 1750 + 3 * 500 + 1500 + 2 * 1500);
    expect("another clock", last_block_ns(with(decoding), split, TWICE_AS_FAST, 8, false), 4750 / 2.0);
    expect("256 columns", last(WITH(decoding(r), r.head_dim_v = 256), 8), 1750 + 1500 + 2 * 1500);
    expect("8 columns", last(WITH(decoding(r), r.head_dim_v = 8), 64), 1750 + 6 * 500 + 1500 + 1500);
    expect("a sequence in four is split", last(with(decoding), 1.25, true), 0.25 * 4750 + 0.75 * 700);
    expect("all are", last(with(decoding), 3, true), 4750);
    constexpr device_cost SLOW = {10, 1, 100, 2, 8e6, 1e6};
    expect("bytes of 64 rows", last_block_ns(with(packed), split, SLOW, 8, false), 64 * 8 * 260 / 2.0);
    const request_cost seeing = WITH(packed(r), r.causal = true, r.keys = 4);
    expect("half of them see keys", last_block_ns(seeing, split, SLOW, 8, false), 32 * 8 * 130);
    expect("33 splits", last(with(decoding), 33), 1750 + 3 * 500 + 1500 + 3 * 1500);
    expect("72 columns", last(WITH(decoding(r), r.head_dim_v = 72), 16), 1750 + 500 + 1500 + 2 * 1500);
    expect("20 tiles in 8 turns", last(WITH(decoding(r), r.batch = 10), 8), 1750 + 7 * 500 + 3000);
    expect("two tiles of a sequence", last(with(packed), 8), 1750 + 500 + 4 * 3000);
    const auto rows = [](double heads) { return WITH(r.heads = heads, r.queries = r.longest_queries = 1); };
    expect("5 rows of 4 warps", last(rows(5), 8), 1750 + 2 * 3000);
    split.rows = 32;
    expect("5 rows of 4 warps, tiles of 32", last(rows(5), 8), 1750 + 2 * 3000);
    split.rows = 64;
    expect("9 rows of 8 warps", last(rows(9), 8), 1750 + 2 * 3000);
    expect("8 rows a warp", last(WITH(packed(r), r.queries = r.longest_queries = 16), 8), 1750 + 8 * 3000);

    expect("one split", UNSPLIT_NS, 700);
    expect("counts", COUNTED_NS, 1500);
    constexpr kernel_cost SCHEDULER = {32, 32, 0, 1, 5800, 0, 700, 0, 0, false, false};
    expect("32 sequences are scheduled", scheduler_ns(WITH(r.batch = 32), SCHEDULER, DEVICE), 6500);
    expect("33", scheduler_ns(WITH(r.batch = 33), SCHEDULER, DEVICE), 7200);
    expect("another clock", scheduler_ns(one_tile(), SCHEDULER, TWICE_AS_FAST), 5800 + 350);
    // 40 concurrent blocks.
    const auto scheduled = [&](double batch, double keys, double longest, double most) {
        return balanced_splits(WITH(decoding(r), r.batch = batch, r.keys = keys, r.longest_keys = longest), 40, most);
    };
    expect("8 tiles", scheduled(4, 1280, 1280, 10), 5);
    const request_cost two_tiles = WITH(packed(r), r.batch = 4, r.keys = r.longest_keys = 1280);
    expect("16 tiles", balanced_splits(two_tiles, 40, 10), 2.5);
    expect("of 128 keys each", scheduled(4, 320, 320, 10), 2);
    expect("at most", scheduled(4, 1280, 1280, 3), 3);
    expect("at least one", scheduled(4, 100, 100, 10), 1);
    expect("as many tiles as blocks", scheduled(20, 1280, 1280, 10), 1);
    expect("64 tiles", scheduled(32, 1280, 1280, 10), 1);
    expect("64 tiles that are nearly even", scheduled(32, 1200, 1280, 10), 1);
    expect("64 tiles that are not", scheduled(32, 1200, 1600, 10), 1.25);
    expect("64 tiles, one of them long", scheduled(32, 1280, 5120, 10), 1.25);
}

using split_counts = std::initializer_list<int32_t>;

static void weighed_counts(const char* of, double heads_k, double queries, double keys, double most_seen,
                           split_counts by_hand) {
    kernel_cost split = KERNEL;
    split.rows = 16;
    const request_cost r = with([&](request_cost& all) {
        all.heads = 4 * heads_k, all.heads_k = heads_k;
        all.queries = queries, all.longest_keys = keys, all.most_seen = most_seen;
    });
    int32_t counts[MOST_SPLIT_COUNTS];
    const int count = split_counts_to_weigh(r, split, DEVICE, counts);
    expect(of, count, static_cast<double>(by_hand.size()));
    for (int i = 0; i < count && i < static_cast<int>(by_hand.size()); ++i) expect(of, counts[i], by_hand.begin()[i]);
}

int main() {
    even_work();
    diagonals_and_places();
    bytes();
    masks();
    unequal_lengths();
    splits();
    weighed_counts("one tile", 1, 1, 2560, HUGE_VAL, {2, 3, 4, 6, 8, 12, 16, 20});
    weighed_counts("one tile, twice", 1, 1, 5120, HUGE_VAL, {2, 3, 4, 6, 8, 12, 16, 20, 24, 32, 40});
    weighed_counts("two tiles", 2, 1, 2560, HUGE_VAL, {2, 3, 4, 6, 8, 10, 12, 16, 20});
    weighed_counts("two tiles of one head", 1, 8, 2560, HUGE_VAL, {2, 3, 4, 6, 8, 10, 12, 16, 20});
    weighed_counts("two tiles of two heads", 2, 8, 2560, HUGE_VAL, {2, 3, 4, 5, 6, 8, 10, 12, 16});
    weighed_counts("three tiles", 3, 1, 2560, HUGE_VAL, {2, 3, 4, 6, 8, 12, 16});
    weighed_counts("a window of 500", 1, 1, 5120, 500, {2, 3, 4});
    weighed_counts("all", 1, 1, 1e6, HUGE_VAL, {2, 3, 4, 6, 8, 12, 16, 20, 24, 32, 40, 48, 64, 96, 128, 192, 256});
    weighed_counts("too few keys", 1, 1, 128, HUGE_VAL, {});
    printf("%d compared\n", compared);
    return 0;
}
