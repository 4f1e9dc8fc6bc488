#pragma once

// How a network is run on so many samples: where everything lies in memory, and which calls there
// are.

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "engine/groups.h"
#include "engine/layout.h"
#include "engine/memory.h"
#include "engine/network.h"

namespace qgraph::engine {

struct Options {
    int threads;
    Level level;
    bool fuse;
    int64_t memory;  // bytes that may be used
};

// Weights as kernels want them, by what a call reads, its first and its last step. They serve every
// plan.
using Packed = std::map<std::array<uint32_t, 3>, Aligned>;

struct Call {
    std::vector<uint32_t> steps;
    std::function<void()> run;
};

struct Plan {
    std::vector<Call> calls;
    Layout layout;
};

// `kept` states of each tensor if it is read afterwards. Throws LoadFailure where the allowed
// memory is too small.
Plan make_plan(const Network& network, int64_t samples, const std::vector<bool>& kept,
               const Options& options, Packed& packed);

}  // namespace qgraph::engine
