// Counters for tests. Replaces the emulator's launch of a grid (linker option --wrap): records the kernel and its
// blocks, then calls the original. COUNT and START are the linker's names of this function and of the original. Also
// counts the calls to kgen_fwd_workspace.
#include <cstdint>
#include <cstring>
#include <string>

#include "kgen/emulator.h"

namespace {

std::string& launches() {
    static std::string text;
    return text;
}

}  // namespace

// The launches since the last call, as `kind:blocks` separated by spaces. Valid until the next launch.
extern "C" __attribute__((visibility("default"))) const char* kgen_test_launches() {
    static std::string told;
    told.swap(launches());
    launches().clear();
    return told.c_str();
}

extern "C" const char* START(const char* name, uint32_t blocks, uint32_t threads, uint32_t shared_bytes,
                             kgen::emulator::launch_options options, void (*enter)(const void*), const void* call);

extern "C" const char* COUNT(const char* name, uint32_t blocks, uint32_t threads, uint32_t shared_bytes,
                             kgen::emulator::launch_options options, void (*enter)(const void*), const void* call) {
    const char* kind = std::strstr(name, "prepare")     ? "prepare"
                       : std::strstr(name, "append_kv") ? "append"
                       : std::strstr(name, "combine")   ? "combine"
                       : std::strstr(name, "split")     ? "split"
                                                        : "fwd";
    launches() += kind + (":" + std::to_string(blocks)) + " ";
    return START(name, blocks, threads, shared_bytes, options, enter, call);
}

namespace {

int questions = 0;

}  // namespace

// The library's function, renamed when the test library was linked.
extern "C" size_t uncounted_kgen_fwd_workspace(const void* params);

extern "C" __attribute__((visibility("default"))) size_t kgen_fwd_workspace(const void* params) {
    ++questions;
    return uncounted_kgen_fwd_workspace(params);
}

// Number of calls to kgen_fwd_workspace.
extern "C" __attribute__((visibility("default"))) int kgen_test_questions() { return questions; }
