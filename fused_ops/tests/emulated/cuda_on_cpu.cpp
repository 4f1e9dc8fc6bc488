// The functions of cuda/quantize.h and cuda/epilogue.h on the CPU, so that their callers can be
// tested without a GPU. The threads of a kernel run one after the other, one element at a time.

#include "core/quantize.h"
#include "cuda/quantize.h"
#include "tests/emulated/cuda_epilogue.h"
#include "tests/emulated/cuda_quantize.h"

namespace qgraph {
namespace {

template <typename F>
void with_rounding(int rounding, F f) {
    switch (static_cast<Rounding>(rounding)) {
        case Rounding::half_even:
            return f(std::integral_constant<Rounding, Rounding::half_even>());
        case Rounding::half_up:
            return f(std::integral_constant<Rounding, Rounding::half_up>());
        case Rounding::floor:
            return f(std::integral_constant<Rounding, Rounding::floor>());
        default:
            return f(std::integral_constant<Rounding, Rounding::half_away>());
    }
}

template <typename F>
void with_type(int type, F f) {
    switch (static_cast<Type>(type)) {
        case Type::float32:
            return f(std::integral_constant<Type, Type::float32>());
        case Type::bfloat16:
            return f(std::integral_constant<Type, Type::bfloat16>());
        default:
            return f(std::integral_constant<Type, Type::float16>());
    }
}

template <typename F>
void with_activation(int kind, F f) {
    switch (activation_of(static_cast<Kind>(kind))) {
        case Activation::none:
            return f(std::integral_constant<Activation, Activation::none>());
        case Activation::relu:
            return f(std::integral_constant<Activation, Activation::relu>());
        default:
            return f(std::integral_constant<Activation, Activation::clip>());
    }
}

QuantizeGrid quantize_grid(const qgraph_cuda_quantizer& q, const void* x, const void* g, void* out,
                           int64_t count, void* workspace) {
    const Codes codes{q.log2_t, q.bits, q.low, q.high};
    return {x, g, out, count, q.channels, codes, static_cast<double*>(workspace)};
}

}  // namespace
}  // namespace qgraph

using namespace qgraph;

extern "C" {

void* qgraph_stream(void* context) { return context; }

const char* qgraph_cuda_check() { return nullptr; }

const char* qgraph_cuda_quantize(const qgraph_cuda_quantizer* q, const void* x, void* y,
                                 int64_t count, void*) {
    const QuantizeGrid grid = quantize_grid(*q, x, nullptr, y, count, nullptr);
    with_rounding(q->rounding, [&](auto r) {
        with_type(q->type, [&](auto t) { run_forward<r.value, t.value, 1>(grid); });
    });
    return nullptr;
}

int64_t qgraph_cuda_workspace(int64_t count, int64_t channels) {
    const QuantizeGrid grid{nullptr, nullptr, nullptr, count, channels, {}, nullptr};
    return grid.blocks() * grid.columns() * static_cast<int64_t>(sizeof(double));
}

const char* qgraph_cuda_quantize_gradients(const qgraph_cuda_quantizer* q, const void* x,
                                           const void* g, void* gx, void* glog2t, int narrow,
                                           int64_t count, void* workspace, void*) {
    const QuantizeGrid grid = quantize_grid(*q, x, g, gx, count, workspace);
    with_rounding(q->rounding, [&](auto r) {
        with_type(q->type, [&](auto t) { run_backward<r.value, t.value, 1>(grid); });
    });
    run_reduce({{reduction_of(grid, {glog2t, narrow != 0})}, 1});
    return nullptr;
}

const char* qgraph_cuda_epilogue_forward(const qgraph_cuda_epilogue* e, const float* x, float* y,
                                         int64_t count, void*) {
    const EpilogueGrid grid = grid_of(*e, x, nullptr, y, count, nullptr);
    with_rounding(e->rounding, [&](auto r) {
        with_activation(e->activation, [&](auto a) { run_epilogue<r.value, a.value, 1>(grid); });
    });
    return nullptr;
}

int64_t qgraph_cuda_epilogue_workspace(int64_t count, int64_t channels, int activation) {
    return workspace_of(count, channels, static_cast<Kind>(activation));
}

const char* qgraph_cuda_epilogue_gradients(const qgraph_cuda_epilogue* e, const float* x,
                                           const float* g, const qgraph_cuda_epilogue_results* to,
                                           int64_t count, void* workspace, void*) {
    const EpilogueGrid grid = grid_of(*e, x, g, to->x, count, static_cast<double*>(workspace));
    with_rounding(e->rounding, [&](auto r) {
        with_activation(e->activation,
                        [&](auto a) { run_epilogue_gradients<r.value, a.value>(grid); });
    });
    run_reduce(reductions_of(grid, *to));
    return nullptr;
}

}  // extern "C"
