#include "core/quantize_body.h"

namespace qgraph {

const TileKernels* plain_kernels() { return &kKernels; }

}  // namespace qgraph
