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

// Sums of each block: kLanes for each quantizer and one for each channel.
struct Partial {
    std::vector<double> inner, outer, bias, high, scale, shift;
};

// A norm, with its vectors as `repeated` makes them.
struct NormVectors {
    AlignedVector<float> centre, scale, shift;

    NormVectors(const Norm& norm, int64_t channels)
        : centre(repeated(norm.centre, channels)),
          scale(repeated(norm.scale, channels)),
          shift(repeated(norm.shift, channels)) {}
};

// Runs the kernel over a whole tensor. norm: null if x is not normalized first.
class Pass {
  public:
    Pass(const ByActivation& kernels, const Epilogue& e, const NormVectors* norm, const float* x,
         const float* g, float* out, int64_t count)
        : kernel_(kernels.of[static_cast<int>(e.activation)][static_cast<int>(e.rounding)]),
          e_(e),
          norm_(norm),
          x_(x),
          g_(g),
          out_(out),
          count_(count),
          stream_(out != x && out != g && (norm == nullptr || g == nullptr) &&
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
        Slots bias, high, scale, shift;
        Strip strip = strip_of(block);
        if (partial != nullptr) {
            bias.resize(bias_.size());
            high.resize(high_.size());
            strip.bias_sums = bias.data();
            strip.high_sums = high.data();
            strip.inner_sums = partial->inner.data() + block * kLanes;
            strip.outer_sums = partial->outer.data() + block * kLanes;
        }
        const int64_t size = std::min(kBlock, count_ - block * kBlock);
        if (norm_ == nullptr) {
            run_rows(strip, size);
        } else {
            if (partial != nullptr) {
                scale.resize(bias_.size());
                shift.resize(bias_.size());
            }
            run_normed(strip, size, scale.data(), shift.data());
        }
        if (partial == nullptr) return;
        fold(bias, partial->bias, block);
        if (!high.empty()) fold(high, partial->high, block);
        if (norm_ == nullptr) return;
        fold(scale, partial->scale, block);
        fold(shift, partial->shift, block);
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

    // One leaf after the other, so that the normalized x stays in the first-level cache.
    void run_normed(Strip strip, int64_t size, double* scale_sums, double* shift_sums) const {
        alignas(64) float normalized[kLeaf];
        const float* x = strip.x;
        const float* g = strip.g;
        float* out = strip.out;
        for (int64_t at = 0; at < size; at += kLeaf) {
            const int64_t part = std::min(kLeaf, size - at);
            NormRows rows{x + at,
                          nullptr,
                          normalized,
                          (part + kLanes - 1) / kLanes,
                          strip.channel,
                          e_.channels,
                          norm_->centre.data(),
                          norm_->scale.data(),
                          norm_->shift.data(),
                          {scale_sums, shift_sums},
                          nullptr};
            strip.x = normalized;
            strip.g = g == nullptr ? nullptr : g + at;
            strip.out = out + at;
            strip.rows = rows.rows;
            if (part == kLeaf) {
                run_leaf(strip, rows);
            } else {
                run_last_leaf(strip, rows, part);
            }
            strip.channel = (strip.channel + kLeaf) % e_.channels;
        }
    }

    void run_leaf(const Strip& strip, NormRows rows) const {
        kernels().norm.normalize(rows);
        kernel_(strip);
        if (strip.g == nullptr) return;
        rows.g = rows.out = strip.out;
        kernels().norm.gradients(rows);
    }

    // Padded with zeros, whose gradient is 0.
    void run_last_leaf(Strip strip, NormRows rows, int64_t part) const {
        alignas(64) float x[kLeaf] = {};
        alignas(64) float g[kLeaf] = {};
        alignas(64) float out[kLeaf];
        std::copy_n(rows.x, part, x);
        if (strip.g != nullptr) std::copy_n(strip.g, part, g);
        float* to = strip.out;
        rows.x = x;
        strip.g = strip.g == nullptr ? nullptr : g;
        strip.out = out;
        strip.stream = false;
        run_leaf(strip, rows);
        std::copy_n(out, part, to);
    }

    void fold(const Slots& slots, std::vector<double>& sums, int64_t block) const {
        fold_slots(slots, sums.data() + block * e_.channels, e_.channels);
    }

    StripKernel kernel_;
    const Epilogue& e_;
    const NormVectors* norm_;
    const float* x_;
    const float* g_;
    float* out_;
    int64_t count_;
    bool stream_;
    AlignedVector<float> bias_, high_, last_;
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

void forward(const float* x, float* y, int64_t count, const NormVectors* norm, const Epilogue& e) {
    if (count == 0) return;
    Pass(kernels().epilogue, e, norm, x, nullptr, y, count).run(nullptr);
}

// norm_sums: null without a norm.
void gradients(const float* x, const float* g, float* gx, EpilogueSums& sums, NormSums* norm_sums,
               int64_t count, const NormVectors* norm, const Epilogue& epilogue) {
    const bool clips = epilogue.activation == Activation::clip;
    const int64_t channels = epilogue.channels;
    sums.inner = sums.outer = 0;
    std::fill_n(sums.bias, channels, 0.0);
    if (clips) std::fill_n(sums.high, channels, 0.0);
    if (norm_sums != nullptr) {
        std::fill_n(norm_sums->scale, channels, 0.0);
        std::fill_n(norm_sums->shift, channels, 0.0);
    }
    if (count == 0) return;
    const Pass pass(kernels().epilogue_gradients, epilogue, norm, x, g, gx, count);
    const int64_t blocks = pass.blocks();
    const auto of_blocks = static_cast<size_t>(blocks * channels);
    Partial partial;
    partial.inner.resize(static_cast<size_t>(blocks * kLanes));
    partial.outer.resize(static_cast<size_t>(blocks * kLanes));
    partial.bias.resize(of_blocks);
    if (clips) partial.high.resize(of_blocks);
    if (norm_sums != nullptr) {
        partial.scale.resize(of_blocks);
        partial.shift.resize(of_blocks);
    }
    pass.run(&partial);
    sums.inner = of_threshold(partial.inner, blocks, epilogue.inner.f);
    sums.outer = of_threshold(partial.outer, blocks, epilogue.outer.f);
    of_channels(partial.bias, blocks, channels, sums.bias);
    if (clips) of_channels(partial.high, blocks, channels, sums.high);
    if (norm_sums == nullptr) return;
    of_channels(partial.scale, blocks, channels, norm_sums->scale);
    of_channels(partial.shift, blocks, channels, norm_sums->shift);
}

}  // namespace

void epilogue(const float* x, float* y, int64_t count, const Epilogue& epilogue) {
    forward(x, y, count, nullptr, epilogue);
}

void epilogue_gradients(const float* x, const float* g, float* gx, EpilogueSums& sums,
                        int64_t count, const Epilogue& epilogue) {
    gradients(x, g, gx, sums, nullptr, count, nullptr, epilogue);
}

void normed_epilogue(const float* x, float* y, int64_t count, const Norm& norm,
                     const Epilogue& epilogue) {
    const NormVectors vectors(norm, epilogue.channels);
    forward(x, y, count, &vectors, epilogue);
}

void normed_epilogue_gradients(const float* x, const float* g, float* gx, EpilogueSums& sums,
                               NormSums& norm_sums, int64_t count, const Norm& norm,
                               const Epilogue& epilogue) {
    const NormVectors vectors(norm, epilogue.channels);
    gradients(x, g, gx, sums, &norm_sums, count, &vectors, epilogue);
}

}  // namespace qgraph
