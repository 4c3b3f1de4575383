// A declared score of a call: the choice of kernels that serve it, and the range checks of its numbers. For the host
// compiler as well as nvcc.
#pragma once

#include <stdint.h>

#include "kgen.h"
#include "kgen/launch.cuh"

namespace kgen {

// The declared score that a variant was built with; id 0: none.
struct score_identity {
    uint64_t id;
    int32_t scalars, integers, tables;  // number of each that a call passes
    uint32_t divisors;                  // a bit for each integer that the expression divides by
};

// Limit of the magnitudes of passed integers: sums of a few of them and of positions fit 32 bits.
constexpr int32_t LARGEST_INTEGER = 1 << 28;

// Limit of sequence lengths: positions of rows after the last one, in its tile, do not exceed LARGEST_INTEGER either.
constexpr int32_t LONGEST_WITH_SCORE = LARGEST_INTEGER - 1024;

constexpr int MOST_NUMBERS = static_cast<int>(sizeof(kgen_declared_score::scalars) / sizeof(float));
constexpr int MOST_TABLES = static_cast<int>(sizeof(kgen_declared_score::tables) / sizeof(const float*));

// Compares the score that a call requests with the variant's, and checks the documented ranges.
inline int check_declared_score(const kgen_declared_score& given, const score_identity& own, const char* name) {
    if (given.id != own.id) {
        if (own.id == 0)
            return fail(KGEN_ERROR_MISMATCH, "%s: built without a declared score; the call asks for %016llx", name,
                        static_cast<unsigned long long>(given.id));
        return fail(KGEN_ERROR_MISMATCH, "%s: built with the declared score %016llx, called with score.id %016llx",
                    name, static_cast<unsigned long long>(own.id), static_cast<unsigned long long>(given.id));
    }
    for (int i = 0; i < MOST_NUMBERS; ++i) {
        const float scalar = given.scalars[i];
        if (!(scalar >= -3.402823466e38f && scalar <= 3.402823466e38f))
            return fail(KGEN_ERROR_INVALID_VALUE, "%s: score.scalars[%d] must be finite", name, i);
        if (i >= own.scalars && scalar != 0.0f) {
            return fail(KGEN_ERROR_INVALID_VALUE, "%s: score.scalars[%d] is %g and must be 0; the score has %d", name,
                        i, static_cast<double>(scalar), own.scalars);
        }
        const int32_t integer = given.integers[i];
        if (integer > LARGEST_INTEGER || integer < -LARGEST_INTEGER) {
            return fail(KGEN_ERROR_INVALID_VALUE, "%s: score.integers[%d] is %d; its magnitude must not exceed 2^28",
                        name, i, integer);
        }
        if (i >= own.integers && integer != 0) {
            return fail(KGEN_ERROR_INVALID_VALUE, "%s: score.integers[%d] is %d and must be 0; the score has %d", name,
                        i, integer, own.integers);
        }
        if ((own.divisors >> i & 1) != 0 && integer < 1) {
            return fail(KGEN_ERROR_INVALID_VALUE,
                        "%s: score.integers[%d] is %d; the score divides by it, so it must be at least 1", name, i,
                        integer);
        }
    }
    for (int i = 0; i < MOST_TABLES; ++i) {
        if (i < own.tables && given.tables[i] == nullptr)
            return fail(KGEN_ERROR_INVALID_VALUE, "%s: score.tables[%d] must not be NULL", name, i);
        if (i >= own.tables && given.tables[i] != nullptr) {
            return fail(KGEN_ERROR_INVALID_VALUE, "%s: score.tables[%d] must be NULL; the score has %d", name, i,
                        own.tables);
        }
    }
    return KGEN_SUCCESS;
}

}  // namespace kgen
