#include "core/conv.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "core/conv_tile.h"
#include "core/parallel.h"
#include "core/quantize_tile.h"

namespace qgraph {
namespace {

static_assert(kConvDepth < kPatchStride);

constexpr int64_t kGrainMultiplies = 1 << 22;
constexpr int64_t kMostRows = 240;  // of a task: their patches fit the second cache
constexpr int64_t kColumnsOfTask = 256;

// Working memory of one task. It is on the stack, since memory that is new to the process costs
// more than a small task.
struct Scratch {
    alignas(64) float patches[kMostRows * kPatchStride];
    alignas(64) float panel[kConvDepth * kMostPanelColumns];
};

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// A part of the outputs of one group: some pixels by some columns.
class Task {
  public:
    Task(const float* x, const float* w, float* y, const ConvShape& s, int64_t group)
        : kernels_(kernels().conv),
          s_(s),
          channels_(s.channels / s.groups),
          columns_(s.outputs / s.groups),
          depth_(s.kernel_h * s.kernel_w * channels_),
          x_(x + group * channels_),
          w_(w + group * columns_),
          y_(y + group * columns_) {
        // True if a row of a filter covers consecutive numbers of an image.
        const bool joined = s.dilation_w == 1 && s.groups == 1;
        run_ = joined ? s.kernel_w * channels_ : channels_;
        runs_of_row_ = joined ? 1 : s.kernel_w;
        first_ = group * channels_;
    }

    // The rows of one of `tasks` tasks, in whole tiles; fewer if a task would have too many rows.
    int64_t rows_of_task(int64_t rows, int64_t tasks) const {
        const int64_t even = ceil_div(rows, std::max(tasks, ceil_div(rows, kMostRows)));
        return std::min(ceil_div(even, kernels_.rows), kMostRows / kernels_.rows) * kernels_.rows;
    }

    void run(int64_t first_row, int64_t rows, int64_t first_column, int64_t columns,
             Scratch& scratch) const {
        const int64_t tiles = ceil_div(rows, kernels_.rows);
        float* patches = scratch.patches;
        float* panel = scratch.panel;
        // Rows of the last tile that belong to no output.
        std::fill(patches + rows * kPatchStride, patches + tiles * kernels_.rows * kPatchStride,
                  0.0f);
        std::vector<Place> places(static_cast<size_t>(rows));
        place(first_row, places);
        for (int64_t k = 0; k < depth_; k += kConvDepth) {
            const int64_t depth = std::min(kConvDepth, depth_ - k);
            for (int64_t row = 0; row < rows; ++row) {
                gather(places[static_cast<size_t>(row)], k, depth, patches + row * kPatchStride);
            }
            for (int64_t column = 0; column < columns; column += kernels_.columns) {
                const int64_t taken = std::min(kernels_.columns, columns - column);
                const bool half = taken <= kernels_.columns / 2;
                pack(k, depth, first_column + column, taken, half, panel);
                (half ? kernels_.half : kernels_.whole)(
                    {patches, panel, y_ + first_row * s_.outputs + first_column + column, depth,
                     s_.outputs, rows, taken, k == 0});
            }
        }
    }

  private:
    // Where the patch of an output begins: an image, a row and a column. The patch may begin in the
    // padding.
    struct Place {
        const float* image;
        int64_t top, left;
    };

    void place(int64_t first_row, std::vector<Place>& places) const {
        int64_t column = first_row % s_.out_w;
        int64_t row = first_row / s_.out_w % s_.out_h;
        const int64_t image_size = s_.height * s_.width * s_.channels;
        const float* image = x_ + first_row / (s_.out_w * s_.out_h) * image_size;
        for (Place& place : places) {
            place = {image, row * s_.stride_h - s_.pad_top, column * s_.stride_w - s_.pad_left};
            if (++column < s_.out_w) continue;
            column = 0;
            if (++row < s_.out_h) continue;
            row = 0;
            image += image_size;
        }
    }

