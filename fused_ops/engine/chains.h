#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "engine/elementwise.h"
#include "engine/groups.h"
#include "engine/network.h"
#include "engine/plain.h"

namespace qgraph::engine {

// A chain with all that it points to.
struct OwnedChain {
    Chain chain{};
    DepthwiseSums sums{};
    std::vector<Micro> micros;
    std::deque<std::vector<char>> arrays;
};

// A group of elementwise steps, or of a depthwise convolution and such steps, on tensors that lie
// at `places`.
std::shared_ptr<const OwnedChain> make_chain(const Network& network,
                                             const std::vector<Place>& places, const Group& group,
                                             Level level);

}  // namespace qgraph::engine
