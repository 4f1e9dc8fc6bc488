#pragma once

// The kernels of actors, compiled once for each instruction set. All give the same bits as
// qgraph/rl/actor/plain.py. They allocate no memory and do not check their arguments.

#include <cstdint>

#include "actor/ops.h"
#include "engine/kernels/kernels.h"

namespace qgraph::actor {

using engine::Level;

enum class Storage : uint32_t { float32, float16, int8, int4 };

// A kernel as stored in a block: [segments, length, outputs] in panels.
struct Panels {
    Storage storage;
    int64_t segments, length, outputs;
    const char* data;
    const float* scale;   // for integers
    const int32_t* sums;  // for integers: the sum of the codes of each output; must be right
};
// Values of a segment with its padding, and bytes of one output channel.
constexpr int64_t rows_of(Storage storage, int64_t length) {
    const int64_t group = storage == Storage::int8 ? 4 : storage == Storage::int4 ? 8 : 1;
    return (length + group - 1) / group * group;
}
constexpr int64_t bytes_of(Storage storage, int64_t segments, int64_t length) {
    const int64_t values = segments * rows_of(storage, length);
    return storage == Storage::float32   ? values * 4
           : storage == Storage::float16 ? values * 2
           : storage == Storage::int8    ? values
                                         : values / 2;
}
constexpr int64_t padded(int64_t outputs) { return (outputs + 15) / 16 * 16; }

// How an input was quantized.
struct Range {
    float delta;
    float inverse;
    int32_t zero;
};

// Rows of inputs times a kernel. A row is one pixel of a convolution's output, or one sample.
struct Product {
    Panels kernel;
    const float* bias;
    Activation activation;
    float alpha;
    const char* x;          // codes, or floats for a kernel of floats
    int64_t sample;         // bytes from one sample to the next
    int64_t segment;        // bytes from one segment of a row to the next
    const int64_t* pixels;  // where each pixel begins, in bytes from the start of its sample
    int64_t pixel_count;
    int64_t samples;
    const Range* ranges;  // for each sample, for integers
    float* y;             // [samples, pixel_count, outputs]
    char* unpacked;       // memory for an unpacked panel, or null
};

// Rows [count, size].
struct Rows {
    const float* x;
    float* y;
    int64_t count;
    int64_t size;
};

struct Pool {
    const float* x;  // [height, width, channels]
    float* y;        // [out_height, out_width, channels]
    int64_t height, width, channels;
    int64_t out_height, out_width;
    int64_t ksize[2], strides[2];
    int64_t top, left;
};

// a [rows, depth] times b [depth, columns].
struct Matrices {
    const float* a;
    const float* b;
    float* y;
    int64_t rows, depth, columns;
};

struct Kernels {
    void (*product)(const Product& product);
    // Bytes that an unpacked panel with this many values per channel needs; 0 if unpacking is not
    // faster for this many rows.
    int64_t (*unpacked)(Storage storage, int64_t values, int64_t rows);
    bool (*finite)(const float* x, int64_t count);
    Range (*range)(const float* x, int64_t count);
    // Writes whole vectors: up to 15 codes after the end.
    void (*quantize)(const float* x, int64_t count, Range range, uint8_t* codes);
    // Range and codes for rows [rows, size]; rows of codes are `row` bytes apart.
    void (*quantize_rows)(const float* x, int64_t rows, int64_t size, Range* ranges, uint8_t* codes,
                          int64_t row);
    void (*activate)(Rows rows, Activation activation, float alpha);
    void (*affine)(Rows rows, const float* scale, const float* offset);
    void (*clip)(Rows rows, const float* low, const float* high);
    void (*layer_norm)(Rows rows, const float* gamma, const float* beta, float epsilon);
    void (*center)(Rows rows);
    void (*softmax)(Rows rows);
    // With a second value, which has the same shape or one number for each row.
    void (*add)(Rows rows, const float* other, bool one);
    void (*multiply)(Rows rows, const float* other, bool one);
    void (*max_pool)(const Pool& pool);
    void (*avg_pool)(const Pool& pool);
    // The sum of each row, one number.
    void (*sum)(Rows rows);
    void (*matmul)(const Matrices& matrices);
    // Packs [segments, length, outputs] of float32; false if any is not finite. `inverse` is memory
    // for one number per output.
    bool (*pack)(const float* weights, const Panels& form, int high, char* data, float* scale,
                 int32_t* sums, float* inverse);
    // The part of the checksum that comes from these words, which begin at word `first`.
    uint64_t (*checksum)(const void* words, uint64_t bytes, uint64_t first);
};

// Each returns null if this build does not contain it.
const Kernels* plain_kernels();
const Kernels* avx2_kernels();
const Kernels* avx512vnni_kernels();
const Kernels* amx_kernels();
const Kernels* neon_kernels();
const Kernels* neon_dotprod_kernels();

// Null if this CPU does not support the level.
const Kernels* kernels_of(Level level);

}  // namespace qgraph::actor
