// The kernels of quantize_grid.h.

#include <cstdlib>

#include "cuda/launch.h"
#include "cuda/quantize.h"
#include "cuda/quantize_grid.h"

namespace qgraph {
namespace {

constexpr int kVec = 4;            // columns per thread
constexpr int kForwardLeaves = 8;  // per thread block

template <int Vec>
constexpr int kForwardThreads = kTile / Vec * kForwardLeaves;
template <int Vec>
constexpr int kBackwardThreads = kTile / Vec * static_cast<int>(kLeaves);
// Thread blocks per multiprocessor that the compiler limits registers for: as many as need no
// spills.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
template <int Vec>
constexpr int kResident = Vec == 1 ? 1 : 3;
#else
template <int Vec>
constexpr int kResident = Vec == 1 ? 1 : 4;
#endif

template <Rounding R, Type T, int Vec>
__global__ void __launch_bounds__(kForwardThreads<Vec>) forward(const QuantizeGrid grid) {
    forward_thread<R, T, Vec>(grid, here());
}

template <Rounding R, Type T, int Vec>
__global__ void __launch_bounds__(kBackwardThreads<Vec>, kResident<Vec>)
    backward(const QuantizeGrid grid) {
    __shared__ LeafSums shared;
    backward_thread<R, T, Vec>(grid, here(), shared);
    __syncthreads();
    add_leaves(grid, here(), static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x), shared);
}

using Kernel = void (*)(QuantizeGrid);

// One for each rounding mode.
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

// Uses vectors if the number of columns and the addresses are multiples of their size.
Kernels kernels_of(const QuantizeGrid& grid, Type type) {
    const auto alignment = static_cast<size_t>(kVec * size_of(type));
    const bool vectors = grid.columns() % kVec == 0 && aligned(grid.x, alignment) &&
                         aligned(grid.g, alignment) && aligned(grid.out, alignment);
    switch (type) {
        case Type::float32:
            return vectors ? kKernels<Type::float32, kVec> : kKernels<Type::float32, 1>;
        case Type::bfloat16:
            return vectors ? kKernels<Type::bfloat16, kVec> : kKernels<Type::bfloat16, 1>;
        case Type::float16:
            return vectors ? kKernels<Type::float16, kVec> : kKernels<Type::float16, 1>;
    }
    std::abort();  // `wrong` refuses every other type
}

// The error in the arguments, or null.
const char* wrong(int64_t count, const qgraph_cuda_quantizer& q) {
    if (q.type < 0 || q.type >= kTypes) {
        return "type must be 0 (float32), 1 (bfloat16) or 2 (float16)";
    }
    return wrong_channels(count, q.channels, q.rounding);
}

Codes codes_of(const qgraph_cuda_quantizer& q) { return {q.log2_t, q.bits, q.low, q.high}; }

}  // namespace
}  // namespace qgraph

using namespace qgraph;

QGRAPH_EXPORT const char* qgraph_cuda_check() {
    int count = 0;
    return text(cudaGetDeviceCount(&count));
}

QGRAPH_EXPORT const char* qgraph_cuda_quantize(const qgraph_cuda_quantizer* q, const void* x,
                                               void* y, int64_t count, void* stream) {
    if (const char* what = wrong(count, *q)) return what;
    const QuantizeGrid grid{x, nullptr, y, count, q->channels, codes_of(*q), nullptr};
    const Kernels kernels = kernels_of(grid, static_cast<Type>(q->type));
    const int64_t blocks = (grid.leaves() + kForwardLeaves - 1) / kForwardLeaves * grid.tiles();
    const dim3 threads(kTile / kernels.vec, kForwardLeaves);
    return launch(kernels.forward[q->rounding], blocks, threads, stream, grid);
}

QGRAPH_EXPORT int64_t qgraph_cuda_workspace(int64_t count, int64_t channels) {
    const QuantizeGrid grid{nullptr, nullptr, nullptr, count, channels, {}, nullptr};
    return grid.blocks() * grid.columns() * static_cast<int64_t>(sizeof(double));
}

QGRAPH_EXPORT const char* qgraph_cuda_quantize_gradients(const qgraph_cuda_quantizer* q,
                                                         const void* x, const void* g, void* gx,
                                                         void* glog2t, int narrow, int64_t count,
                                                         void* workspace, void* stream) {
    if (const char* what = wrong(count, *q)) return what;
    const QuantizeGrid grid{
        x, g, gx, count, q->channels, codes_of(*q), static_cast<double*>(workspace)};
    const Kernels kernels = kernels_of(grid, static_cast<Type>(q->type));
    const dim3 threads(kTile / kernels.vec, kLeaves);
    const int64_t blocks = grid.blocks() * grid.tiles();
    if (const char* what = launch(kernels.backward[q->rounding], blocks, threads, stream, grid)) {
        return what;
    }
    return launch_reduce({{reduction_of(grid, {glog2t, narrow != 0})}, 1}, stream);
}
