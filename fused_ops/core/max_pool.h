#pragma once

#include <cstdint>

namespace qgraph {

// A max pool whose windows do not overlap, without padding. Images are [rows, columns, channels].
struct Pool {
    int64_t images, rows, columns, channels;
    int64_t height, width;              // of a window
    int64_t row_stride, column_stride;  // at least height and width
    int64_t out_rows() const { return (rows - height) / row_stride + 1; }
    int64_t out_columns() const { return (columns - width) / column_stride + 1; }
};

// The gradient of the input of a max pool, given g = d loss / d y, [images, out rows, out columns,
// channels]: each g goes to the first of the largest elements of its window, row by row; all other
// elements are 0. codes: the input, one byte for each element. `height * width` is at most 255.
void max_pool_gradient(const uint8_t* codes, bool is_signed, const float* g, float* gx,
                       const Pool& pool);

}  // namespace qgraph
