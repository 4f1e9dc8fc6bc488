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

QGRAPH_DISPATCH void add_squares_of_rows(const float* x, const double* centre, int64_t rows,
                                         int64_t stride, double* sums) {
    double held[kColumns] = {};
    for (int64_t row = 0; row < rows; ++row, x += stride) {
        for (int64_t i = 0; i < kColumns; ++i) {
            const double off = static_cast<double>(x[i]) - centre[i];
            held[i] += off * off;
        }
    }
    std::copy(held, held + kColumns, sums);
}

QGRAPH_DISPATCH void add_squares_of_short_rows(const float* x, const double* centre, int64_t rows,
                                               int64_t stride, int64_t columns, double* sums) {
    std::fill(sums, sums + columns, 0.0);
    for (int64_t row = 0; row < rows; ++row, x += stride) {
        for (int64_t i = 0; i < columns; ++i) {
            const double off = static_cast<double>(x[i]) - centre[i];
            sums[i] += off * off;
        }
    }
}

struct Lanes {
    double signal[kSquareLanes] = {};
    double noise[kSquareLanes] = {};
};

QGRAPH_DISPATCH void add_squares(const float* x, const float* y, int64_t turns, Lanes& lanes) {
    double signal[kSquareLanes] = {};
    double noise[kSquareLanes] = {};
    for (int64_t turn = 0; turn < turns; ++turn, x += kSquareLanes, y += kSquareLanes) {
        for (int64_t i = 0; i < kSquareLanes; ++i) {
            const double exact = x[i];
            const double off = static_cast<double>(y[i]) - exact;
            signal[i] += exact * exact;
            noise[i] += off * off;
        }
    }
    std::copy(signal, signal + kSquareLanes, lanes.signal);
    std::copy(noise, noise + kSquareLanes, lanes.noise);
}

}  // namespace

Squares squares(const float* x, const float* y, int64_t count) {
    const int64_t turns = count / kSquareLanes;
    Lanes lanes;
    add_squares(x, y, turns, lanes);
    for (int64_t i = turns * kSquareLanes; i < count; ++i) {
        const double exact = x[i];
        const double off = static_cast<double>(y[i]) - exact;
        lanes.signal[i % kSquareLanes] += exact * exact;
        lanes.noise[i % kSquareLanes] += off * off;
    }
    Squares sum{0.0, 0.0};
    for (int64_t i = 0; i < kSquareLanes; ++i) {
        sum.signal += lanes.signal[i];
        sum.noise += lanes.noise[i];
    }
    return sum;
}

void channel_squares(const float* x, const double* centre, int64_t rows, int64_t channels,
                     double* sums) {
    int64_t column = 0;
    for (; column + kColumns <= channels; column += kColumns) {
        add_squares_of_rows(x + column, centre + column, rows, channels, sums + column);
    }
    if (column < channels) {
        add_squares_of_short_rows(x + column, centre + column, rows, channels, channels - column,
                                  sums + column);
    }
}

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
