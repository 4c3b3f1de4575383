// In place of the emulator's start of a grid (by the linker's --wrap): notes the kernel, its blocks, and starts it.
// COUNT and START: the names that the linker gives to this function and to the emulator's.
#include <cstdint>
#include <cstring>
#include <string>

#include "kgen/emulator.h"
#include "kgen/launch.cuh"

namespace {

std::string& launches() {
    static std::string text;
    return text;
}

}  // namespace

// The launches since the last call, as `kind:blocks`, by spaces. Valid until the next launch.
extern "C" __attribute__((visibility("default"))) const char* kgen_test_launches() {
    static std::string told;
    told.swap(launches());
    launches().clear();
    return told.c_str();
}

extern "C" const char* START(const char* name, uint32_t blocks, uint32_t threads, uint32_t shared_bytes, kgen::emulator::launch_options options, void (*enter)(const void*), const void* call);

extern "C" const char* COUNT(const char* name, uint32_t blocks, uint32_t threads, uint32_t shared_bytes, kgen::emulator::launch_options options, void (*enter)(const void*), const void* call) {
    const char* kind = std::strstr(name, "prepare")   ? "prepare"
                       : std::strstr(name, "append")  ? "append"
                       : std::strstr(name, "combine") ? "combine"
                       : std::strstr(name, "split")   ? "split"
                                                      : "fwd";
    launches() += kind + (":" + std::to_string(blocks)) + " ";
    return START(name, blocks, threads, shared_bytes, options, enter, call);
}
