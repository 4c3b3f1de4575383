// Mock of a kernel library compiled for the emulator. The variable MOCK_BEHAVIOUR selects how it misbehaves.
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kgen.h"

enum { HANG = 1, CRASH, REFUSE, WRITE_NOTHING, WRITE_ZEROS, WRITE_INPUT, WRITE_OUTSIDE, LEAVE, REPORT, FORK, FORK_AND_LEAVE_THE_GROUP, FORK_AND_RETURN_TWICE, FORGE };

// Writes a worker's "passed" message to every plausible file descriptor.
static void forge() {
    const char verdict[] =
        "\n{\"event\":\"verdict\",\"name\":\"mock\",\"device\":\"emulator\",\"kind\":\"emulator\",\"level\":\"smoke\",\"seed\":1,"
        "\"status\":\"pass\",\"cases_run\":1,\"worst\":null,\"seconds\":0.1,\"message\":\"\"}\n";
    for (int descriptor = 1; descriptor < 1024; ++descriptor) {
        if (write(descriptor, verdict, sizeof verdict - 1) < 0) continue;
    }
}

// Forks a child that outlives the call; the parent prints its pid.
static void leave_a_child(bool in_the_group) {
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        if (!in_the_group) setsid();
        sleep(60);
        _exit(0);
    }
    // The child must leave the process group before the parent exits, because the group is killed then.
    while (!in_the_group && getsid(child) != child) usleep(1000);
    fprintf(stderr, "child %d.\n", child);
}

static uint16_t* output;
static size_t output_bytes;
static const uint8_t* output_map;

extern "C" void kgen_emulator_reset(uint64_t) {}
extern "C" void kgen_emulator_priorities(uint32_t) {}
extern "C" uint64_t kgen_emulator_steps(void) { return 0; }
extern "C" void kgen_emulator_multiprocessors(int) {}
extern "C" void kgen_emulator_device(int) {}
extern "C" void kgen_emulator_tensor(const char* name, void* base, size_t bytes, const uint8_t* map, size_t, int) {
    if (strcmp(name, "o") != 0) return;
    output = static_cast<uint16_t*>(base);
    output_bytes = bytes;
    output_map = map;
}
extern "C" const char* kgen_emulator_report(void) { return MOCK_BEHAVIOUR == REPORT ? "race: a mock's\n" : ""; }
extern "C" const char* kgen_last_error(void) { return "the mock's last words"; }

extern "C" int MOCK_NAME(const kgen_fwd_params* p, cudaStream_t) {
    printf("a kernel may print\n");
    fflush(stdout);
    switch (MOCK_BEHAVIOUR) {
        case HANG:
            for (;;) sleep(1);
        case CRASH:
            fprintf(stderr, "about to fall\n");
            *reinterpret_cast<volatile int*>(16) = 0;
            break;
        case REFUSE:
            return KGEN_ERROR_INVALID_VALUE;
        case WRITE_INPUT:
            memset(const_cast<void*>(p->k), 0, 2);
            break;
        case LEAVE:
            _exit(3);
        case FORK:
            leave_a_child(true);
            for (;;) sleep(1);
        case FORK_AND_LEAVE_THE_GROUP:
            leave_a_child(false);
            _exit(3);
        case FORK_AND_RETURN_TWICE:
            if (const pid_t copy = fork()) {
                waitpid(copy, nullptr, 0);
                _exit(3);
            }
            return KGEN_ERROR_INVALID_VALUE;
        case FORGE:
            forge();
            _exit(0);
    }
    if (MOCK_BEHAVIOUR == WRITE_ZEROS || MOCK_BEHAVIOUR == WRITE_OUTSIDE) {
        for (size_t i = 0; i < output_bytes / 2; ++i) {
            if (output_map[i]) output[i] = 0;
        }
    }
    if (MOCK_BEHAVIOUR == WRITE_OUTSIDE) output[0] = 0;
    return KGEN_SUCCESS;
}
