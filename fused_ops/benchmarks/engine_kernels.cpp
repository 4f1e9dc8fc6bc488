// Times the engine's kernels on the layers of MobileNetV1 and ResNet50, on one thread, beside a
// loop that does nothing but multiply and add. Prints lines of tab-separated numbers for
// benchmarks/engine_kernels.py. Arguments: rounds, number of the level, number of a layer (all
// without it).

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/kernels/kernels.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#endif

namespace {

using namespace qgraph;
using namespace qgraph::engine;

double seconds() {
    using Clock = std::chrono::steady_clock;
    return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

struct Memory {
    explicit Memory(size_t size) : bytes(size + 64) {}
    char* get() {
        return reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(bytes.data()) + 63) / 64 * 64);
    }
    std::vector<char> bytes;
};

#if defined(__x86_64__) && defined(__GNUC__)
// The number of multiply-adds per second when all operands are in registers.
__attribute__((target("avx512f,avx512vnni"))) double peak() {
    constexpr int kSums = 16;
    constexpr int kRounds = 4000;
    const __m512i codes = _mm512_set1_epi32(0x01020304);
    const double begin = seconds();
    for (int round = 0; round < kRounds; ++round) {
        // Sixteen sums that do not wait for each other.
        __asm__ volatile(
#define QGRAPH_SUM(i) "vpdpbusd %0, %0, %%zmm" #i "\n"
            QGRAPH_SUM(16) QGRAPH_SUM(17) QGRAPH_SUM(18) QGRAPH_SUM(19) QGRAPH_SUM(20)
                QGRAPH_SUM(21) QGRAPH_SUM(22) QGRAPH_SUM(23) QGRAPH_SUM(24) QGRAPH_SUM(25)
                    QGRAPH_SUM(26) QGRAPH_SUM(27) QGRAPH_SUM(28) QGRAPH_SUM(29) QGRAPH_SUM(30)
                        QGRAPH_SUM(31)
#undef QGRAPH_SUM
            :
            : "v"(codes)
            : "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22", "xmm23", "xmm24",
              "xmm25", "xmm26", "xmm27", "xmm28", "xmm29", "xmm30", "xmm31");
    }
    return 64.0 * kSums * kRounds / (seconds() - begin);
}
#else
double peak() { return 0; }
#endif

struct Case {
    std::string network;
    Conv conv;
    int times;  // in the network
};

class Timed {
  public:
    Timed(const Case& c, Level level, std::mt19937& dice)
        : case_(c),
          conv_(c.conv),
          x_(std::make_unique<Memory>(
              static_cast<size_t>(conv_.height * conv_.width * conv_.channels))),
          y_(std::make_unique<Memory>(
              static_cast<size_t>(conv_.out_height * conv_.out_width * conv_.out_channels))),
          terms_(static_cast<size_t>(conv_.out_channels)) {
        const int64_t inputs = conv_.depthwise ? 1 : conv_.channels;
        std::vector<int8_t> w(static_cast<size_t>(conv_.kernel_height * conv_.kernel_width *
                                                  inputs * conv_.out_channels));
        for (auto& code : x_->bytes) code = static_cast<char>(dice());
        // Trained weights are distributed like this: normal, with the largest at the end of the
        // range.
        std::normal_distribution<double> bell(0, 25);
        for (auto& code : w) {
            code = static_cast<int8_t>(std::clamp(std::round(bell(dice)), -128.0, 127.0));
        }
        for (auto& term : terms_) term = static_cast<int32_t>(dice() % 2000) - 1000;
        // The stages of profile graffitist: 16 bits, bias, ReLU, 8 bits.
        Stage first, bias, relu, last;
        first.kind = last.kind = Stage::Kind::requantize;
        first.shift = {8};
        first.low = {INT16_MIN};
        first.high = {INT16_MAX};
        bias.kind = Stage::Kind::add;
        bias.term = {0, terms_.data()};
        relu.low = {0};
        last.shift = {7};
        last.low = {0};
        last.high = {255};
        const Stage stages[] = {first, bias, relu, last};
        pack(conv_, w.data(), {stages, 4}, level, [this](size_t bytes) {
            packed_ = std::make_unique<Memory>(bytes);
            return packed_->get();
        });
        scratch_ = std::make_unique<Memory>(scratch_size(packed_->get()));
    }

    void round() {
        const int64_t pixels = conv_.out_height * conv_.out_width;
        // Warms the caches. In a network, the previous layer has partly done that.
        run(packed_->get(), x_->get(), y_->get(), {0, pixels}, scratch_->get());
        const double begin = seconds();
        run(packed_->get(), x_->get(), y_->get(), {0, pixels}, scratch_->get());
        best_ = std::min(best_, seconds() - begin);
    }

