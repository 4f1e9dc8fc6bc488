#pragma once

// Chains of elementwise ops, computed in sequence on tiles that stay in the cache. This header has
// plain data only; the loops are compiled for several instruction sets (elementwise_body.h).

#include <cstdint>

#include "core/quantize.h"
#include "engine/kernels/kernels.h"
#include "engine/ops.h"
#include "engine/storage.h"

namespace qgraph::engine {

constexpr int64_t kTile = 1024;
constexpr int kAxes = 8;

// One operand of an op, broadcast to the shape of the result.
struct Operand {
    enum class Spread {
        one,       // `value` everywhere
        periodic,  // element i is values[i % period]; the array has period + kTile values of the
                   // chain's type
        dense,     // element i is data[i]
        strided,   // by `sizes` and `strides`
    };
    Spread spread;
    int64_t value;
    int64_t period;
    const void* values;
    const void* data;
    Storage storage;
    int rank;
    int64_t sizes[kAxes];
    int64_t strides[kAxes];  // in elements
};

// A depthwise convolution with one output for each channel.
struct DepthwiseSums {
    const void* x;
    Storage storage;
    const void* weights;  // [kernel, channels], of the chain's type
    int64_t height, width, channels;
    int64_t out_height, out_width;
    int64_t kernel[2], strides[2], dilations[2];
    int64_t top, left;  // padding
};

struct Micro {
    Op op;            // binary or unary; clip is expressed as maximum and minimum
    bool swapped;     // binary: the operand is the first input
    Operand operand;  // the other operand, or the shift
    Rounding rounding;
    bool wrap;
    int64_t low;
    int64_t high;
    int64_t offset;
    const void* table;  // of the chain's type
    int64_t table_size;
};

// y = the ops applied to the source in order. Intermediate values have 64 bits if `wide`, else 32.
struct Chain {
    bool wide;
    Operand source;
    const DepthwiseSums* sums;  // the source if not null
    const Micro* micros;
    int count;
    Storage storage;
    void* y;
};

// Writes the elements begin..end of y.
using RunChain = void (*)(const Chain& chain, int64_t begin, int64_t end);
RunChain chain_for(Level level);

// Each returns null if this build does not contain it.
RunChain plain_chain();
RunChain avx2_chain();
RunChain avx512_chain();

// y[i] = x[i * stride], converted to the type of y; higher bits are dropped.
void convert(const void* x, Storage from, int64_t stride, void* y, Storage to, int64_t count);

}  // namespace qgraph::engine
