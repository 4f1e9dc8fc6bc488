// Launches kernels and checks their arguments. Both .cu files include it.
#pragma once

#include <cuda_runtime.h>

#include "cuda/reduce_grid.h"

#define QGRAPH_EXPORT extern "C" __attribute__((visibility("default")))

namespace qgraph {

constexpr unsigned kMaxBlocks = 0x7fffffff;

inline const char* text(cudaError_t error) {
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

// The error in the sizes of a tensor, or null.
inline const char* wrong_channels(int64_t count, int64_t channels, int rounding) {
    if (rounding < 0 || rounding >= kRoundings) return "rounding must be 0 to 4";
    if (count < 0 || channels < 1 || count % channels != 0) {
        return "count must be a multiple of channels, and channels must be at least 1";
    }
    return channels > kMaxChannels ? "the tensor has too many channels" : nullptr;
}

inline bool aligned(const void* p, size_t alignment) {
    return reinterpret_cast<uintptr_t>(p) % alignment == 0;
}

namespace {

__device__ inline Place here() {
    return {blockIdx.x, static_cast<int>(threadIdx.x), static_cast<int>(threadIdx.y),
            static_cast<int>(blockDim.y)};
}

__global__ void __launch_bounds__(kTile* kSpans) reduce(const Reductions reductions) {
    __shared__ SpanSums shared;
    __shared__ double lanes[kTile];
    Place place = here();
    const Reduction& reduction = reductions.at(place.block);
    double total = 0;
    for (int64_t round = 0; round < reduction.rounds(); ++round) {
        add_blocks(reduction, place, round, shared);
        __syncthreads();
        if (place.y == 0) total = add_spans(total, place, shared);
        __syncthreads();
    }
    if (place.y != 0) return;
    lanes[place.x] = total;
    for (int half = reduction.lanes ? kTile / 2 : 0; half > 0; half /= 2) {
        __syncwarp();
        fold_lanes(place, half, lanes);
    }
    __syncwarp();
    finish(reduction, place, lanes);
}

const char* launch_reduce(const Reductions& reductions, void* stream) {
    return launch(reduce, reductions.tiles(), dim3(kTile, kSpans), stream, reductions);
}

}  // namespace
}  // namespace qgraph
