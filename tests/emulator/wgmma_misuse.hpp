// Part of wgmma_primitives.cpp: reports for kernels that misuse products.
#pragma once

// Computes D (64 x 16) += A B, where A has 64 rows of 128 bytes, with at most one of many errors.
constexpr int N = 16, DEPTH = 64;
template <class Element>
constexpr int DEPTH_OF = 128 / sizeof(Element);
using tile_of_d = float[N / 8][4];

enum class slip {
    none,
    no_fence,
    no_fence_behind_a_wait,
    fence_before_d_is_written,
    fence_before_a_is_written,
    no_commit,
    no_wait,
    d_is_written_too_early,
    d_is_read_too_early,
    no_proxy_fence,
    one_warp_without_proxy_fence,
    no_barrier,
    wrong_swizzle,
    no_swizzle,
    start_inside_the_pattern,
    beyond_shared_memory,
    other_operands_in_a_warp,
    other_operands_in_a_lane,
    a_product_less_in_a_warp,
    another_shape_for_d,
    stage_overwritten_before_the_wait,
    stage_overwritten_behind_a_barrier_before_the_wait,
    stage_overwritten_without_a_barrier,
};
slip made;

template <class Element = bf16>
void store_operands() {
    store_tile<Element, tile_of<Element, 64, DEPTH_OF<Element>>>(A_TILE, element_a);
    store_tile<Element, tile_of<Element, N, DEPTH_OF<Element>>>(B_TILE, [](uint32_t row, uint32_t column) { return element_b(column, row); });
}

template <class Element>
void multiply_with_slips(int) {
    constexpr int depth = DEPTH_OF<Element>;
    store_operands<Element>();
    if (made != slip::no_proxy_fence && (made != slip::one_warp_without_proxy_fence || warp_index() != 2)) fence_proxy_async();
    if (made != slip::no_barrier) block_sync();
    tile_of_d d;
    start_d(d);
    if (made != slip::no_fence) wgmma_fence();
    if (made == slip::wrong_swizzle || made == slip::no_swizzle || made == slip::start_inside_the_pattern || made == slip::beyond_shared_memory) {
        uint64_t a = made == slip::wrong_swizzle ? matrix_descriptor<32>(A_TILE, 0, 512) : matrix_descriptor<64>(A_TILE, 0, 1024);
        if (made == slip::no_swizzle) a &= ~(3ull << 62);
        if (made == slip::start_inside_the_pattern) a = advance(a, 128);
        if (made == slip::beyond_shared_memory) a = advance(a, BYTES);
        for (uint32_t step = 0; step < 2; ++step) wgmma<Element, N>(d, advance(a, step * 32), matrix_descriptor<64>(B_TILE, 0, 1024), true);
    } else if (made == slip::other_operands_in_a_warp || made == slip::other_operands_in_a_lane) {
        const bool other = made == slip::other_operands_in_a_warp ? warp_index() == 1 : lane_index() == 1;
        wgmma<Element, N>(d, matrix_descriptor<64>(A_TILE, 0, 1024), matrix_descriptor<64>(B_TILE + other * 32, 0, 1024), true);
    } else {
        multiply_rows<Element, N, depth>(d, true);
    }
    if (made == slip::another_shape_for_d) wgmma<Element, 8, 1>(d, matrix_descriptor<64>(A_TILE, 0, 1024), matrix_descriptor<64>(B_TILE, 0, 1024), true);
    if (made != slip::no_commit) wgmma_commit();
    if (made == slip::no_wait) return;
    if (made == slip::d_is_written_too_early && thread_index() == 5) d[1][2] = 0;
    if (made == slip::d_is_read_too_early) judge<N>(d, depth, true);
    if (made == slip::stage_overwritten_behind_a_barrier_before_the_wait) block_sync();
    if ((made == slip::stage_overwritten_before_the_wait || made == slip::stage_overwritten_behind_a_barrier_before_the_wait) && thread_index() == 77) {
        store_shared(B_TILE + 1024, words4{});
    }
    wgmma_wait<0>(d);
    if (made == slip::d_is_read_too_early) return;
    judge<N>(d, depth, true);
    if (made == slip::a_product_less_in_a_warp) {
        wgmma_fence();
        if (warp_index() != 3) wgmma<Element, N>(d, matrix_descriptor<64>(A_TILE, 0, 1024), matrix_descriptor<64>(B_TILE, 0, 1024), true);
        wgmma_commit();
        wgmma_wait<0>(d);
    }
    if (made != slip::stage_overwritten_without_a_barrier) block_sync();
    if (thread_index() == 77) store_shared(B_TILE + 1024, words4{});
    make_visible();
    if (made == slip::fence_before_d_is_written) wgmma_fence();
    for (uint32_t j = 0; j < N / 8; ++j) {
        for (uint32_t e = 0; made != slip::no_fence_behind_a_wait && e < 4; ++e) d[j][e] *= 2;
    }
    if (made != slip::fence_before_d_is_written && made != slip::no_fence_behind_a_wait) wgmma_fence();
    wgmma<Element, N>(d, matrix_descriptor<64>(A_TILE, 0, 1024), matrix_descriptor<64>(B_TILE, 0, 1024), true);
    wgmma_commit();
    wgmma_wait<0>(d);
}

template <class Element>
bool shows_as(const char* kind, slip slipped) {
    made = slipped;
    return is_faulted(kind, multiply_with_slips<Element>, WARPGROUP, BYTES);
}

template <class Element>
bool shows_in_numbers(slip slipped) {
    made = slipped;
    return runs(multiply_with_slips<Element>, WARPGROUP, 1, BYTES) && !all_ones();
}

