// The kernels of quantize_grid.h, and their launches.

#include <cuda_runtime.h>

#include "cuda/quantize.h"
#include "cuda/quantize_grid.h"

namespace qgraph {
namespace {

constexpr int kVec = 4;            // columns of a thread
constexpr int kForwardLeaves = 8;  // of a thread block
constexpr unsigned kMaxBlocks = 0x7fffffff;

template <int Vec>
constexpr int kForwardThreads = kTile / Vec * kForwardLeaves;
template <int Vec>
constexpr int kBackwardThreads = kTile / Vec * static_cast<int>(kLeaves);
// Thread blocks of a multiprocessor to make room for: as many as registers allow without spills.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
template <int Vec>
constexpr int kResident = Vec == 1 ? 1 : 3;
#else
template <int Vec>
constexpr int kResident = Vec == 1 ? 1 : 4;
#endif

__device__ Place here() {
    return {blockIdx.x, static_cast<int>(threadIdx.x), static_cast<int>(threadIdx.y),
            static_cast<int>(blockDim.y)};
}

template <Rounding R, Type T, int Vec>
__global__ void __launch_bounds__(kForwardThreads<Vec>) forward(const Grid grid) {
    forward_thread<R, T, Vec>(grid, here());
}

template <Rounding R, Type T, int Vec>
__global__ void __launch_bounds__(kBackwardThreads<Vec>, kResident<Vec>) backward(const Grid grid) {
    __shared__ LeafSums shared;
    backward_thread<R, T, Vec>(grid, here(), shared);
    __syncthreads();
    add_leaves(grid, here(), static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x), shared);
}

__global__ void __launch_bounds__(kTile* kSpans) reduce(const Grid grid, double* glog2t) {
    __shared__ SpanSums shared;
    __shared__ double lanes[kTile];
    const Place place = here();
    double total = 0;
    for (int64_t round = 0; round < rounds(grid); ++round) {
        add_blocks(grid, place, round, shared);
        __syncthreads();
        if (place.y == 0) total = add_spans(total, place, shared);
        __syncthreads();
    }
    if (place.y != 0) return;
    lanes[place.x] = total;
    for (int half = grid.channels == 1 ? kTile / 2 : 0; half > 0; half /= 2) {
        __syncwarp();
        fold_lanes(place, half, lanes);
    }
    __syncwarp();
    finish(grid, place, lanes, glog2t);
}

using Kernel = void (*)(Grid);

// Of each rounding mode.
template <Type T, int Vec>
constexpr Kernel kForward[kRoundings] = {
    forward<Rounding::half_even, T, Vec>, forward<Rounding::half_up, T, Vec>,
    forward<Rounding::half_away, T, Vec>, forward<Rounding::floor, T, Vec>,
    forward<Rounding::half_away, T, Vec>};
template <Type T, int Vec>
constexpr Kernel kBackward[kRoundings] = {
    backward<Rounding::half_even, T, Vec>, backward<Rounding::half_up, T, Vec>,
    backward<Rounding::half_away, T, Vec>, backward<Rounding::floor, T, Vec>,
    backward<Rounding::half_away, T, Vec>};

struct Kernels {
    const Kernel* forward;
    const Kernel* backward;
    int vec;
};

template <Type T, int Vec>
constexpr Kernels kKernels{kForward<T, Vec>, kBackward<T, Vec>, Vec};

// Vectors where columns and memory allow them.
Kernels kernels_of(const Grid& grid, Type type) {
    const uintptr_t alignment = static_cast<uintptr_t>(kVec * size_of(type));
    const auto aligned = [&](const void* p) {
        return reinterpret_cast<uintptr_t>(p) % alignment == 0;
    };
    const bool vectors =
        grid.columns() % kVec == 0 && aligned(grid.x) && aligned(grid.g) && aligned(grid.out);
    switch (type) {
        case Type::float32:
            return vectors ? kKernels<Type::float32, kVec> : kKernels<Type::float32, 1>;
        case Type::bfloat16:
            return vectors ? kKernels<Type::bfloat16, kVec> : kKernels<Type::bfloat16, 1>;
        default:
            return vectors ? kKernels<Type::float16, kVec> : kKernels<Type::float16, 1>;
    }
}

// What is wrong with the arguments, or null.
const char* wrong(const Grid& grid, int type, int rounding) {
    if (type < 0 || type >= kTypes) return "type must be 0 (float32), 1 (bfloat16) or 2 (float16)";
    if (rounding < 0 || rounding >= kRoundings) return "rounding must be 0 to 4";
    if (grid.count < 0 || grid.channels < 1 || grid.count % grid.channels != 0) {
        return "count must be a multiple of the channels, of which there is at least one";
    }
    return grid.channels > kMaxChannels ? "there are too many channels" : nullptr;
}

const char* text(cudaError_t error) {
    return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

template <class... Arguments>
const char* launch(void (*kernel)(Arguments...), int64_t blocks, dim3 threads, void* stream,
                   Arguments... arguments) {
    if (blocks == 0) return nullptr;
    if (blocks > kMaxBlocks) return "the tensor is too large";
    void* pointers[] = {&arguments...};
    return text(cudaLaunchKernel(reinterpret_cast<const void*>(kernel),
                                 static_cast<unsigned>(blocks), threads, pointers, 0,
                                 static_cast<cudaStream_t>(stream)));
}

}  // namespace
}  // namespace qgraph

#define QGRAPH_EXPORT extern "C" __attribute__((visibility("default")))

using namespace qgraph;

QGRAPH_EXPORT const char* qgraph_cuda_check() {
    int count = 0;
    return text(cudaGetDeviceCount(&count));
}

QGRAPH_EXPORT const char* qgraph_cuda_quantize(const void* x, void* y, int type, int64_t count,
                                               const int32_t* f, int64_t channels, float low,
                                               float high, int rounding, void* stream) {
    const Grid grid{x, nullptr, y, count, f, channels, low, high, nullptr};
    if (const char* what = wrong(grid, type, rounding)) return what;
    const Kernels kernels = kernels_of(grid, static_cast<Type>(type));
    const int64_t blocks = (grid.leaves() + kForwardLeaves - 1) / kForwardLeaves * grid.tiles();
    const dim3 threads(kTile / kernels.vec, kForwardLeaves);
    return launch(kernels.forward[rounding], blocks, threads, stream, grid);
}

QGRAPH_EXPORT int64_t qgraph_cuda_workspace(int64_t count, int64_t channels) {
    const Grid grid{nullptr, nullptr, nullptr, count, nullptr, channels, 0, 0, nullptr};
    return grid.blocks() * grid.columns() * static_cast<int64_t>(sizeof(double));
}

QGRAPH_EXPORT const char* qgraph_cuda_quantize_gradients(const void* x, const void* g, void* gx,
                                                         double* glog2t, int type, int64_t count,
                                                         const int32_t* f, int64_t channels,
                                                         float low, float high, int rounding,
                                                         void* workspace, void* stream) {
    const Grid grid{x, g, gx, count, f, channels, low, high, static_cast<double*>(workspace)};
    if (const char* what = wrong(grid, type, rounding)) return what;
    const Kernels kernels = kernels_of(grid, static_cast<Type>(type));
    const dim3 threads(kTile / kernels.vec, kLeaves);
    const int64_t blocks = grid.blocks() * grid.tiles();
    if (const char* what = launch(kernels.backward[rounding], blocks, threads, stream, grid)) {
        return what;
    }
    return launch(reduce, grid.tiles(), dim3(kTile, kSpans), stream, grid, glog2t);
}
