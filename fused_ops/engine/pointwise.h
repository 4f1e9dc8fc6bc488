#pragma once

#include <optional>
#include <vector>

#include "engine/elementwise.h"
#include "engine/kernels/kernels.h"
#include "engine/ops.h"

namespace qgraph::engine {

// Where the operand of a micro op comes from.
enum class Side { none, other_input, lows, highs, shifts, table };

struct MicroForm {
    Op op;
    Side side;
};

// How the engine computes an op that looks at one element at a time.
struct PointwiseForm {
    std::vector<MicroForm> micros;     // in a chain, in order
    std::optional<Stage::Kind> stage;  // in a kernel, after a sum; nothing where kernels lack it
};

// The form of a binary or unary op.
PointwiseForm pointwise_form(Op op);

}  // namespace qgraph::engine
