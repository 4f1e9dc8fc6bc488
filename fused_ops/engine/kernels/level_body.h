// All kernels of a level. Each level includes this once, after its vectors.

#pragma once

#include "engine/kernels/depthwise_body.h"
#include "engine/kernels/map_body.h"
#include "engine/kernels/matrix_body.h"

namespace qgraph::engine::kernels {
namespace {

const Kernels kKernels{kLanes, kRows, kProducts, &run_matrix, &run_depthwise, &run_map, &max_pool};

}  // namespace
}  // namespace qgraph::engine::kernels
