// Mock of the kernels of `kgen probe` on the host, for tests/probe.rs: PROBE is the launcher, and every step of a loop
// takes 8192 cycles of a clock of 2 GHz. The variable MOCK_PROBE names a probe that behaves otherwise, and MOCK_PROBE_AS
// how.
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "kgen.h"

struct params {
    uint32_t struct_size, flags;
    void *memory, *kept, *spans;
    uint64_t bytes;
    int32_t blocks, steps, shared_bytes, reserved;
};

#define TEXT_OF(name) #name
#define TEXT(name) TEXT_OF(name)
#define JOINED_OF(a, b) a##b
#define JOINED(a, b) JOINED_OF(a, b)

static bool behaves_as(const char* how) {
    const char *probe = getenv("MOCK_PROBE"), *as = getenv("MOCK_PROBE_AS");
    return probe != nullptr && as != nullptr && strcmp(probe, TEXT(PROBE) + sizeof "kgen_probe_" - 1) == 0 && strcmp(as, how) == 0;
}

extern "C" int PROBE(const params* p, cudaStream_t) {
    if (behaves_as("hang")) for (;;) sleep(1);
    if (behaves_as("crash")) raise(SIGSEGV);
    if (behaves_as("refuse")) return KGEN_ERROR_LAUNCH;
    const int64_t cycles = 8192 * int64_t{p->steps};
    timespec begun, now;
    clock_gettime(CLOCK_MONOTONIC, &begun);
    do {
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while ((now.tv_sec - begun.tv_sec) * 1000000000 + now.tv_nsec - begun.tv_nsec < cycles / 2);
    for (int block = 0; block < p->blocks; ++block) {
        int64_t* const span = static_cast<int64_t*>(p->spans) + 2 * block;
        span[0] = behaves_as("stand") ? 0 : behaves_as("race") ? cycles / 8 : cycles;
        span[1] = span[0] / 2;
    }
    return KGEN_SUCCESS;
}

extern "C" int JOINED(PROBE, _lay)(const params*, cudaStream_t) { return KGEN_SUCCESS; }

extern "C" __attribute__((weak)) const char* kgen_last_error(void) { return "the mock's last words"; }
