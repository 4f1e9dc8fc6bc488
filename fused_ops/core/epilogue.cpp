#include "core/epilogue.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "core/blocks.h"
#include "core/parallel.h"
#include "core/quantize_tile.h"

namespace qgraph {
namespace {

// One value for each channel, then the values from the first on again: kLanes consecutive values
// can be read from any channel on.
std::vector<float> repeated(const float* values, int64_t channels) {
    std::vector<float> made(static_cast<size_t>(channels + kLanes - 1));
    for (size_t i = 0; i < made.size(); ++i) made[i] = values[i % static_cast<size_t>(channels)];
    return made;
}

// Sums of each block: kLanes for each quantizer and one for each channel.
struct Partial {
    std::vector<double> inner, outer, bias, high;
};

// Runs the kernel over a whole tensor.
class Pass {
  public:
    Pass(const ByActivation& kernels, const Epilogue& e, const float* x, const float* g, float* out,
         int64_t count)
        : kernel_(kernels.of[static_cast<int>(e.activation)][static_cast<int>(e.rounding)]),
          e_(e),
          x_(x),
          g_(g),
          out_(out),
          count_(count),
          stream_(out != x && out != g &&
                  streams(out, count * static_cast<int64_t>(sizeof(float)))),
          bias_(repeated(e.bias, e.channels)) {
        if (e.activation != Activation::clip) return;
        high_ = repeated(e.high, e.channels);
        last_ = high_;
        if (!e.open) return;
        for (float& v : last_) v = std::nextafter(v, -std::numeric_limits<float>::infinity());
    }

    int64_t blocks() const { return (count_ + kBlock - 1) / kBlock; }

    // `partial` is null for the forward pass.
    void run(Partial* partial) const {
        parallel_tasks(blocks(), count_ / kGrain, [&](int64_t block) { run(block, partial); });
    }

  private:
    void run(int64_t block, Partial* partial) const {
        // These have extra elements after the last channel.
        std::vector<double> bias, high;
        Strip strip = strip_of(block);
        if (partial != nullptr) {
            bias.resize(bias_.size());
            high.resize(high_.size());
            strip.bias_sums = bias.data();
            strip.high_sums = high.data();
            strip.inner_sums = partial->inner.data() + block * kLanes;
            strip.outer_sums = partial->outer.data() + block * kLanes;
        }
        run_rows(strip, std::min(kBlock, count_ - block * kBlock));
        if (partial == nullptr) return;
        fold(bias, partial->bias, block);
        if (!high.empty()) fold(high, partial->high, block);
    }

    Strip strip_of(int64_t block) const {
        const int64_t at = block * kBlock;
        const auto power = [](int f) { return std::ldexp(1.0F, f); };
        return {x_ + at,
                g_ == nullptr ? nullptr : g_ + at,
                out_ + at,
                0,
                at % e_.channels,
                e_.channels,
                bias_.data(),
                high_.data(),
                last_.data(),
                power(e_.inner.f),
                power(-e_.inner.f),
                e_.inner.low,
                e_.inner.high,
                power(e_.outer.f),
                power(-e_.outer.f),
                e_.outer.low,
                e_.outer.high,
                stream_,
                nullptr,
                nullptr,
                nullptr,
                nullptr};
    }

    // Whole leaves are processed in place. The last one is padded with zeros, whose gradient is 0.
    void run_rows(Strip strip, int64_t size) const {
        const int64_t whole = size / kLeaf * kLeaf;
        strip.rows = whole / kLanes;
        if (whole > 0) kernel_(strip);
        if (whole == size) return;
        alignas(64) float x[kLeaf] = {};
        alignas(64) float g[kLeaf] = {};
        const size_t rest = static_cast<size_t>(size - whole);
        std::copy_n(strip.x + whole, rest, x);
        if (strip.g != nullptr) std::copy_n(strip.g + whole, rest, g);
        float* out = strip.out + whole;
        strip.x = x;
        strip.g = g;
        strip.out = x;
        strip.rows = (size - whole + kLanes - 1) / kLanes;
        strip.channel = (strip.channel + whole) % e_.channels;
        strip.stream = false;
        kernel_(strip);
        std::copy_n(x, rest, out);
    }

    void fold(const std::vector<double>& slots, std::vector<double>& sums, int64_t block) const {
        double* own = sums.data() + block * e_.channels;
        const auto channels = static_cast<size_t>(e_.channels);
        for (size_t i = 0; i < slots.size(); ++i) own[i % channels] += slots[i];
    }

    StripKernel kernel_;
    const Epilogue& e_;
    const float* x_;
    const float* g_;
    float* out_;
    int64_t count_;
    bool stream_;
    std::vector<float> bias_, high_, last_;
};

// d loss / d log2 t of a quantizer, from the sums of blocks.
double of_threshold(std::vector<double>& partial, int64_t blocks, int32_t f) {
    add_up_blocks(partial, blocks, kLanes);
    add_up_lanes(partial.data());
    return std::ldexp(kLn2, -f) * partial[0] + 0.0;
}

void of_channels(std::vector<double>& partial, int64_t blocks, int64_t channels, double* sums) {
    add_up_blocks(partial, blocks, channels);
    std::copy_n(partial.data(), channels, sums);
}

}  // namespace

void epilogue(const float* x, float* y, int64_t count, const Epilogue& epilogue) {
    if (count == 0) return;
    Pass(kernels().epilogue, epilogue, x, nullptr, y, count).run(nullptr);
}

void epilogue_gradients(const float* x, const float* g, float* gx, EpilogueSums& sums,
                        int64_t count, const Epilogue& epilogue) {
    const bool clips = epilogue.activation == Activation::clip;
    const int64_t channels = epilogue.channels;
    sums.inner = sums.outer = 0;
    std::fill_n(sums.bias, channels, 0.0);
    if (clips) std::fill_n(sums.high, channels, 0.0);
    if (count == 0) return;
    const Pass pass(kernels().epilogue_gradients, epilogue, x, g, gx, count);
    const int64_t blocks = pass.blocks();
    Partial partial;
    partial.inner.resize(static_cast<size_t>(blocks * kLanes));
    partial.outer.resize(static_cast<size_t>(blocks * kLanes));
    partial.bias.resize(static_cast<size_t>(blocks * channels));
    if (clips) partial.high.resize(static_cast<size_t>(blocks * channels));
    pass.run(&partial);
    sums.inner = of_threshold(partial.inner, blocks, epilogue.inner.f);
    sums.outer = of_threshold(partial.outer, blocks, epilogue.outer.f);
    of_channels(partial.bias, blocks, channels, sums.bias);
    if (clips) of_channels(partial.high, blocks, channels, sums.high);
}

}  // namespace qgraph
