#pragma once

// Ops that look at one element at a time, one after the other on tiles that stay in the cache. Only
// plain data here: the loops are compiled for several instruction sets (elementwise_body.h).

#include <cstdint>

#include "core/quantize.h"
#include "engine/kernels/kernels.h"
#include "engine/ops.h"
#include "engine/storage.h"

namespace qgraph::engine {

constexpr int64_t kTile = 1024;
constexpr int kAxes = 8;

// One side of an op, spread over the shape of the result.
struct Operand {
    enum class Spread {
        one,       // `value` everywhere
        periodic,  // element i is values[i % period]; there are period + kTile, of the chain's type
        dense,     // element i is data[i]
        strided,   // as `sizes` and `strides` say
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
    Op op;            // binary or unary, not clip: that is maximum and minimum
    bool swapped;     // binary: the operand is the first input
    Operand operand;  // the other side; the shift
    Rounding rounding;
    bool wrap;
    int64_t low;
    int64_t high;
    int64_t offset;
    const void* table;  // of the chain's type
    int64_t table_size;
};

// y = the ops, in order, on the source. Where it is wide, values are 64 bits on the way, else 32.
struct Chain {
    bool wide;
    Operand source;
    const DepthwiseSums* sums;  // the source, where there are
    const Micro* micros;
    int count;
    Storage storage;
    void* y;
};

// Writes the elements begin..end of y.
using RunChain = void (*)(const Chain& chain, int64_t begin, int64_t end);
RunChain chain_for(Level level);

// Each is null where it isn't compiled in.
RunChain plain_chain();
RunChain avx2_chain();
RunChain avx512_chain();

// y[i] = x[i * stride], converted; what y cannot hold is cut off.
void convert(const void* x, Storage from, int64_t stride, void* y, Storage to, int64_t count);

}  // namespace qgraph::engine
