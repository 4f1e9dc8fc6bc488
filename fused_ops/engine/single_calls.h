#pragma once

// Calls of steps that no kernel and no chain takes: moves, reductions, pools, wide products.

#include <functional>
#include <vector>

#include "engine/groups.h"
#include "engine/layout.h"
#include "engine/network.h"

namespace qgraph::engine {

// Whether a layer's weights are filters that slide over an image; else they are a matrix.
bool slides(Op op);

// The call of a group of one step, on tensors that lie at `places`.
std::function<void()> single_call(const Network& network, const std::vector<Place>& places,
                                  const Group& group, int threads, Level level);

}  // namespace qgraph::engine
