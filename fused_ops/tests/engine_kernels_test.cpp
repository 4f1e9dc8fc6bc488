// Compares the engine's kernels at every level with the definitions, which are written out here in
// 64 bits.

#include <random>

#include "core/parallel.h"
#include "engine/kernels/codes.h"
#include "engine/kernels/kernels.h"
#include "tests/check.h"

namespace qgraph {
namespace {

using namespace qgraph::engine;
using namespace qgraph::engine::kernels;

using Values = std::vector<int64_t>;

class Dice {
  public:
    explicit Dice(unsigned seed) : engine_(seed) {}
    int64_t between(int64_t low, int64_t high) {
        return std::uniform_int_distribution<int64_t>(low, high)(engine_);
    }
    bool one_in(int64_t n) { return between(1, n) == 1; }
    template <typename T>
    T of(std::initializer_list<T> choices) {
        return choices.begin()[between(0, static_cast<int64_t>(choices.size()) - 1)];
    }
    // Codes of a type; some or all are the smallest or the largest.
    Values codes(Code type, int64_t count, bool only_extremes) {
        Values values(static_cast<size_t>(count));
        const int64_t low = std::max<int64_t>(low_of(type), -(1 << 20));
        const int64_t high = std::min<int64_t>(high_of(type), 1 << 20);
        for (int64_t& v : values) {
            v = only_extremes || one_in(5) ? of({low, high}) : between(low, high);
        }
        return values;
    }

  private:
    std::mt19937 engine_;
};

std::vector<char> stored(Code type, const Values& values) {
    // No memory follows the codes, so a sanitizer finds reads past the end.
    std::vector<char> bytes(values.size() * static_cast<size_t>(size_of(type)));
    for (size_t i = 0; i < values.size(); ++i) {
        store_code(type, bytes.data(), static_cast<int64_t>(i), values[i]);
    }
    return bytes;
}

struct Memory {
    explicit Memory(size_t size) : bytes(size + 64) {}
    void* get() {
        return reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(bytes.data()) + 63) / 64 * 64);
    }
    std::vector<char> bytes;
};

Allocate into(Memory& memory) {
    return [&memory](size_t bytes) {
        memory = Memory(bytes);
        return memory.get();
    };
}

// Random stages, with the memory of their numbers.
struct Chain {
    std::vector<Stage> stages;
    std::vector<std::vector<int32_t>> numbers;

    Numbers any(Dice& dice, int64_t channels, bool alike, int64_t low, int64_t high) {
        if (alike || dice.one_in(2)) return {static_cast<int32_t>(dice.between(low, high))};
        numbers.emplace_back();
        for (int64_t i = 0; i < channels; ++i) {
            numbers.back().push_back(static_cast<int32_t>(dice.between(low, high)));
        }
        return {0, numbers.back().data()};
    }

    Chain(Dice& dice, int64_t channels) {
        numbers.reserve(64);
        const bool alike = dice.one_in(2);
        const bool usual = dice.one_in(2);
        const auto rounding = static_cast<Rounding>(dice.between(0, kRoundings - 1));
        const int64_t count = usual ? 3 : dice.between(0, 4);
        for (int64_t i = 0; i < count; ++i) {
            Stage s;
            const int64_t kind = usual ? i % 2 : dice.between(0, 2);
            s.kind = static_cast<Stage::Kind>(kind);
            s.rounding = usual ? rounding : static_cast<Rounding>(dice.between(0, kRoundings - 1));
            s.shift = usual            ? any(dice, channels, alike, 0, 9)
                      : dice.one_in(4) ? any(dice, channels, alike, -33, 40)
                                       : any(dice, channels, alike, -3, 12);
            s.term = any(dice, channels, alike, -3000, 3000);
            if (!dice.one_in(3)) {
                s.low = any(dice, channels, alike, -40000, 0);
                s.high = any(dice, channels, alike, 1, 40000);
            }
            stages.push_back(s);
        }
    }

    Stages get() const { return {stages.data(), static_cast<int>(stages.size())}; }

    // Callers of the kernels guarantee that values fit into 32 bits between stages. The test checks
    // it, and skips a chain whose values do not fit.
    int64_t operator()(int64_t v, int64_t channel) {
        const auto look = [&] { fits &= v >= INT32_MIN && v <= INT32_MAX; };
        look();
        for (const Stage& stage : stages) {
            v = apply(stage, v, channel);
            look();
        }
        return v;
    }

    bool fits = true;
};

