#ifdef __AVX512F__
#include "core/kernel_tables.h"
#else
#include "core/quantize_tile.h"
#endif

namespace qgraph {

const TileKernels* avx512_kernels() {
#ifdef __AVX512F__
    return &kKernels;
#else
    return nullptr;
#endif
}

}  // namespace qgraph
