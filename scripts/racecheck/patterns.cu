// The last accesses of fwd_short_sm90 to shared memory, in isolation and correct by construction: one warpgroup, the
// owner, stores parts into the memory of its stages; __syncthreads; the other warpgroup loads them. Each pattern
// adds or omits one ingredient.
//   patterns WHICH
#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace {

enum : int {
    NAMED_OWNER = 1,  // the owner's warps meet at a named barrier before they store
    NAMED_ALL = 2,    // both warpgroups do, each at its own barrier
    REGISTER = 4,     // the number of the named barrier is in a register
    COPY = 8,         // a bulk copy has filled the same memory before; the owner waited for its mbarrier
    ALL_WAIT = 16,    // the other warpgroup waited for this mbarrier too
    ELSEWHERE = 32,   // the parts are in memory that no copy has written
    UNORDERED = 64,   // no __syncthreads: a race
    FENCE = 128,      // the owner issues fence.proxy.async before it stores
};

__device__ uint32_t address_of(const void* shared) { return static_cast<uint32_t>(__cvta_generic_to_shared(shared)); }

__device__ void wait(uint32_t barrier) {
    asm volatile(
        "{\n.reg .pred ended;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 ended, [%0], 0;\n@!ended bra again;\n}" ::"r"(barrier)
        : "memory");
}

template <int FLAGS>
__global__ void pattern(const float4* in, float4* out) {
    extern __shared__ __align__(1024) unsigned char bytes[];
    const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0), thread = threadIdx.x % 128;
    const bool owner = warpgroup == 0;
    const uint32_t barrier = address_of(bytes), place = address_of(bytes + 1024);
    float4* parts = reinterpret_cast<float4*>(bytes + (FLAGS & ELSEWHERE ? 8192 : 1024));
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;\nfence.mbarrier_init.release.cluster;" ::"r"(barrier) : "memory");
    }
    __syncthreads();
    float4 mine = in[thread];
    if (FLAGS & COPY) {
        if (threadIdx.x == 0) {
            asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 2048;" ::"r"(barrier) : "memory");
            asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 2048, [%2];" ::"r"(place), "l"(in), "r"(barrier)
                         : "memory");
        }
        if (owner || FLAGS & ALL_WAIT) wait(barrier);
        if (owner) {
            const float4 copied = reinterpret_cast<float4*>(bytes + 1024)[thread];
            mine.x += copied.x;
        }
    }
    if (FLAGS & FENCE && owner) asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    if (FLAGS & NAMED_ALL || (FLAGS & NAMED_OWNER && owner)) {
        if (FLAGS & REGISTER) {
            asm volatile("bar.sync %0, 128;" ::"r"(1 + warpgroup) : "memory");
        } else if (owner) {
            asm volatile("bar.sync 1, 128;" ::: "memory");
        } else {
            asm volatile("bar.sync 2, 128;" ::: "memory");
        }
    }
    if (owner) parts[thread] = mine;
    if (!(FLAGS & UNORDERED)) __syncthreads();
    if (!owner) out[thread] = parts[thread];
}

template <int FLAGS>
int run() {
    float4 *in, *out, host[128];
    cudaMalloc(&in, sizeof host);
    cudaMalloc(&out, sizeof host);
    for (int i = 0; i < 128; ++i) host[i] = {i + 1.0f, 0.0f, 0.0f, 0.0f};
    cudaMemcpy(in, host, sizeof host, cudaMemcpyHostToDevice);
    pattern<FLAGS><<<1, 256, 16384>>>(in, out);
    if (const cudaError_t error = cudaDeviceSynchronize()) return std::printf("launch: %s\n", cudaGetErrorString(error)), 3;
    cudaMemcpy(host, out, sizeof host, cudaMemcpyDeviceToHost);
    for (int i = 0; i < 128; ++i) {
        if (host[i].x != (i + 1.0f) * (FLAGS & COPY ? 2 : 1)) return std::printf("wrong at %d\n", i), 4;
    }
    return 0;
}

}  // namespace

int main(int count, char** words) {
    if (count != 2) return 2;
    switch (std::atoi(words[1])) {
        case 0: return run<0>();
        case 1: return run<UNORDERED>();
        case 2: return run<NAMED_ALL>();
        case 3: return run<NAMED_OWNER>();
        case 4: return run<NAMED_ALL | REGISTER>();
        case 5: return run<NAMED_OWNER | REGISTER>();
        case 6: return run<COPY>();
        case 7: return run<COPY | ALL_WAIT>();
        case 8: return run<COPY | NAMED_OWNER | REGISTER>();
        case 9: return run<COPY | NAMED_ALL | REGISTER>();
        case 10: return run<COPY | ALL_WAIT | NAMED_OWNER | REGISTER>();
        case 11: return run<COPY | ALL_WAIT | NAMED_ALL | REGISTER>();
        case 12: return run<COPY | ELSEWHERE | NAMED_OWNER | REGISTER>();
        case 13: return run<COPY | FENCE | NAMED_OWNER | REGISTER>();
        default: return 2;
    }
}
