#pragma once

#include <optional>
#include <vector>

#include "engine/elementwise.h"
#include "engine/kernels/kernels.h"
#include "engine/ops.h"

namespace qgraph::engine {

// The source of the operand of a micro op.
enum class Side { none, other_input, lows, highs, shifts, table };

struct MicroForm {
    Op op;
    Side side;
};

// How the engine computes an elementwise op.
struct PointwiseForm {
    std::vector<MicroForm> micros;     // in a chain, in order
    std::optional<Stage::Kind> stage;  // in a kernel, after a sum; empty if kernels lack it
};

// The form of a binary or unary op.
PointwiseForm pointwise_form(Op op);

}  // namespace qgraph::engine
