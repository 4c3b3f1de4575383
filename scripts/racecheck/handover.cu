// What bwd_wide_sm90 does between its warpgroups, in isolation and correct by construction: one warp passes 16 bytes
// per lane to another through shared memory, step after step, with a full and an empty mbarrier; and warpgroups meet at
// a named barrier while another one has exited.
//   handover WHICH
#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace {

enum : int {
    LANES = 1,      // every lane arrives; else lane 0, after __syncwarp
    RACE = 2,       // the reader says that it has read before it reads
    MEETING = 4,    // instead: two warpgroups meet at a named barrier, a third has exited
    PLACES = 8,     // they do so at two places of the code
};

constexpr int STEPS = 8;

__device__ uint32_t address_of(const void* shared) { return static_cast<uint32_t>(__cvta_generic_to_shared(shared)); }

__device__ void wait(uint32_t barrier, uint32_t parity) {
    asm volatile(
        "{\n.reg .pred ended;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 ended, [%0], %1;\n@!ended bra again;\n}" ::"r"(barrier), "r"(parity)
        : "memory");
}

template <int FLAGS>
__device__ void arrive(uint32_t barrier) {
    if (!(FLAGS & LANES)) __syncwarp();
    if (FLAGS & LANES || threadIdx.x % 32 == 0) asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ void meet() { asm volatile("bar.sync 1, 256;" ::: "memory"); }

template <int FLAGS>
__global__ void pattern(const float4* in, float4* out) {
    __shared__ float4 passed[128];
    __shared__ uint64_t barriers[2];
    const uint32_t full = address_of(barriers), empty = full + 8;
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
    if (threadIdx.x == 0) {
        const int count = FLAGS & LANES ? 32 : 1;
        asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(full), "r"(count) : "memory");
        asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(empty), "r"(count) : "memory");
    }
    __syncthreads();
    if (FLAGS & MEETING) {
        if (warp >= 8) return;
        const float4 mine = in[lane];
        if (FLAGS & PLACES) {
            if (warp < 4) {
                passed[threadIdx.x] = mine;
                meet();
            } else {
                meet();
                if (warp == 4) out[lane] = passed[lane];
            }
        } else {
            if (warp < 4) passed[threadIdx.x] = mine;
            meet();
            if (warp == 4) out[lane] = passed[lane];
        }
        return;
    }
    if (warp == 0) {
        for (int step = 0; step < STEPS; ++step) {
            float4 mine = in[lane];
            mine.y = step;
            wait(empty, (step & 1) ^ 1);
            passed[lane] = mine;
            arrive<FLAGS>(full);
        }
    } else if (warp == 4) {
        float4 sum = {};
        for (int step = 0; step < STEPS; ++step) {
            wait(full, step & 1);
            if (FLAGS & RACE) arrive<FLAGS>(empty);
            sum.x += passed[lane].x;
            if (!(FLAGS & RACE)) arrive<FLAGS>(empty);
        }
        out[lane] = sum;
    }
}

template <int FLAGS>
int run() {
    float4 *in, *out, host[32];
    cudaMalloc(&in, sizeof host);
    cudaMalloc(&out, sizeof host);
    for (int i = 0; i < 32; ++i) host[i] = {i + 1.0f, 0.0f, 0.0f, 0.0f};
    cudaMemcpy(in, host, sizeof host, cudaMemcpyHostToDevice);
    pattern<FLAGS><<<1, 384>>>(in, out);
    if (const cudaError_t error = cudaDeviceSynchronize()) return std::printf("launch: %s\n", cudaGetErrorString(error)), 3;
    cudaMemcpy(host, out, sizeof host, cudaMemcpyDeviceToHost);
    for (int i = 0; i < 32; ++i) {
        if (host[i].x != (i + 1.0f) * (FLAGS & MEETING ? 1 : STEPS)) return std::printf("wrong at %d\n", i), 4;
    }
    return 0;
}

}  // namespace

int main(int count, char** words) {
    if (count != 2) return 2;
    switch (std::atoi(words[1])) {
        case 0: return run<LANES>();
        case 1: return run<0>();
        case 2: return run<LANES | RACE>();
        case 3: return run<RACE>();
        case 4: return run<MEETING>();
        case 5: return run<MEETING | PLACES>();
        default: return 2;
    }
}
