#pragma once

// Calls of steps that neither kernels nor chains support: moves, reductions, pools, wide products.

#include <functional>
#include <vector>

#include "engine/groups.h"
#include "engine/layout.h"
#include "engine/network.h"

namespace qgraph::engine {

// True if a layer's weights are filters that slide over an image; otherwise they are a matrix.
bool slides(Op op);

// The call of a group of one step. `places` has the addresses of tensors.
std::function<void()> single_call(const Network& network, const std::vector<Place>& places,
                                  const Group& group, int threads, Level level);

}  // namespace qgraph::engine
