#include "core/kernel_tables.h"

namespace qgraph {

const TileKernels* plain_kernels() { return &kKernels; }

}  // namespace qgraph
