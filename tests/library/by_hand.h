// Numbers that a program computes beside those that were computed by hand: a line is printed for each that differs, and
// at the end how many were compared.
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
