#pragma once

// Ops that look at one element at a time, one after the other on tiles that stay in the cache.

#include <cstdint>
#include <vector>

#include "core/quantize.h"
#include "engine/storage.h"

namespace qgraph::engine {

constexpr int64_t kTile = 1024;

// One side of an op, spread over the shape of the result.
struct Operand {
    enum class Spread {
        one,       // `value` everywhere
        periodic,  // element i is at i % period; a constant, in the type of the chain
        dense,     // element i is at i
        strided,   // as `sizes` and `strides` say
    };
    Spread spread = Spread::one;
    int64_t value = 0;
    int64_t period = 0;
    std::vector<char> repeated;  // periodic: period + kTile of them
    const void* data = nullptr;  // dense and strided
    Storage storage = Storage::i64;
    std::vector<int64_t> sizes;
    std::vector<int64_t> strides;  // in elements
};

struct Micro {
    enum class Kind { add, sub, sub_from, mul, maximum, minimum, requantize, lookup };
    Kind kind;
    Operand operand{};  // the other side; the shift; the table (dense, in the type of the chain)
    Rounding rounding = Rounding::half_even;
    bool wrap = false;
    int64_t low = 0;
    int64_t high = 0;
    int64_t offset = 0;
    std::vector<char> table{};
    int64_t table_size = 0;
};

// y = the ops, in order, on the source. Where it is wide, values are 64 bits on the way, else 32.
struct Chain {
    bool wide = true;
    Operand source;
    std::vector<Micro> micros;
    Storage storage = Storage::i64;
    void* y = nullptr;
};

// Writes the elements begin..end of y.
void run(const Chain& chain, int64_t begin, int64_t end);

// A constant whose element i is values[i % period].
Operand repeated(const std::vector<int64_t>& values, bool wide);

// Values in the type of a chain.
std::vector<char> typed(const std::vector<int64_t>& values, bool wide);

// count elements of x as int64.
std::vector<int64_t> widened(const void* x, Storage storage, int64_t count);

// y[i] = x[i * stride], converted; what y cannot hold is cut off.
void convert(const void* x, Storage from, int64_t stride, void* y, Storage to, int64_t count);

}  // namespace qgraph::engine
