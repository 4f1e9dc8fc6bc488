#include "core/max_pool.h"

#include <algorithm>
#include <vector>

#include "core/blocks.h"
#include "core/parallel.h"

namespace qgraph {
namespace {

// `best` are the largest codes of a window so far, `at` their taps.
template <class Code>
inline void compare_tap(const Code* codes, Code* best, uint8_t* at, uint8_t tap, int64_t channels) {
    for (int64_t i = 0; i < channels; ++i) {
        const bool above = codes[i] > best[i];
        best[i] = above ? codes[i] : best[i];
        at[i] = above ? tap : at[i];
    }
}

QGRAPH_DISPATCH void compare(const uint8_t* codes, uint8_t* best, uint8_t* at, uint8_t tap,
                             int64_t channels) {
    compare_tap(codes, best, at, tap, channels);
}

QGRAPH_DISPATCH void compare(const int8_t* codes, int8_t* best, uint8_t* at, uint8_t tap,
                             int64_t channels) {
    compare_tap(codes, best, at, tap, channels);
}

QGRAPH_DISPATCH void put(const float* g, const uint8_t* at, float* gx, uint8_t tap,
                         int64_t channels) {
    for (int64_t i = 0; i < channels; ++i) gx[i] = at[i] == tap ? g[i] : 0.0F;
}

// One row of windows, and the rows of the input up to the next one.
template <class Code>
class RowOfWindows {
  public:
    RowOfWindows(const Pool& pool, const Code* codes, const float* g, float* gx)
        : pool_(pool), codes_(codes), g_(g), gx_(gx) {}

    void run() const {
        const auto channels = static_cast<size_t>(pool_.channels);
        std::vector<Code> best(channels);
        std::vector<uint8_t> at(channels);
        for (int64_t column = 0; column < pool_.out_columns(); ++column) {
            const int64_t first = column * pool_.column_stride;
            std::copy_n(codes_ + first * pool_.channels, pool_.channels, best.data());
            std::fill(at.begin(), at.end(), uint8_t{0});
            for (int64_t tap = 1; tap < pool_.height * pool_.width; ++tap) {
                compare(codes_ + place(first, tap), best.data(), at.data(),
                        static_cast<uint8_t>(tap), pool_.channels);
            }
            for (int64_t tap = 0; tap < pool_.height * pool_.width; ++tap) {
                put(g_ + column * pool_.channels, at.data(), gx_ + place(first, tap),
                    static_cast<uint8_t>(tap), pool_.channels);
            }
        }
    }

  private:
    int64_t place(int64_t first, int64_t tap) const {
        const int64_t row = tap / pool_.width;
        return (row * pool_.columns + first + tap % pool_.width) * pool_.channels;
    }

    const Pool& pool_;
    const Code* codes_;
    const float* g_;
    float* gx_;
};

template <class Code>
void run_all(const Code* codes, const float* g, float* gx, const Pool& p) {
    const int64_t out_rows = p.out_rows();
    const int64_t line = p.columns * p.channels;
    const bool covered = p.row_stride == p.height && p.column_stride == p.width &&
                         p.out_rows() * p.height == p.rows &&
                         p.out_columns() * p.width == p.columns;
    const int64_t count = p.images * p.rows * line;
    parallel_tasks(p.images * out_rows, count / kGrain, [&](int64_t task) {
        const int64_t out_row = task % out_rows;
        const int64_t row = task / out_rows * p.rows + out_row * p.row_stride;
        const bool last = out_row + 1 == out_rows;
        if (!covered) {
            const int64_t rows = last ? p.rows - out_row * p.row_stride : p.row_stride;
            std::fill_n(gx + row * line, rows * line, 0.0F);
        }
        RowOfWindows<Code>(p, codes + row * line, g + task * p.out_columns() * p.channels,
                           gx + row * line)
            .run();
    });
}

}  // namespace

void max_pool_gradient(const uint8_t* codes, bool is_signed, const float* g, float* gx,
                       const Pool& pool) {
    if (is_signed) {
        run_all(reinterpret_cast<const int8_t*>(codes), g, gx, pool);
    } else {
        run_all(codes, g, gx, pool);
    }
}

}  // namespace qgraph
