#include "core/quantize.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <vector>

#include "core/blocks.h"
#include "core/parallel.h"
#include "core/quantize_tile.h"

namespace qgraph {
namespace {

constexpr int64_t kColumns = 1024;  // columns of one task, if there are several channels

const TileKernels* kernels_of(InstructionSet set) {
#if defined(__x86_64__) && defined(__GNUC__)
    __builtin_cpu_init();
    if (set == InstructionSet::avx512) {
        return __builtin_cpu_supports("avx512f") ? avx512_kernels() : nullptr;
    }
    if (set == InstructionSet::avx2) {
        const bool all = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
        return all ? avx2_kernels() : nullptr;
    }
#endif
    return set == InstructionSet::plain ? plain_kernels() : nullptr;
}

InstructionSet best() {
    for (const InstructionSet set : {InstructionSet::avx512, InstructionSet::avx2}) {
        if (kernels_of(set) != nullptr) return set;
    }
    return InstructionSet::plain;
}

std::atomic<InstructionSet> instruction_set{best()};

// 2^f and 2^-f for each column. Columns are channels, or kLanes equal columns for one channel.
struct Scales {
    std::vector<float> scales;
    std::vector<float> steps;

    explicit Scales(const Quantizer& q) {
        const int64_t copies = q.channels == 1 ? kLanes : 1;
        scales.reserve(q.channels * copies);
        steps.reserve(q.channels * copies);
        for (int64_t i = 0; i < q.channels; ++i) {
            scales.insert(scales.end(), copies, std::ldexp(1.0f, q.f[i]));
            steps.insert(steps.end(), copies, std::ldexp(1.0f, -q.f[i]));
        }
    }
};

// Runs the kernel over a whole tensor and returns the number of its blocks. `sums`, which may be
// empty, receives the sum of each column for each block.
class Sweep {
  public:
    Sweep(TileKernel kernel, const Quantizer& q, Type type, const void* x, const void* g, void* out,
          int64_t count)
        : kernel_(kernel),
          q_(q),
          scales_(q),
          size_(size_of(type)),
          x_(static_cast<const char*>(x)),
          g_(static_cast<const char*>(g)),
          out_(static_cast<char*>(out)),
          count_(count) {
        const bool in_place = out == x || out == g;
        stream_ = streams(out, count * size_) && !in_place;
    }

    int64_t columns() const { return static_cast<int64_t>(scales_.scales.size()); }
    int64_t blocks() const {
        const int64_t block = q_.channels == 1 ? kBlock : q_.channels * kBlockRows;
        return (count_ + block - 1) / block;
    }

    void run(double* sums) const {
        const int64_t chunks = q_.channels == 1 ? 1 : (q_.channels + kColumns - 1) / kColumns;
        parallel_tasks(blocks() * chunks, count_ / kGrain, [&](int64_t task) {
            const int64_t block = task / chunks;
            double* own = sums == nullptr ? nullptr : sums + block * columns();
            if (q_.channels == 1) {
                run_lanes(block * kBlock, own);
            } else {
                run_channels(block * kBlockRows, task % chunks * kColumns, own);
            }
        });
    }

  private:
    Tile tile(int64_t at, int64_t rows, int64_t column, int64_t columns, double* sums) const {
        return {x_ + at * size_,
                g_ == nullptr ? nullptr : g_ + at * size_,
                out_ + at * size_,
                rows,
                columns,
                this->columns(),
                scales_.scales.data() + column,
                scales_.steps.data() + column,
                q_.low,
                q_.high,
                stream_ && this->columns() % 16 == 0,
                sums == nullptr ? nullptr : sums + column};
    }

    void run_channels(int64_t row, int64_t column, double* sums) const {
        const int64_t rows = std::min(kBlockRows, count_ / q_.channels - row);
        const int64_t columns = std::min(kColumns, q_.channels - column);
        kernel_(tile(row * q_.channels + column, rows, column, columns, sums));
    }

    void run_lanes(int64_t begin, double* sums) const {
        const int64_t size = std::min(kBlock, count_ - begin);
        const int64_t whole = size / kLeaf * kLeaf;
        if (whole > 0) kernel_(tile(begin, whole / kLanes, 0, kLanes, sums));
        if (whole < size) run_tail(begin + whole, size - whole, sums);
    }

    // The last leaf is padded with zeros, which add nothing.
    void run_tail(int64_t at, int64_t size, double* sums) const {
        alignas(64) char x[kLeaf * sizeof(float)];
        alignas(64) char g[kLeaf * sizeof(float)];
        const int64_t rows = (size + kLanes - 1) / kLanes;
        const auto fill = [&](char* to, const char* from) {
            std::memcpy(to, from + at * size_, size * size_);
            std::memset(to + size * size_, 0, (rows * kLanes - size) * size_);
        };
        fill(x, x_);
        if (g_ != nullptr) fill(g, g_);
        kernel_({x, g, x, rows, kLanes, kLanes, scales_.scales.data(), scales_.steps.data(), q_.low,
                 q_.high, false, sums});
        std::memcpy(out_ + at * size_, x, size * size_);
    }

    TileKernel kernel_;
    const Quantizer& q_;
    Scales scales_;
    int64_t size_;  // bytes of an element
    const char* x_;
    const char* g_;
    char* out_;
    int64_t count_;
    bool stream_;
};

}  // namespace

const TileKernels& kernels() { return *kernels_of(instruction_set); }

bool choose(InstructionSet set) {
    if (kernels_of(set) == nullptr) return false;
    instruction_set = set;
    return true;
}

InstructionSet chosen() { return instruction_set; }

void quantize(const void* x, void* y, int64_t count, const Quantizer& quantizer, Type type) {
    if (count == 0) return;
    const ByRounding& by_rounding = kernels().forward[static_cast<int>(type)];
    const TileKernel kernel = by_rounding.of[static_cast<int>(quantizer.rounding)];
    Sweep(kernel, quantizer, type, x, nullptr, y, count).run(nullptr);
}

void quantize_gradients(const void* x, const void* g, void* gx, double* glog2t, int64_t count,
                        const Quantizer& quantizer, Type type) {
    std::fill_n(glog2t, quantizer.channels, 0.0);
    if (count == 0) return;
    const ByRounding& by_rounding = kernels().backward[static_cast<int>(type)];
    const TileKernel kernel = by_rounding.of[static_cast<int>(quantizer.rounding)];
    const Sweep sweep(kernel, quantizer, type, x, g, gx, count);
    const int64_t columns = sweep.columns();
    const int64_t blocks = sweep.blocks();
    std::vector<double> partial(static_cast<size_t>(blocks * columns));
    sweep.run(partial.data());
    add_up_blocks(partial, blocks, columns);
    if (quantizer.channels == 1) add_up_lanes(partial.data());
    for (int64_t i = 0; i < quantizer.channels; ++i) {
        glog2t[i] = std::ldexp(kLn2, -quantizer.f[i]) * partial[i] + 0.0;
    }
}

}  // namespace qgraph
