// The C interface (kgen/emulator.h), which the emulator's driver finds in every emulated kernel's library.
#pragma once

extern "C" {

void kgen_emulator_reset(uint64_t seed) {
    kgen::emulator::settings.seed = seed;
    kgen::emulator::settings.depth = kgen::emulator::SHUFFLED;
    kgen::emulator::settings.steps = 0;
    kgen::emulator::tensors.clear();
    kgen::emulator::self.violations.clear();
    kgen::emulator::clear_profile();
}

void kgen_emulator_priorities(uint32_t depth) { kgen::emulator::settings.depth = static_cast<int32_t>(std::min(depth, kgen::emulator::MOST_FALLS)); }

uint64_t kgen_emulator_steps(void) { return kgen::emulator::settings.steps; }

void kgen_emulator_tensor(const char* name, void* base, size_t bytes, const uint8_t* element_map, size_t element_bytes, int writable) {
    kgen::emulator::tensors.add({name, reinterpret_cast<uintptr_t>(base), bytes, element_map, element_bytes == 0 ? 1 : element_bytes, writable != 0, 0});
}

const char* kgen_emulator_report(void) { return kgen::emulator::self.violations.text(); }

void kgen_emulator_device(int capability) { kgen::emulator::settings.capability = capability; }

void kgen_emulator_multiprocessors(int count) { kgen::emulator::settings.multiprocessors = count; }

#ifdef KGEN_PROFILE
const char* kgen_emulator_profile(void) { return kgen::emulator::profiled.text(); }
#endif

// Without the emulator, the kernels' own headers define it.
__attribute__((weak)) const char* kgen_last_error(void) { return kgen::last_error; }

__attribute__((weak)) uint32_t kgen_abi_version(void) { return KGEN_ABI_VERSION; }

}