template <class Element>
void misuse() {
    made = slip::none;
    expect(runs(multiply_with_slips<Element>, WARPGROUP, 1, BYTES) && all_ones(),
           "operands may be written by threads, D changed between products, and an operand overwritten after the wait");
    expect(shows_as<Element>("wgmma", slip::no_fence), "a product without a wgmma_fence is reported");
    expect(shows_as<Element>("wgmma", slip::no_fence_behind_a_wait), "... also after a wgmma_wait");
    expect(shows_as<Element>("wgmma", slip::fence_before_d_is_written), "... and after a write to D");
    expect(shows_as<Element>("wgmma", slip::no_commit), "a wait for products that no wgmma_commit has closed is reported");
    expect(shows_as<Element>("never waited for", slip::no_wait), "products without a wait are reported");
    expect(shows_as<Element>("wgmma", slip::d_is_written_too_early), "writing to D before the wait is reported");
    expect(shows_in_numbers<Element>(slip::d_is_read_too_early), "reading D before the wait yields NaN");
    expect(shows_as<Element>("proxy", slip::no_proxy_fence), "a product of written data without a fence_proxy_async is reported");
    expect(shows_as<Element>("proxy", slip::one_warp_without_proxy_fence), "... also if only some writers fenced");
    expect(shows_as<Element>("race", slip::no_barrier), "... and without a barrier");
    expect(shows_in_numbers<Element>(slip::wrong_swizzle), "a descriptor with the wrong swizzle yields wrong numbers");
    expect(shows_as<Element>("wgmma", slip::no_swizzle), "a descriptor without swizzle is reported");
    expect(shows_as<Element>("misaligned", slip::start_inside_the_pattern), "so is an operand that starts inside its swizzle pattern");
    expect(shows_as<Element>("out of bounds", slip::beyond_shared_memory), "so is one that is partly outside shared memory");
    expect(shows_as<Element>("warpgroup", slip::other_operands_in_a_warp), "different operands in the four warps are reported");
    expect(shows_as<Element>("wgmma", slip::other_operands_in_a_lane), "... and in the lanes of a warp");
    expect(shows_as<Element>("warpgroup", slip::a_product_less_in_a_warp), "different products in the four warps are reported");
    expect(shows_as<Element>("wgmma", slip::another_shape_for_d), "products that add to the same registers with different shapes of D are reported");
    expect(shows_as<Element>("race", slip::stage_overwritten_before_the_wait), "overwriting an operand before the wait is a race");
    expect(shows_as<Element>("race", slip::stage_overwritten_behind_a_barrier_before_the_wait), "... also after a barrier");
    expect(shows_as<Element>("race", slip::stage_overwritten_without_a_barrier), "... and after the wait without a barrier");
}

// Computes D (64 x 16) = A B in E4M3, with A in registers and at most one error.
void multiply_from_registers_with_slips(int) {
    store_operands<e4m3>();
    if (made != slip::no_proxy_fence) fence_proxy_async();
    block_sync();
    tile_of_d d;
    start_d(d);
    uint32_t a[4][4];
    load_a<e4m3>(a);
    if (made != slip::no_fence) wgmma_fence();
    const bool other = made == slip::other_operands_in_a_warp && warp_index() == 1;
    wgmma_registers<e4m3, N>(d, a[0], matrix_descriptor_by_bytes<128>(B_TILE + other * 32, 0, 1024), false);
    memset(a, 0xff, sizeof a);
    wgmma_commit();
    if (made == slip::stage_overwritten_before_the_wait && thread_index() == 77) store_shared(B_TILE + 1024, words4{});
    wgmma_wait<0>(d);
    judge<N>(d, 32, false);
    if (made == slip::fence_before_a_is_written) wgmma_fence();
    load_a<e4m3>(a);
    if (made != slip::fence_before_a_is_written) wgmma_fence();
    wgmma_registers<e4m3, N>(d, a[0], matrix_descriptor_by_bytes<128>(B_TILE, 0, 1024), false);
    wgmma_commit();
    wgmma_wait<0>(d);
    judge<N>(d, 32, false);
}

void misuse_of_registers() {
    const auto shows = [](const char* kind, slip slipped) {
        made = slipped;
        return is_faulted(kind, multiply_from_registers_with_slips, WARPGROUP, BYTES);
    };
    made = slip::none;
    expect(runs(multiply_from_registers_with_slips, WARPGROUP, 1, BYTES) && all_ones(), "A in registers is read when the product is issued");
    expect(shows("wgmma", slip::no_fence), "A in registers without a wgmma_fence is reported");
    expect(shows("wgmma", slip::fence_before_a_is_written), "... also if the fence is before the write to A");
    expect(shows("proxy", slip::no_proxy_fence), "B written without a fence_proxy_async is reported");
    expect(shows("warpgroup", slip::other_operands_in_a_warp), "different B in the four warps is reported");
    expect(shows("race", slip::stage_overwritten_before_the_wait), "overwriting B before the wait is a race");
}

void misuse_of_any_element() {
    expect(is_faulted("misaligned", [](int) { matrix_descriptor<64>(A_TILE + 8, 0, 1024); }), "an operand starts at a multiple of 16 bytes");
    expect(is_faulted("warpgroup", [](int) { wgmma_fence(); }, 96), "three warps are no warpgroup");
    for (const int capability : {80, 100, 120}) {
        kgen_emulator_device(capability);
        expect(is_faulted("warpgroup", [](int) { wgmma_fence(); }, WARPGROUP), "a device that is not of compute capability 9.0 has no wgmma");
    }
    kgen_emulator_device(90);
}
