#include "engine/elementwise_body.h"

namespace qgraph::engine {

RunChain plain_chain() { return &run_chain; }

void convert(const void* x, Storage from, int64_t stride, void* y, Storage to, int64_t count) {
    convert_any(x, from, stride, y, to, count);
}

RunChain chain_for(Level level) {
    RunChain found = nullptr;
    if (has_avx512(level)) found = avx512_chain();
    if (level == Level::avx2) found = avx2_chain();
    return found != nullptr ? found : plain_chain();
}

}  // namespace qgraph::engine
