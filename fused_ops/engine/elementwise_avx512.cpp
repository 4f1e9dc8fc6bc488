#ifdef __AVX512BW__
#include "engine/elementwise_body.h"
#else
#include "engine/elementwise.h"
#endif

namespace qgraph::engine {

RunChain avx512_chain() {
#ifdef __AVX512BW__
    return &run_chain;
#else
    return nullptr;
#endif
}

}  // namespace qgraph::engine