Values convolved(const Conv& s, const Values& x, const Values& w, Chain& chain, int64_t n) {
    Values y;
    const int64_t groups = s.depthwise ? s.channels : s.groups;
    const int64_t inputs = s.channels / groups;
    for (int64_t pixel = 0; pixel < n * s.out_height * s.out_width; ++pixel) {
        const int64_t image = pixel / (s.out_height * s.out_width);
        for (int64_t out = 0; out < s.out_channels; ++out) {
            const int64_t first = out / (s.out_channels / groups) * inputs;
            int64_t sum = 0;
            for (int64_t k = 0; k < s.kernel_height * s.kernel_width * inputs; ++k) {
                const int64_t tap = k / inputs;
                const int64_t iy = pixel / s.out_width % s.out_height * s.stride_height +
                                   tap / s.kernel_width * s.dilation_height - s.pad_top;
                const int64_t ix = pixel % s.out_width * s.stride_width +
                                   tap % s.kernel_width * s.dilation_width - s.pad_left;
                if (iy < 0 || iy >= s.height || ix < 0 || ix >= s.width) continue;
                const int64_t from =
                    ((image * s.height + iy) * s.width + ix) * s.channels + first + k % inputs;
                sum +=
                    x[static_cast<size_t>(from)] * w[static_cast<size_t>(k * s.out_channels + out)];
            }
            y.push_back(chain(sum, out));
        }
    }
    return y;
}

Conv any_conv(Dice& dice) {
    Conv s;
    s.x = dice.of({Code::u8, Code::u8, Code::s8, Code::s8, Code::u16, Code::s16});
    s.w = dice.one_in(6) ? Code::s16 : Code::s8;
    s.y = dice.of({Code::u8, Code::u8, Code::s8, Code::u16, Code::s16, Code::s32});
    s.depthwise = dice.one_in(3);
    s.groups = s.depthwise || !dice.one_in(4) ? 1 : dice.between(2, 3);
    s.channels = s.groups * dice.of<int64_t>({1, 3, 4, 8, 17, 32, 64, 70});
    s.out_channels = s.groups * dice.of<int64_t>({1, 5, 16, 20, 32, 40, 64, 65, 130});
    if (s.depthwise) s.out_channels = s.channels * (dice.one_in(4) ? 2 : 1);
    const bool three = s.depthwise && dice.one_in(2);  // 3x3 has a special kernel
    const bool square = !three && dice.one_in(2);
    const auto side = [&](int64_t* size, int64_t* kernel, int64_t* stride, int64_t* dilation,
                          int64_t* pad, int64_t* out) {
        *kernel = square ? 1 : three ? 3 : dice.between(1, 4);
        *stride = square ? 1 : dice.between(1, 3);
        *dilation = !three && dice.one_in(4) ? 2 : 1;
        *size = dice.between(1, three ? 40 : 9);
        *pad = square ? 0 : dice.between(0, 2);
        const int64_t least = (*kernel - 1) * *dilation + 1;
        const int64_t padded = std::max(*size + *pad + (square ? 0 : dice.between(0, 2)), least);
        *out = (padded - least) / *stride + 1;
    };
    side(&s.height, &s.kernel_height, &s.stride_height, &s.dilation_height, &s.pad_top,
         &s.out_height);
    side(&s.width, &s.kernel_width, &s.stride_width, &s.dilation_width, &s.pad_left, &s.out_width);
    return s;
}

// Checks one random convolution; false if its values do not fit, so that nothing was compared.
bool check_conv(unsigned seed) {
    Dice dice(seed);
    Conv s = any_conv(dice);
    const int64_t n = dice.between(1, 3);
    const int64_t inputs = s.depthwise ? 1 : s.channels / s.groups;
    const bool extremes = dice.one_in(4);
    const Values x = dice.codes(s.x, n * s.height * s.width * s.channels, extremes);
    Values w =
        dice.codes(s.w, s.kernel_height * s.kernel_width * inputs * s.out_channels, extremes);
    if (size_of(s.x) == 2 || size_of(s.w) == 2) {
        for (int64_t& v : w) v /= s.w == Code::s16 ? 4096 : 16;  // sums must fit
    }
    // Most weights of trained layers are small. The divisor decides how many extra steps are
    // needed.
    const int64_t divisor = dice.of<int64_t>({1, 2, 3, 8, 40});
    for (int64_t& v : w) v = extremes || !dice.one_in(100) ? v / divisor : v;
    Chain chain(dice, s.out_channels);
    const std::vector<char> right = stored(s.y, convolved(s, x, w, chain, n));
    if (!chain.fits) return false;
    const std::vector<char> x_codes = stored(s.x, x);
    const std::vector<char> w_codes = stored(s.w, w);
    for (const Level level : kLevels) {
        if (!supports(level)) continue;
        Memory packed(0);
        pack(s, w_codes.data(), chain.get(), level, into(packed));
        Memory scratch(scratch_size(packed.get()));
        std::vector<char> y(right.size(), 77);
        const int64_t pixels = n * s.out_height * s.out_width;
        const int64_t cut = dice.between(0, pixels);
        const int64_t cut_block = dice.between(0, blocks(packed.get()));
        for (const Part part : {Part{0, cut, 0, cut_block}, Part{cut, pixels, 0, cut_block},
                                Part{0, pixels, cut_block, INT64_MAX}}) {
            run(packed.get(), x_codes.data(), y.data(), part, scratch.get());
        }
        if (y != right) std::fprintf(stderr, "seed %u, level %d\n", seed, static_cast<int>(level));
        CHECK(y == right);
    }
    return true;
}

