#pragma once

#include <memory>
#include <vector>

#include "engine/elementwise.h"
#include "engine/groups.h"
#include "engine/network.h"
#include "engine/plain.h"

namespace qgraph::engine {

// A group of elementwise steps, on tensors that lie at `places`.
std::shared_ptr<const Chain> make_chain(const Network& network, const std::vector<Place>& places,
                                        const Group& group);

}  // namespace qgraph::engine