    // The inputs of an output from number k on; zeros in the padding.
    void gather(const Place& place, int64_t k, int64_t depth, float* to) const {
        int64_t run = k / run_;
        int64_t offset = k - run * run_;
        for (const float* end = to + depth; to < end; ++run, offset = 0) {
            const int64_t size = std::min<int64_t>(run_ - offset, end - to);
            const int64_t row = runs_of_row_ == 1 ? run : run / runs_of_row_;
            const int64_t y = place.top + row * s_.dilation_h;
            const int64_t x = place.left + (run - row * runs_of_row_) * s_.dilation_w;
            copy_run(place.image, y, x * s_.channels + offset, size, to);
            to += size;
        }
    }

    // The numbers of an image row from `start` on; the group begins at `first_`.
    void copy_run(const float* image, int64_t y, int64_t start, int64_t size, float* to) const {
        if (y < 0 || y >= s_.height) {
            std::fill_n(to, size, 0.0f);
            return;
        }
        const int64_t width = s_.width * s_.channels - first_;
        const int64_t low = std::clamp<int64_t>(-start - first_, 0, size);
        const int64_t high = std::clamp<int64_t>(width - start, low, size);
        const float* from = image + y * s_.width * s_.channels + start;
        if (low > 0) std::fill_n(to, low, 0.0f);
        copy(from + low, to + low, high - low);
        if (high < size) std::fill(to + high, to + size, 0.0f);
    }

    // Most runs are short, and a call would cost more than the copy.
    static void copy(const float* from, float* to, int64_t size) {
        for (; size >= 16; size -= 16, from += 16, to += 16) std::memcpy(to, from, 64);
        for (; size >= 4; size -= 4, from += 4, to += 4) std::memcpy(to, from, 16);
        for (; size > 0; --size) *to++ = *from++;
    }

    // Copies some columns of the filters into a panel.
    void pack(int64_t k, int64_t depth, int64_t column, int64_t columns, bool half,
              float* to) const {
        const int64_t width = half ? kernels_.columns / 2 : kernels_.columns;
        const float* from = w_ + k * s_.outputs + column;
        for (int64_t i = 0; i < depth; ++i, from += s_.outputs, to += width) {
            copy(from, to, columns);
            for (int64_t j = columns; j < width; ++j) to[j] = 0.0f;
        }
    }

    const ConvKernels& kernels_;
    const ConvShape& s_;
    int64_t channels_, columns_, depth_;  // of the group
    const float* x_;
    const float* w_;
    float* y_;
    int64_t run_, runs_of_row_, first_;
};

}  // namespace

void conv2d(const float* x, const float* w, float* y, const ConvShape& s) {
    const int64_t rows = s.batch * s.out_h * s.out_w;
    const int64_t columns = s.outputs / s.groups;
    const int64_t column_tasks = ceil_div(columns, kColumnsOfTask);
    const int64_t work = rows * s.kernel_h * s.kernel_w * (s.channels / s.groups) * s.outputs;
    const int64_t wanted = std::clamp<int64_t>(work / kGrainMultiplies, 1, threads());
    const int64_t rows_of_task =
        Task(x, w, y, s, 0).rows_of_task(rows, ceil_div(wanted, s.groups * column_tasks));
    const int64_t row_tasks = ceil_div(rows, rows_of_task);
    parallel_tasks(s.groups * row_tasks * column_tasks, wanted, [&](int64_t i) {
        const int64_t row = i % row_tasks * rows_of_task;
        const int64_t column = i / row_tasks % column_tasks * kColumnsOfTask;
        Scratch scratch;
        const Task task(x, w, y, s, i / row_tasks / column_tasks);
        task.run(row, std::min(rows_of_task, rows - row), column,
                 std::min(kColumnsOfTask, columns - column), scratch);
    });
}

}  // namespace qgraph
