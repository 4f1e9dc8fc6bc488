#ifdef __AVX2__
#include "core/kernel_tables.h"
#else
#include "core/quantize_tile.h"
#endif

namespace qgraph {

const TileKernels* avx2_kernels() {
#ifdef __AVX2__
    return &kKernels;
#else
    return nullptr;
#endif
}

}  // namespace qgraph
