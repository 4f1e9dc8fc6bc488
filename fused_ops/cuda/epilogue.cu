// The kernels of epilogue_grid.h.

#include "cuda/epilogue.h"
#include "cuda/epilogue_grid.h"
#include "cuda/launch.h"

namespace qgraph {
namespace {

constexpr int kVec = 4;
// Thread blocks per multiprocessor that the compiler limits registers for: as many as shared memory
// holds.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
constexpr int kResident = 3;
#else
constexpr int kResident = 4;
#endif

template <Rounding R, Activation A, int Vec>
__global__ void __launch_bounds__(kThreads) forward(const EpilogueGrid grid) {
    epilogue_thread<R, A, Vec>(grid, here());
}

template <Rounding R, Activation A>
__global__ void __launch_bounds__(kThreads, kResident) backward(const EpilogueGrid grid) {
    __shared__ PartSums<A> shared;
    const Place place = here();
    const int thread = place.y * static_cast<int>(kLanes) + place.x;
    double total = 0;
    for (int part = 0; part < kParts; ++part) {
        epilogue_leaf<R, A>(grid, place, part, shared);
        __syncthreads();
        add_part(thread, shared, total);
        add_slots(grid, place.block, part, thread, shared);
        __syncthreads();
    }
    finish_block<A>(grid, place.block, thread, total);
}

using Kernel = void (*)(EpilogueGrid);

struct ByRounding {
    Kernel of[kRoundings];
};

template <Activation A, int Vec>
constexpr ByRounding kForward{
    {forward<Rounding::half_even, A, Vec>, forward<Rounding::half_up, A, Vec>,
     forward<Rounding::half_away, A, Vec>, forward<Rounding::floor, A, Vec>,
     forward<Rounding::half_away, A, Vec>}};
template <Activation A>
constexpr ByRounding kBackward{{backward<Rounding::half_even, A>, backward<Rounding::half_up, A>,
                                backward<Rounding::half_away, A>, backward<Rounding::floor, A>,
                                backward<Rounding::half_away, A>}};

template <int Vec>
constexpr ByRounding kForwards[kActivations] = {kForward<Activation::none, Vec>,
                                                kForward<Activation::relu, Vec>,
                                                kForward<Activation::clip, Vec>};
constexpr ByRounding kBackwards[kActivations] = {
    kBackward<Activation::none>, kBackward<Activation::relu>, kBackward<Activation::clip>};

// The error in the arguments, or null.
const char* wrong(const qgraph_cuda_epilogue& e, int64_t count) {
    if (e.activation < 0 || e.activation >= kKinds) {
        return "activation must be 0 (none), 1 (relu), 2 (relu6) or 3 (clip)";
    }
    return wrong_channels(count, e.channels, e.rounding);
}

int activation(const qgraph_cuda_epilogue& e) {
    return static_cast<int>(activation_of(static_cast<Kind>(e.activation)));
}

bool vectors(const EpilogueGrid& grid) {
    constexpr size_t kAlignment = kVec * sizeof(float);
    return grid.channels % kVec == 0 && aligned(grid.x, kAlignment) &&
           aligned(grid.out, kAlignment) && aligned(grid.bias, kAlignment) &&
           aligned(grid.high, kAlignment);
}

template <int Vec>
const char* launch_forward(const EpilogueGrid& grid, int activation, int rounding, void* stream) {
    const int64_t blocks = (grid.count + kForwardElements<Vec> - 1) / kForwardElements<Vec>;
    return launch(kForwards<Vec>[activation].of[rounding], blocks, dim3(kThreads), stream, grid);
}

}  // namespace
}  // namespace qgraph

using namespace qgraph;

QGRAPH_EXPORT const char* qgraph_cuda_epilogue_forward(const qgraph_cuda_epilogue* e,
                                                       const float* x, float* y, int64_t count,
                                                       void* stream) {
    if (const char* what = wrong(*e, count)) return what;
    const EpilogueGrid grid = grid_of(*e, x, nullptr, y, count, nullptr);
    const auto run = vectors(grid) ? launch_forward<kVec> : launch_forward<1>;
    return run(grid, activation(*e), e->rounding, stream);
}

QGRAPH_EXPORT int64_t qgraph_cuda_epilogue_workspace(int64_t count, int64_t channels,
                                                     int activation) {
    return workspace_of(count, channels, static_cast<Kind>(activation));
}

QGRAPH_EXPORT const char* qgraph_cuda_epilogue_gradients(const qgraph_cuda_epilogue* e,
                                                         const float* x, const float* g,
                                                         const qgraph_cuda_epilogue_results* to,
                                                         int64_t count, void* workspace,
                                                         void* stream) {
    if (const char* what = wrong(*e, count)) return what;
    double place = 0;  // the caller may pass no workspace for an empty tensor
    auto* sums = workspace == nullptr ? &place : static_cast<double*>(workspace);
    const EpilogueGrid grid = grid_of(*e, x, g, to->x, count, sums);
    const Kernel kernel = kBackwards[activation(*e)].of[e->rounding];
    const dim3 threads(kLanes, kPartLeaves);
    if (const char* what = launch(kernel, grid.blocks(), threads, stream, grid)) return what;
    return launch_reduce(reductions_of(grid, *to), stream);
}
