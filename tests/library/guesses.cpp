// Compares the dispatcher's inputs to the cost formulas with values worked out by hand: requests, devices, kernels, and
// the assumed lengths if the host does not know them. Includes the source of a folder's dispatcher to reach its static
// functions.
#include "by_hand.h"

// Bandwidth of device memory, which the emulator does not report: this macro replaces the dispatcher's query of the
// driver.
static double rated_gbs = 0;
#define device_memory_gbs() rated_gbs

#include "kgen_dispatch.cpp"

static kgen_fwd_params four_sequences() {
    kgen_fwd_params p = {};
    p.batch = 4, p.num_heads = 32, p.num_heads_k = 8, p.seqlen_q = 1, p.seqlen_k = 4096;
    p.head_dim = p.head_dim_v = 128;
    p.features.window_left = p.features.window_right = NO_LIMIT;
    return p;
}

template <class Change>
static request_cost with(Change change) {
    kgen_fwd_params p = four_sequences();
    change(p);
    return cost_of_request(p);
}

#define WITH(...) with([&](kgen_fwd_params& p) { __VA_ARGS__; })

static void requests() {
    static int32_t lengths[5];
    const request_cost equal = cost_of_request(four_sequences());
    expect("batch", equal.batch, 4);
    expect("heads", equal.heads, 32);
    expect("key heads", equal.heads_k, 8);
    expect("queries", equal.queries * equal.longest_queries, 1);
    expect("keys", equal.keys, 4096);
    expect("longest keys", equal.longest_keys, 4096);
    expect("equal lengths", equal.unequal + equal.unequal_queries + equal.unequal_keys + equal.keys_unknown, 0);
    expect("no mask", equal.causal, 0);
    expect("one guess", equal.spread + equal.keys_to_mean - equal.longer, 2);
    expect("16 bits", equal.element_bytes + equal.kv_element_bytes, 4);
    expect("no window", equal.most_seen, HUGE_VAL);

    expect("a window", WITH(p.features.window_left = 100, p.features.window_right = 27).most_seen, 128);
    expect("a window open on one side", WITH(p.features.window_right = 27).most_seen, HUGE_VAL);
    expect("a mask", WITH(p.flags = KGEN_FLAG_CAUSAL).causal, 1);
    expect("columns of V", WITH(p.head_dim_v = 64).head_dim_v, 64);
    const request_cost fp8 = WITH(p.dtype = KGEN_DTYPE_FP8_E4M3), cache = WITH(p.kv_dtype = 1);
    expect("FP8", fp8.element_bytes + fp8.kv_element_bytes, 2);
    expect("K and V in FP8", 10 * cache.element_bytes + cache.kv_element_bytes, 21);

    const request_cost told = WITH(p.cu_seqlens_k = lengths, p.total_k = 8192);
    expect("the mean of a total", told.keys, 2048);
    expect("known", told.keys_unknown + told.unequal_queries, 0);
    expect("unequal", told.unequal + told.unequal_keys, 2);
    const request_cost used = WITH(p.seqused_k = lengths);
    expect("half as many", used.keys, (4096 + 3 * 2048.5) / 4);
    expect("unknown", used.keys_unknown + used.unequal + used.unequal_keys, 3);
    const request_cost one = WITH(p.seqused_k = lengths, p.batch = 1);
    expect("one sequence may be shorter", one.unequal, 1);
    expect("but is the longest", one.keys_unknown + one.unequal_keys, 0);
    const request_cost packed = with([](kgen_fwd_params& p) {
        p.cu_seqlens_q = p.cu_seqlens_k = lengths;
        p.seqlen_q = p.seqlen_k = 100, p.total_q = p.total_k = 200;
    });
    expect("queries of a total", packed.queries, 50);
    expect("self-attention", packed.keys_to_mean, 4.0 / 3);
    const request_cost without_offsets = WITH(p.seqused_q = lengths, p.seqlen_q = 100, p.total_q = 200);
    expect("a total without offsets", without_offsets.queries, (100 + 3 * 50.5) / 4);

    // Ten sequences of up to 101 queries: this many have 101, the others one each.
    const auto mixed = [&](int32_t total) {
        return WITH(p.page_table = p.cu_seqlens_q = lengths, p.batch = 10, p.seqlen_q = 101, p.total_q = total);
    };
    expect("three prompts", mixed(310).longer, 3);
    expect("as likely as not", mixed(310).spread, 0.5);
    expect("one prompt at least", mixed(60).longer, 1);
    expect("nothing else can be meant", mixed(60).spread, 0);
    expect("five prompts", mixed(510).longer, 5);
    expect("either", mixed(510).spread, 1);
    expect("more than half are not few", mixed(610).longer, 0);
    expect("prompts alone", mixed(610).spread, 1);
}

// A path that takes 1 ns per key and 2 ns per query, overlapped.
static path_time ns_of(const request_cost& r) { return {{1, 0, r.keys, 2 * r.queries, 0}, 10, 100}; }

