#pragma once

// The plan of a run with a given number of samples: the memory layout and the sequence of calls.

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

// Packed weights. The key is the input, the first and the last step of a call. All plans share
// them.
using Packed = std::map<std::array<uint32_t, 3>, Aligned>;

struct Call {
    std::vector<uint32_t> steps;
    std::function<void()> run;
};

struct Plan {
    std::vector<Call> calls;
    Layout layout;
};

// `kept` is true for tensors that are read after the run. Throws LoadFailure if the allowed memory
// is too small.
Plan make_plan(const Network& network, int64_t samples, const std::vector<bool>& kept,
               const Options& options, Packed& packed);

}  // namespace qgraph::engine
