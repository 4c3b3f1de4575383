// Stub of kgen/launch.cuh with only what kgen/device.cuh needs.
#pragma once

namespace kgen {

constexpr int KGEN_ERROR_LAUNCH = 9;
inline int fail(int code, const char*, ...) { return code; }

}  // namespace kgen