static void guesses() {
    static int32_t lengths[5];
    const auto ns = [](const request_cost& r) {
        kgen_candidate told = {};
        tell_times(told, r, ns_of);
        return told;
    };
    const kgen_candidate known = ns(cost_of_request(four_sequences()));
    expect("all parts", known.predicted_ns, 1 + 4096 + 0.2 * 2 + 10 + 100);
    expect("of attention", known.launch_ns + known.chain_ns + known.step_ns, 1 + 4096 + 2);
    expect("of helpers", known.combine_ns + 2 * known.scheduler_ns, 10 + 200);
    const kgen_candidate unknown = ns(WITH(p.seqused_k = lengths, p.total_k = 0));
    const double half = (4096 + 3 * 2048.5) / 4, sixteenth = (4096 + 3 * 256) / 4.0;
    expect("two guesses", unknown.predicted_ns, 111.4 + (half + sixteenth) / 2);
    expect("the parts of the first", unknown.chain_ns, half);
    // Ten sequences: three with 101 queries and at least as many keys, seven with one query and 400 keys.
    const auto mixed = [&](int32_t total) {
        return with([&](kgen_fwd_params& p) {
            p.page_table = p.cu_seqlens_q = lengths;
            p.batch = 10, p.seqlen_q = 101, p.total_q = total, p.seqlen_k = 400;
        });
    };
    const double spread = 400 + 0.2 * 62 + 111, apart = 800 + 0.2 * 204 + 121;
    expect("queries spread or not", ns(mixed(310)).predicted_ns, (spread + apart) / 2);
    expect("one prompt", ns(mixed(60)).chain_ns, 800);

    const auto merged = [](double by_launch, double by_last_block, uint32_t merging, bool can_count) {
        kgen_candidate told = {};
        tell_merged_times(told, merging, can_count, [&](kgen_candidate& one, bool last) {
            one.predicted_ns = last ? by_last_block : by_launch;
        });
        return told.excluded != nullptr ? -1 : 100 * told.by_last_block + told.predicted_ns;
    };
    expect("by the last block", merged(10, 5, 0, true), 105);
    expect("launched", merged(5, 10, 0, true), 5);
    expect("the same", merged(5, 5, 0, true), 5);
    expect("not to be counted", merged(10, 5, 0, false), 10);
    expect("asked for a launch", merged(10, 5, KGEN_FLAG_MERGE_BY_LAUNCH, true), 10);
    expect("asked for the last block", merged(5, 10, KGEN_FLAG_MERGE_BY_LAST_BLOCK, true), 110);
    expect("which cannot be", merged(5, 10, KGEN_FLAG_MERGE_BY_LAST_BLOCK, false), -1);
}

static void numbers_of_devices_and_kernels() {
    const auto same = [](const char* of, int one, int other) {
        const device_cost a = cost_of_device(one, 100), b = cost_of_device(other, 100);
        expect(of, a.multiprocessors, 100);
        expect(of, a.cycles_per_ns, b.cycles_per_ns), expect(of, a.l2_bytes, b.l2_bytes), expect(of, a.kept_bytes, b.kept_bytes);
        expect(of, a.dram_bytes_per_ns, b.dram_bytes_per_ns), expect(of, a.l2_bytes_per_ns, b.l2_bytes_per_ns);
    };
    // An unlisted GPU gets the numbers of the listed one before it.
    same("9.5", 95, 90), same("13.0", 130, 121), same("7.0", 70, 75);
    const device_cost h100 = cost_of_device(90, 132);
    expect("clock", h100.cycles_per_ns, 1.755);
    expect("rated in the table", h100.dram_bytes_per_ns, 3350 * 0.95);
    expect("bandwidth of L2", h100.l2_bytes_per_ns, 13650);
    expect("50 MB", h100.l2_bytes, 5e7);
    expect("an eighth of 50 MB", h100.kept_bytes, 6.25e6);
    rated_gbs = 4900;
    expect("rated by the driver", cost_of_device(90, 132).dram_bytes_per_ns, 4655);
    for (const kgen_variant& variant : VARIANTS) {
        if (strcmp(variant.name, "flash_fwd_split_hdim128_fp16_sm80") != 0) continue;
        expect("shared memory of a block", origin_of(variant).shared_bytes, 102976);
        expect("A100", cost_of(variant, 163 << 10).resident, 1);
        expect("H100", cost_of(variant, 227 << 10).resident, 2);
        expect("at least one, wherever it runs", cost_of(variant, 99 << 10).resident, 1);
        const double by_registers = origin_of(variant).cost.resident;
        expect("no more than its registers allow", cost_of(variant, 1 << 30).resident, by_registers);
    }
}

int main() {
    requests();
    guesses();
    numbers_of_devices_and_kernels();
    printf("%d compared\n", compared);
    return 0;
}
