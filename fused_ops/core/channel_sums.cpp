#include "core/channel_sums.h"

#include <algorithm>

#include "core/parallel.h"

namespace qgraph {
namespace {

// Number of sums that stay in registers from row to row.
constexpr int64_t kColumns = 64;

QGRAPH_DISPATCH void add_rows(const float* x, int64_t rows, int64_t stride, double* sums) {
    double held[kColumns] = {};
    for (int64_t row = 0; row < rows; ++row, x += stride) {
        for (int64_t i = 0; i < kColumns; ++i) held[i] += static_cast<double>(x[i]);
    }
    std::copy(held, held + kColumns, sums);
}

QGRAPH_DISPATCH void add_short_rows(const float* x, int64_t rows, int64_t stride, int64_t columns,
                                    double* sums) {
    std::fill(sums, sums + columns, 0.0);
    for (int64_t row = 0; row < rows; ++row, x += stride) {
        for (int64_t i = 0; i < columns; ++i) sums[i] += static_cast<double>(x[i]);
    }
}

}  // namespace

void channel_sums(const float* x, int64_t rows, int64_t channels, double* sums) {
    int64_t column = 0;
    for (; column + kColumns <= channels; column += kColumns) {
        add_rows(x + column, rows, channels, sums + column);
    }
    if (column < channels) {
        add_short_rows(x + column, rows, channels, channels - column, sums + column);
    }
}

}  // namespace qgraph
