// Functions that the checks of steps share: they refuse a step, and check that it keeps the samples
// of a batch separate.
#pragma once

#include "engine/network.h"

namespace qgraph::engine {

// Throws LoadFailure; the message names the step and its op.
[[noreturn]] void refuse(const Step& step, const Network& network, const char* what);

// Refuses a step that mixes samples, in a network whose batch is free.
void check_sample_separation(const Step& step, const Network& network);

}  // namespace qgraph::engine
