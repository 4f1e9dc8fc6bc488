#include "core/quantize.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <vector>

#include "core/parallel.h"
#include "core/quantize_tile.h"

namespace qgraph {
namespace {

constexpr double kLn2 = 0.693147180559945309417232121458;
constexpr int64_t kBlockRows = kLeafRows * kLeaves;
constexpr int64_t kLeaf = kLanes * kLeafRows;
constexpr int64_t kBlock = kLeaf * kLeaves;
constexpr int64_t kColumns = 1024;  // of one task, where there are channels

// Elements for which waking one more thread pays.
constexpr int64_t kGrain = 1 << 17;

// From here on an output does not stay in the caches until somebody reads it: streaming stores
// then save reading it in first. Below, they would throw out what is read next.
constexpr int64_t kStream = 1 << 22;

const TileKernels* kernels_of(InstructionSet set) {
#if defined(__x86_64__) && defined(__GNUC__)
    __builtin_cpu_init();
    if (set == InstructionSet::avx512) {
        return __builtin_cpu_supports("avx512f") ? avx512_kernels() : nullptr;
    }
    if (set == InstructionSet::avx2) {
        return __builtin_cpu_supports("avx2") ? avx2_kernels() : nullptr;
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

bool streams(const void* out, int64_t count) {
    return count >= kStream && reinterpret_cast<uintptr_t>(out) % 64 == 0;
}

// 2^f and 2^-f of each column: of each channel, or of kLanes equal ones.
struct Scales {
    std::vector<float> scales;
    std::vector<float> steps;

    explicit Scales(const Quantizer& q) {
        const int64_t columns = q.channels == 1 ? kLanes : q.channels;
        scales.resize(columns);
        steps.resize(columns);
        for (int64_t i = 0; i < columns; ++i) {
            const int32_t f = q.f[q.channels == 1 ? 0 : i];
            scales[i] = std::ldexp(1.0f, f);
            steps[i] = std::ldexp(1.0f, -f);
        }
    }
};

using Kernel = void (*)(const Tile&);

// Runs the kernel over the whole of a tensor, and returns how many blocks it has. `sums` (may be
// empty) holds the columns' sums of each block.
class Sweep {
  public:
    Sweep(Kernel kernel, const Quantizer& q, const float* x, const float* g, float* out,
          int64_t count)
        : kernel_(kernel), q_(q), scales_(q), x_(x), g_(g), out_(out), count_(count) {
        const bool in_place = out == x || out == g;
        stream_ = streams(out, count) && !in_place;
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
        return {x_ + at,
                g_ == nullptr ? nullptr : g_ + at,
                out_ + at,
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

    // The last leaf, filled up with zeros that add nothing.
    void run_tail(int64_t at, int64_t size, double* sums) const {
        alignas(64) float x[kLeaf];
        alignas(64) float g[kLeaf];
        const int64_t rows = (size + kLanes - 1) / kLanes;
        const auto fill = [&](float* to, const float* from) {
            std::memcpy(to, from + at, size * sizeof(float));
            std::memset(to + size, 0, (rows * kLanes - size) * sizeof(float));
        };
        fill(x, x_);
        if (g_ != nullptr) fill(g, g_);
        kernel_({x, g, x, rows, kLanes, kLanes, scales_.scales.data(), scales_.steps.data(), q_.low,
                 q_.high, false, sums});
        std::memcpy(out_ + at, x, size * sizeof(float));
    }

    Kernel kernel_;
    const Quantizer& q_;
    Scales scales_;
    const float* x_;
    const float* g_;
    float* out_;
    int64_t count_;
    bool stream_;
};

const TileKernels& kernels() { return *kernels_of(instruction_set); }

}  // namespace

bool choose(InstructionSet set) {
    if (kernels_of(set) == nullptr) return false;
    instruction_set = set;
    return true;
}

InstructionSet chosen() { return instruction_set; }

void quantize(const float* x, float* y, int64_t count, const Quantizer& quantizer) {
    if (count == 0) return;
    const Kernel kernel = kernels().forward[static_cast<int>(quantizer.rounding)];
    Sweep(kernel, quantizer, x, nullptr, y, count).run(nullptr);
}

void quantize_gradients(const float* x, const float* g, float* gx, double* glog2t, int64_t count,
                        const Quantizer& quantizer) {
    std::fill_n(glog2t, quantizer.channels, 0.0);
    if (count == 0) return;
    const Kernel kernel = kernels().backward[static_cast<int>(quantizer.rounding)];
    const Sweep sweep(kernel, quantizer, x, g, gx, count);
    const int64_t columns = sweep.columns();
    std::vector<double> partial(static_cast<size_t>(sweep.blocks() * columns));
    sweep.run(partial.data());
    double* sums = partial.data();
    for (int64_t block = 1; block < sweep.blocks(); ++block) {
        for (int64_t i = 0; i < columns; ++i) sums[i] += partial[block * columns + i];
    }
    if (quantizer.channels == 1) {
        for (int64_t half = kLanes / 2; half > 0; half /= 2) {
            for (int64_t i = 0; i < half; ++i) sums[i] += sums[i + half];
        }
    }
    for (int64_t i = 0; i < quantizer.channels; ++i) {
        glog2t[i] = std::ldexp(kLn2, -quantizer.f[i]) * sums[i] + 0.0;
    }
}

}  // namespace qgraph
