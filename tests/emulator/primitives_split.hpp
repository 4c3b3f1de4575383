// Part of primitives.cpp: the primitives for partial results.
#pragma once

void float_copies(int) {
    const uint32_t lane = lane_index();
    const auto base = static_cast<float>(lane);
    store_shared(shared_base() + lane * 32, floats4{base, base + 0.25f, base + 0.5f, base + 0.75f});
    store_shared(shared_base() + lane * 32 + 16, -base, -base - 1);
    store_shared(shared_base() + lane * 32 + 24, 100 + base);
    warp_sync();
    const uint32_t other = shared_base() + (lane ^ 1) * 32;
    const auto theirs = static_cast<float>(lane ^ 1);
    const floats4 four = load_shared_floats(other);
    const bool right = four.x == theirs && four.y == theirs + 0.25f && four.z == theirs + 0.5f && four.w == theirs + 0.75f &&
                       load_shared_float(other + 16) == -theirs && load_shared_float(other + 20) == -theirs - 1 &&
                       load_shared_float(other + 24) == 100 + theirs;
    store_global(reinterpret_cast<floats4*>(output + lane * 4), floats4{right ? 1.0f : 0.0f, base, 2 * base, 3 * base});
}

// Each lane's value has bits in both 32-bit halves, and a sign.
int64_t wide_number(uint32_t lane) { return (static_cast<int64_t>(lane) << 33 | (0xfffffff0u + lane)) * (lane % 2 == 0 ? 1 : -1); }

void partial_results() {
    bool right = runs(float_copies);
    for (uint32_t lane = 0; lane < 32; ++lane) {
        const auto base = static_cast<float>(lane);
        right = right && output[lane * 4] == 1 && output[lane * 4 + 1] == base && output[lane * 4 + 2] == 2 * base && output[lane * 4 + 3] == 3 * base;
    }
    expect(right, "1, 2 and 4 floats are stored to and loaded from shared and device memory");

    const body reads_four = [](int) {
        const auto* from = reinterpret_cast<const floats4*>(output + lane_index() * 4);
        const floats4 four = load_global(from);
        warp_sync();
        store_global(output + 128 + lane_index(), four.x + four.y + four.z + four.w + load_global(output + lane_index() * 4));
    };
    for (int i = 0; i < 128; ++i) output[i] = static_cast<float>(i);
    right = runs(reads_four);
    for (int lane = 0; lane < 32; ++lane) right = right && output[128 + lane] == static_cast<float>(20 * lane + 6);
    expect(right, "1 and 4 floats are loaded from device memory");

    const body misaligned = [](int) { store_shared(shared_base() + 8 + lane_index() * 16, floats4{0, 0, 0, 0}); };
    expect(is_faulted("misaligned", misaligned), "four floats at a multiple of 8 bytes are misaligned");
    const body unwritten = [](int) { store_global(output + lane_index(), load_shared_float(shared_base() + lane_index() * 4)); };
    expect(is_faulted("unwritten", unwritten), "reading a float that was never written is reported");
    const body race = [](int) {
        store_shared(shared_base() + lane_index() * 4, 1.0f);
        store_global(output + lane_index(), load_shared_float(shared_base() + (lane_index() ^ 1) * 4));
    };
    expect(!runs(race), "reading another lane's float without warp_sync is a race");

    const body exchange = [](int) {
        const int64_t got = shuffle_xor(wide_number(lane_index()), 9);
        store_global(reinterpret_cast<int32_t*>(output) + lane_index(), got == wide_number(lane_index() ^ 9) ? 1 : 0);
    };
    right = runs(exchange);
    for (uint32_t lane = 0; lane < 32; ++lane) right = right && bits(output[lane]) == 1;
    expect(right, "shuffle_xor exchanges all 64 bits, and store_global stores a 64-bit integer");

    kgen_emulator_multiprocessors(7);
    expect(multiprocessor_count() == 7, "device_multiprocessors() returns the configured number");
}
