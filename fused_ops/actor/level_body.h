// The table of kernels of a level. Each level includes this once, after its own multiplications.

#pragma once

#include "actor/elementwise_body.h"
#include "actor/pack_body.h"
#include "actor/product_body.h"
#include "actor/quantize_body.h"

namespace qgraph::actor {
namespace {

constexpr Kernels kKernels{&product,       &unpacked, &finite, &range,    &quantize,
                           &quantize_rows, &activate, &affine, &clip,     &layer_norm,
                           &center,        &softmax,  &add,    &multiply, &max_pool,
                           &avg_pool,      &sum_rows, &matmul, &pack,     &checksum};

}  // namespace
}  // namespace qgraph::actor
