// Warpgroups that take turns at arithmetic. Registers know nothing of barriers, and ptxas moves arithmetic across them that does not
// depend on them: here it does.
#pragma once

#include "kgen/shared.cuh"
#include "kgen/sync.cuh"

namespace kgen {

// Waits at the barrier of one's turn (barrier_wait). What then has `zeros` added to it is computed in the turn: two zeros that lie in
// shared memory at `address`, a multiple of 8, where the compiler does not see what they are.
KGEN_DEVICE void await_turn_of(float (&zeros)[2], uint32_t address, int barrier, int threads) {
    barrier_wait(barrier, threads);
    load_shared_pair(address, zeros[0], zeros[1]);
}

// Arrives at the barrier of the next one's turn (barrier_arrive), but not before `word` is computed, whose top bit must be clear: that
// of packed exponentials is, also where they are NaN, which cvt makes positive.
KGEN_DEVICE void pass_turn_behind(uint32_t word, int barrier, int threads) { barrier_arrive(barrier + static_cast<int>(word >> 31), threads); }

}  // namespace kgen
