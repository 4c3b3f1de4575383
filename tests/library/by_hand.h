// Compares computed numbers with values worked out by hand. Prints one line per mismatch, and at the end the number of
// comparisons.
#pragma once

#include <math.h>
#include <stdio.h>

#include <initializer_list>

#include "kgen/device.cuh"

static int compared = 0;

static void expect(const char* of, double said, double by_hand) {
    ++compared;
    if (said == by_hand || (isfinite(by_hand) && fabs(said - by_hand) <= 1e-12 * fabs(by_hand))) return;
    printf("%s: %.17g, by hand %.17g\n", of, said, by_hand);
}
