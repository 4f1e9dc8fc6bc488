#pragma once

// The memory layout of the tensors of a run.

#include <cstdint>
#include <vector>

#include "engine/groups.h"
#include "engine/memory.h"
#include "engine/network.h"
#include "engine/plain.h"

namespace qgraph::engine {

struct Layout {
    std::vector<Place> places;  // for every tensor; those that are never written have no data
    Aligned memory;
    int64_t bytes;
};

// Tensors that are not needed at the same time share memory; tensors that are `kept` stay to the
// end. Throws LoadFailure if more than `most` bytes are needed.
Layout make_layout(const Network& network, const std::vector<Group>& groups, int64_t samples,
                   const std::vector<bool>& kept, int64_t most);

// True for a reshape that moves no elements.
bool is_alias(const Network& network, const Group& group);

// Throws LoadFailure if `bytes` exceeds `most`.
void check_memory(int64_t bytes, int64_t most);

}  // namespace qgraph::engine