bool check_map(unsigned seed) {
    Dice dice(seed);
    Map map;
    for (Code* code : {&map.a, &map.b, &map.y}) {
        *code = dice.of({Code::u8, Code::s8, Code::u16, Code::s16, Code::s32});
    }
    map.two = dice.one_in(2);
    map.channels = dice.of<int64_t>({1, 3, 16, 64, 100});
    const int64_t rows = dice.between(0, 40);
    const Values a = dice.codes(map.a, rows * map.channels, false);
    const Values b = dice.codes(map.b, rows * map.channels, false);
    Chain chain(dice, map.channels);
    Values sums;
    for (size_t i = 0; i < a.size(); ++i) {
        sums.push_back(chain(a[i] + (map.two ? b[i] : 0), static_cast<int64_t>(i) % map.channels));
    }
    const std::vector<char> right = stored(map.y, sums);
    if (!chain.fits) return false;
    const std::vector<char> a_codes = stored(map.a, a);
    const std::vector<char> b_codes = stored(map.b, b);
    for (const Level level : kLevels) {
        if (!supports(level)) continue;
        Memory packed(0);
        pack(map, chain.get(), level, into(packed));
        std::vector<char> y(right.size());
        run_map(packed.get(), a_codes.data(), map.two ? b_codes.data() : nullptr, y.data(), rows);
        if (y != right) std::fprintf(stderr, "seed %u, level %d\n", seed, static_cast<int>(level));
        CHECK(y == right);
    }
    return true;
}

void check_pool(unsigned seed) {
    Dice dice(seed);
    Pool s;
    s.type = dice.of({Code::u8, Code::s8, Code::u16, Code::s16, Code::s32});
    s.channels = dice.of<int64_t>({1, 3, 16, 64, 100});
    s.height = dice.between(2, 7);
    s.width = dice.between(2, 7);
    s.kernel_height = s.kernel_width = dice.between(1, 2);
    s.stride_height = dice.between(1, 2);
    s.stride_width = dice.between(1, 2);
    s.pad_top = dice.between(0, s.kernel_height - 1);
    s.out_height = (s.height + s.pad_top - s.kernel_height) / s.stride_height + 1;
    s.out_width = (s.width - s.kernel_width) / s.stride_width + 1;
    const Values x = dice.codes(s.type, 2 * s.height * s.width * s.channels, false);
    Values most;
    for (int64_t i = 0; i < 2 * s.out_height * s.out_width * s.channels; ++i) {
        const int64_t pixel = i / s.channels;
        int64_t code = INT64_MIN;
        for (int64_t tap = 0; tap < s.kernel_height * s.kernel_width; ++tap) {
            const int64_t iy = pixel / s.out_width % s.out_height * s.stride_height +
                               tap / s.kernel_width - s.pad_top;
            const int64_t ix = pixel % s.out_width * s.stride_width + tap % s.kernel_width;
            if (iy < 0) continue;
            const int64_t image = pixel / (s.out_height * s.out_width);
            const int64_t at = ((image * s.height + iy) * s.width + ix) * s.channels;
            code = std::max(code, x[static_cast<size_t>(at + i % s.channels)]);
        }
        most.push_back(code);
    }
    const std::vector<char> right = stored(s.type, most);
    const std::vector<char> codes = stored(s.type, x);
    for (const Level level : kLevels) {
        if (!supports(level)) continue;
        std::vector<char> y(right.size());
        const int64_t pixels = 2 * s.out_height * s.out_width;
        max_pool(s, codes.data(), y.data(), 0, pixels / 2, level);
        max_pool(s, codes.data(), y.data(), pixels / 2, pixels, level);
        CHECK(y == right);
    }
}

void check_look_up() {
    Dice dice(1);
    std::vector<uint8_t> table(256);
    for (uint8_t& code : table) code = static_cast<uint8_t>(dice.between(0, 255));
    for (int64_t count = 0; count < 300; ++count) {
        std::vector<uint8_t> x(static_cast<size_t>(count));
        for (uint8_t& code : x) code = static_cast<uint8_t>(dice.between(0, 255));
        std::vector<uint8_t> right;
        for (const uint8_t code : x) right.push_back(table[code]);
        for (const Level level : kLevels) {
            if (!supports(level)) continue;
            std::vector<uint8_t> y(x.size());
            look_up(x.data(), table.data(), y.data(), count, level);
            CHECK(y == right);
        }
    }
}

}  // namespace

void test_engine_kernels() {
    int convs = 0;
    int maps = 0;
    for (unsigned seed = 0; seed < 1500; ++seed) convs += check_conv(seed);
    for (unsigned seed = 0; seed < 1000; ++seed) maps += check_map(seed);
    CHECK(convs > 1000 && maps > 700);
    for (unsigned seed = 0; seed < 200; ++seed) check_pool(seed);
    check_look_up();
}

}  // namespace qgraph
