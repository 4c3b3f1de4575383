// Turns of warpgroups at arithmetic. Barriers do not order register arithmetic, and ptxas moves arithmetic across a
// barrier unless it depends on the barrier: here it does.
#pragma once

#include "kgen/shared.cuh"
#include "kgen/sync.cuh"

namespace kgen {

// Waits at the barrier of the warpgroup's turn (barrier_wait). Arithmetic to which `zeros` is then added is computed in
// the turn: two zeros in shared memory at `address`, a multiple of 8, whose values are opaque to the compiler.
KGEN_DEVICE void await_turn_of(float (&zeros)[2], uint32_t address, int barrier, int threads) {
    barrier_wait(barrier, threads);
    load_shared_pair(address, zeros[0], zeros[1]);
}

// Arrives at the barrier of the next warpgroup's turn (barrier_arrive), but not before `word` is computed. Its top bit
// must be clear, as it is in packed exponentials, even for NaN, which cvt makes positive.
KGEN_DEVICE void pass_turn_behind(uint32_t word, int barrier, int threads) {
    barrier_arrive(barrier + static_cast<int>(word >> 31), threads);
}

}  // namespace kgen
