#pragma once

// Groups of steps that become one call of a kernel.

#include <cstdint>
#include <vector>

#include "engine/kernels/kernels.h"
#include "engine/network.h"

namespace qgraph::engine {

struct Group {
    enum class Kind {
        linear,  // convolution or product, then stages: one call of a kernel
        map,     // a, or a + b, then stages: one call of a kernel
        chain,   // any elementwise steps; the first step may be a depthwise convolution
        single,  // one step of any other kind, or a linear one of types that kernels do not take
    };
    Kind kind;
    std::vector<uint32_t> steps;  // in order; the last one makes the output
    Window window;                // linear: includes the padding of a pad step in front
    uint32_t x;                   // what the first step reads
    bool leading_add;             // map: the first step is a + b; the others are stages
};

// The groups in an order in which they can run. `kept` is true for tensors that are read from
// outside.
std::vector<Group> group(const Network& network, const std::vector<bool>& kept, bool fuse);

// The type of a tensor for kernels; false if kernels do not support it.
bool code_of(const Tensor& tensor, Code& code);

// The stage of a step after a sum. Its numbers are stored in `memory`, which must outlive the
// stage.
struct StageNumbers {
    std::vector<int32_t> first;
    std::vector<int32_t> second;
};
Stage stage_of(const Network& network, const Step& step, StageNumbers& memory);

}  // namespace qgraph::engine
