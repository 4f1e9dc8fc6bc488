#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "engine/elementwise.h"
#include "engine/groups.h"
#include "engine/network.h"
#include "engine/plain.h"

namespace qgraph::engine {

// A chain, with the memory that it points to.
struct OwnedChain {
    Chain chain{};
    DepthwiseSums sums{};
    std::vector<Micro> micros;
    std::deque<std::vector<char>> arrays;
};

// Makes the chain of a group of elementwise steps, which may begin with a depthwise convolution.
// `places` has the addresses of tensors.
std::shared_ptr<const OwnedChain> make_chain(const Network& network,
                                             const std::vector<Place>& places, const Group& group,
                                             Level level);

}  // namespace qgraph::engine
