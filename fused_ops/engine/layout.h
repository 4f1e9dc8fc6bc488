#pragma once

// Where the tensors of a run lie.

#include <cstdint>
#include <vector>

#include "engine/groups.h"
#include "engine/memory.h"
#include "engine/network.h"
#include "engine/plain.h"

namespace qgraph::engine {

struct Layout {
    std::vector<Place> places;  // of every tensor; those that are never written have no data
    Aligned memory;
    int64_t bytes;
};

// Tensors that are not needed at the same time share memory; those that are `kept` stay to the end.
// Throws LoadFailure where that takes more bytes than `most`.
Layout make_layout(const Network& network, const std::vector<Group>& groups, int64_t samples,
                   const std::vector<bool>& kept, int64_t most);

// True for a reshape that leaves the elements where they are.
bool is_alias(const Network& network, const Group& group);

// Throws LoadFailure where `bytes` are more than `most`.
void check_memory(int64_t bytes, int64_t most);

}  // namespace qgraph::engine