    void print() const {
        const Conv& s = conv_;
        const int64_t inputs = s.depthwise ? 1 : s.channels;
        const double macs = static_cast<double>(s.out_height * s.out_width * s.out_channels *
                                                s.kernel_height * s.kernel_width * inputs);
        std::printf("%s\t%s%ldx%ld/%ld %ldx%ld %ld>%ld\t%d\t%.6g\t%.6g\n", case_.network.c_str(),
                    s.depthwise ? "dw " : "", s.kernel_height, s.kernel_width, s.stride_height,
                    s.height, s.width, s.channels, s.out_channels, case_.times, macs, best_);
    }

  private:
    Case case_;
    Conv conv_;
    std::unique_ptr<Memory> x_, y_;
    std::vector<int32_t> terms_;
    std::unique_ptr<Memory> packed_, scratch_;
    double best_ = 1e9;
};

Conv square(int64_t side, int64_t channels, int64_t out_channels, int64_t kernel, int64_t stride) {
    Conv s;
    s.height = s.width = side;
    s.channels = channels;
    s.out_channels = out_channels;
    s.kernel_height = s.kernel_width = kernel;
    s.stride_height = s.stride_width = stride;
    s.out_height = s.out_width = (side + stride - 1) / stride;
    s.pad_top = s.pad_left = std::max<int64_t>((s.out_height - 1) * stride + kernel - side, 0) / 2;
    return s;
}

std::vector<Case> cases() {
    std::vector<Case> all;
    const auto add = [&](const char* network, const Conv& conv, int times = 1) {
        all.push_back({network, conv, times});
    };
    const auto product = [](int64_t k, int64_t m) {
        Conv s;
        s.channels = k;
        s.out_channels = m;
        return s;
    };
    const auto separable = [&](int64_t side, int64_t channels, int64_t out, int64_t stride,
                               int times = 1) {
        Conv s = square(side, channels, channels, 3, stride);
        s.depthwise = true;
        add("MobileNetV1", s, times);
        add("MobileNetV1", square(s.out_width, channels, out, 1, 1), times);
    };
    add("MobileNetV1", square(224, 3, 32, 3, 2));
    separable(112, 32, 64, 1);
    separable(112, 64, 128, 2);
    separable(56, 128, 128, 1);
    separable(56, 128, 256, 2);
    separable(28, 256, 256, 1);
    separable(28, 256, 512, 2);
    separable(14, 512, 512, 1, 5);
    separable(14, 512, 1024, 2);
    separable(7, 1024, 1024, 1);
    add("MobileNetV1", product(1024, 1000));
    const auto bottlenecks = [&](int64_t side, int64_t in, int64_t inner, int64_t stride,
                                 int more) {
        const int64_t out = side / stride;
        add("ResNet50", square(side, in, inner, 1, stride));
        add("ResNet50", square(side, in, inner * 4, 1, stride));
        add("ResNet50", square(out, inner, inner, 3, 1), more + 1);
        add("ResNet50", square(out, inner, inner * 4, 1, 1), more + 1);
        add("ResNet50", square(out, inner * 4, inner, 1, 1), more);
    };
    add("ResNet50", square(224, 3, 64, 7, 2));
    bottlenecks(56, 64, 64, 1, 2);
    bottlenecks(56, 256, 128, 2, 3);
    bottlenecks(28, 512, 256, 2, 5);
    bottlenecks(14, 1024, 512, 2, 2);
    add("ResNet50", product(2048, 1000));
    return all;
}

}  // namespace

int main(int count, char** arguments) {
    const int rounds = count > 1 ? std::atoi(arguments[1]) : 20;
    const Level level = count > 2 ? static_cast<Level>(std::atoi(arguments[2])) : best_level();
    if (!supports(level)) {
        std::fprintf(stderr, "this CPU does not support the level\n");
        return 1;
    }
    std::mt19937 dice(1);
    std::vector<Timed> timed;
    const std::vector<Case> all = cases();
    const size_t only = count > 3 ? static_cast<size_t>(std::atoi(arguments[3])) : all.size();
    for (size_t i = 0; i < all.size(); ++i) {
        if (only == all.size() || only == i) timed.emplace_back(all[i], level, dice);
    }
    double most = 0;
    for (int round = 0; round < rounds; ++round) {
        if (supports(Level::avx512vnni)) most = std::max(most, peak());
        for (Timed& one : timed) one.round();
    }
    std::printf("peak\tvpdpbusd, 512 bits\t1\t%.6g\t1\n", most);
    for (const Timed& one : timed) one.print();
}
