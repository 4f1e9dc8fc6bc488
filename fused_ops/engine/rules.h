// Functions that the checks of steps share: refusals, and whether samples of a batch stay separate.
#pragma once

#include "engine/network.h"

namespace qgraph::engine {

// Throws LoadFailure for a step, with its name.
[[noreturn]] void refuse(const Step& step, const Network& network, const char* what);

// Refuses a step that mixes samples, in a network whose batch is free.
void check_samples_apart(const Step& step, const Network& network);

}  // namespace qgraph::engine
