#include "core/rounding.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "core/parallel.h"
#include "core/quantize_tile.h"
#include "core/rounding_tile.h"

namespace qgraph {
namespace {

// Rows that are rounded before all others are updated: the numbers that are added stay in the
// first-level cache. The order of sums does not depend on it.
constexpr int64_t kRows = 64;
constexpr int64_t kGrainMultiplies = 1 << 20;
// A step must gain more than rounding errors. Otherwise it could be undone and repeated for ever.
constexpr double kHalf = 0.5 + 1e-9;

double nearest(double x, double low, double high) {
    const double inside = x < low ? low : (x > high ? high : x);
    constexpr double kWhole = 0x1.8p52;  // sums with it are whole
    return (inside + kWhole) - kWhole;
}

// The matrix is symmetric: its row is its column.
QGRAPH_DISPATCH void add_step(const double* row, double step, double* slope, int64_t count) {
    for (int64_t i = 0; i < count; ++i) slope[i] += row[i] * step;
}

// Some columns of one problem.
class Columns {
  public:
    Columns(const RoundingShape& shape, int64_t first)
        : kernel_(kernels().rounding),
          shape_(shape),
          rows_(shape.rows),
          first_(first),
          taken_(std::min(kRoundingColumns, shape.columns - first)),
          which_(static_cast<size_t>(kRows)),
          steps_(static_cast<size_t>(kRows * kRoundingColumns)) {}

    void round(const double* v, const double* lower, double* codes) {
        const std::vector<double> wanted = loaded(v);
        std::vector<double> left = wanted;
        std::iota(which_.begin(), which_.end(), 0);
        for (int64_t start = 0; start < rows_; start += kRows) {
            const int64_t stop = std::min(start + kRows, rows_);
            for (int64_t row = start; row < stop; ++row) {
                double* const value = left.data() + row * kRoundingColumns;
                double* const off = steps_.data() + (row - start) * kRoundingColumns;
                add(lower + row * rows_ + start, row - start, value, 1);
                for (int64_t c = 0; c < kRoundingColumns; ++c) {
                    value[c] = nearest(value[c], shape_.low, shape_.high);
                    off[c] = wanted[row * kRoundingColumns + c] - value[c];
                }
            }
            add(lower + stop * rows_ + start, stop - start, left.data() + stop * kRoundingColumns,
                rows_ - stop);
        }
        store(left, codes);
    }

    void descend(double* codes, const double* v, const double* hessian, int64_t sweeps) {
        std::vector<double> found = loaded(codes);
        const std::vector<double> slopes = slopes_of(found, loaded(v), hessian);
        // Few rows of a column move: it is changed on its own, at full length.
        std::vector<double> column(static_cast<size_t>(rows_));
        std::vector<double> slope(static_cast<size_t>(rows_));
        for (int64_t c = 0; c < taken_; ++c) {
            for (int64_t row = 0; row < rows_; ++row) {
                column[row] = found[row * kRoundingColumns + c];
                slope[row] = slopes[row * kRoundingColumns + c];
            }
            for (int64_t sweep = 0; sweep < sweeps; ++sweep) {
                if (!step_down(hessian, column.data(), slope.data())) break;
            }
            for (int64_t row = 0; row < rows_; ++row) {
                found[row * kRoundingColumns + c] = column[row];
            }
        }
        store(found, codes);
    }

  private:
    // Adds the products of `count` columns of `factors`, given by which_, with steps_.
    void add(const double* factors, int64_t count, double* sums, int64_t rows) const {
        kernel_({factors, rows_, which_.data(), steps_.data(), count, sums, rows});
    }

    // Steps through the rows of one column; false if no code was changed.
    bool step_down(const double* hessian, double* codes, double* slope) const {
        bool moved = false;
        for (int64_t row = 0; row < rows_; ++row) {
            const double* curvature = hessian + row * rows_;
            if (!(std::fabs(slope[row]) > curvature[row] * kHalf)) continue;
            const double step = slope[row] > 0 ? -1 : 1;
            const double next = codes[row] + step;
            if (next < shape_.low || next > shape_.high) continue;
            codes[row] = next;
            add_step(curvature, step, slope, rows_);
            moved = true;
        }
        return moved;
    }

    // H (q - v).
    std::vector<double> slopes_of(const std::vector<double>& codes, const std::vector<double>& v,
                                  const double* hessian) {
        std::vector<double> result(codes.size());
        std::iota(which_.begin(), which_.end(), 0);
        for (int64_t start = 0; start < rows_; start += kRows) {
            const int64_t count = std::min(kRows, rows_ - start);
            for (int64_t i = 0; i < count * kRoundingColumns; ++i) {
                const int64_t at = start * kRoundingColumns + i;
                steps_[i] = codes[at] - v[at];
            }
            add(hessian + start, count, result.data(), rows_);
        }
        return result;
    }

    // The columns of a matrix, zeros where it has none.
    std::vector<double> loaded(const double* matrix) const {
        std::vector<double> result(static_cast<size_t>(rows_ * kRoundingColumns));
        for (int64_t row = 0; row < rows_; ++row) {
            std::copy_n(matrix + row * shape_.columns + first_, taken_,
                        result.data() + row * kRoundingColumns);
        }
        return result;
    }

    void store(const std::vector<double>& values, double* matrix) const {
        for (int64_t row = 0; row < rows_; ++row) {
            std::copy_n(values.data() + row * kRoundingColumns, taken_,
                        matrix + row * shape_.columns + first_);
        }
    }

    RoundingKernel kernel_;
    const RoundingShape& shape_;
    int64_t rows_, first_, taken_;
    std::vector<int32_t> which_;
    std::vector<double> steps_;  // [kRows, kRoundingColumns]
};

// body(group, first column) for all columns of all problems.
void for_columns(const RoundingShape& s, const std::function<void(int64_t, int64_t)>& body) {
    const int64_t blocks = (s.columns + kRoundingColumns - 1) / kRoundingColumns;
    const int64_t work = s.groups * s.rows * s.rows * blocks * kRoundingColumns;
    parallel_tasks(s.groups * blocks, work / kGrainMultiplies,
                   [&](int64_t task) { body(task / blocks, task % blocks * kRoundingColumns); });
}

}  // namespace

void round_in_turn(const double* v, const double* lower, double* codes, const RoundingShape& s) {
    for_columns(s, [&](int64_t group, int64_t first) {
        const int64_t at = group * s.rows * s.columns;
        Columns(s, first).round(v + at, lower + group * s.rows * s.rows, codes + at);
    });
}

void descend(double* codes, const double* v, const double* hessian, int64_t sweeps,
             const RoundingShape& s) {
    for_columns(s, [&](int64_t group, int64_t first) {
        const int64_t at = group * s.rows * s.columns;
        const double* square = hessian + group * s.rows * s.rows;
        Columns(s, first).descend(codes + at, v + at, square, sweeps);
    });
}

}  // namespace qgraph
