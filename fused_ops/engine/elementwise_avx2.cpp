#ifdef __AVX2__
#include "engine/elementwise_body.h"
#else
#include "engine/elementwise.h"
#endif

namespace qgraph::engine {

RunChain avx2_chain() {
#ifdef __AVX2__
    return &run_chain;
#else
    return nullptr;
#endif
}

}  // namespace qgraph::engine
