// Kernels that benches/families.py compares kgen's with, in addition to libraries: a probe of the read bandwidth, and
// the simpler steps of the ladder of transpositions. Compiled at run time:
//   nvcc -O3 -arch=native -shared -Xcompiler -fPIC -o peers.so benches/families_peers.cu
#include <cuda_runtime.h>
#include <stdint.h>

namespace {

constexpr int THREADS = 256;

__device__ uint32_t fold(uint4 v) { return v.x ^ v.y ^ v.z ^ v.w; }

// Reads `pieces` of 16 bytes. A thread writes a word to `never` if its bits fold to one value in 2^32, so the compiler
// cannot remove the loads.
template <int LOADS>
__device__ void read_tile(const uint4* in, uint64_t pieces, uint64_t first, uint32_t& folded) {
    uint4 values[LOADS];
#pragma unroll
    for (int i = 0; i < LOADS; ++i) {
        const uint64_t at = first + i * THREADS;
        values[i] = at < pieces ? __ldg(in + at) : uint4{0, 0, 0, 0};
    }
#pragma unroll
    for (int i = 0; i < LOADS; ++i) folded ^= fold(values[i]);
}

template <int LOADS>
__global__ void __launch_bounds__(THREADS) read_once(const uint4* in, uint64_t pieces, uint32_t* never) {
    uint32_t folded = 0;
    read_tile<LOADS>(in, pieces, static_cast<uint64_t>(blockIdx.x) * (THREADS * LOADS) + threadIdx.x, folded);
    if (folded == 0x9e3779b9u) *never = folded;
}

template <int LOADS>
__global__ void __launch_bounds__(THREADS) read_round(const uint4* in, uint64_t pieces, uint32_t* never) {
    uint32_t folded = 0;
    for (uint64_t first = static_cast<uint64_t>(blockIdx.x) * (THREADS * LOADS); first < pieces; first += static_cast<uint64_t>(gridDim.x) * (THREADS * LOADS)) {
        read_tile<LOADS>(in, pieces, first + threadIdx.x, folded);
    }
    if (folded == 0x9e3779b9u) *never = folded;
}

// One thread per element: reads along rows are coalesced, writes along columns are not.
template <class T>
__global__ void naive(const T* in, T* out, uint64_t rows, uint64_t columns) {
    const uint64_t column = blockIdx.x * 32ull + threadIdx.x % 32, row = blockIdx.y * 8ull + threadIdx.x / 32;
    if (row < rows && column < columns) out[column * rows + row] = in[row * columns + column];
}

// The textbook version: 32 x 32 elements through shared memory, with a column of padding.
template <class T>
__global__ void tiled(const T* in, T* out, uint64_t rows, uint64_t columns) {
    __shared__ T tile[32][33];
    const uint32_t x = threadIdx.x % 32, y = threadIdx.x / 32;
    for (uint32_t r = y; r < 32; r += 8) {
        const uint64_t row = blockIdx.y * 32ull + r, column = blockIdx.x * 32ull + x;
        if (row < rows && column < columns) tile[r][x] = in[row * columns + column];
    }
    __syncthreads();
    for (uint32_t r = y; r < 32; r += 8) {
        const uint64_t row = blockIdx.x * 32ull + r, column = blockIdx.y * 32ull + x;
        if (row < columns && column < rows) out[row * rows + column] = tile[x][r];
    }
}

template <class T>
int transpose(bool in_tiles, const void* in, void* out, uint64_t rows, uint64_t columns, cudaStream_t stream) {
    const unsigned height = in_tiles ? 32 : 8;
    const dim3 grid((columns + 31) / 32, (rows + height - 1) / height);
    if (in_tiles) {
        tiled<<<grid, THREADS, 0, stream>>>(static_cast<const T*>(in), static_cast<T*>(out), rows, columns);
    } else {
        naive<<<grid, THREADS, 0, stream>>>(static_cast<const T*>(in), static_cast<T*>(out), rows, columns);
    }
    return cudaGetLastError();
}

template <int LOADS>
int probe(int blocks, const void* in, uint64_t bytes, void* never, cudaStream_t stream) {
    const uint64_t pieces = bytes / 16;
    const auto* from = static_cast<const uint4*>(in);
    auto* to = static_cast<uint32_t*>(never);
    if (blocks == 0) {
        read_once<LOADS><<<(pieces + THREADS * LOADS - 1) / (THREADS * LOADS), THREADS, 0, stream>>>(from, pieces, to);
    } else {
        read_round<LOADS><<<blocks, THREADS, 0, stream>>>(from, pieces, to);
    }
    return cudaGetLastError();
}

}  // namespace

// Reads `bytes` (a multiple of 16) with `loads` (4 or 8) in flight per thread, with `blocks` blocks in a grid-stride
// loop, or with one block per tile if `blocks` is 0.
extern "C" int peer_read(int loads, int blocks, const void* in, uint64_t bytes, void* never, cudaStream_t stream) {
    return loads == 4 ? probe<4>(blocks, in, bytes, never, stream) : probe<8>(blocks, in, bytes, never, stream);
}

// Transposes a matrix of elements of 1, 2 or 4 bytes: by `tiled` if `in_tiles`, else by `naive`.
extern "C" int peer_transpose(int in_tiles, int element_bytes, const void* in, void* out, uint64_t rows, uint64_t columns, cudaStream_t stream) {
    switch (element_bytes) {
        case 1: return transpose<uint8_t>(in_tiles, in, out, rows, columns, stream);
        case 2: return transpose<uint16_t>(in_tiles, in, out, rows, columns, stream);
        default: return transpose<uint32_t>(in_tiles, in, out, rows, columns, stream);
    }
}
