// Tests of the quantizer on the CPU.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "core/parallel.h"
#include "core/quantize.h"
#include "tests/check.h"

namespace qgraph {

std::vector<float> samples(size_t count, unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::vector<float> x(count);
    for (float& value : x) value = normal(random);
    for (size_t i = 0; i < count; i += 5) x[i] = std::nearbyint(x[i] * 64) / 64;
    return x;
}

std::vector<float> with_extremes(std::vector<float> values) {
    const float inf = std::numeric_limits<float>::infinity();
    const float extremes[] = {inf, -inf, -0.0F, 1e-42F, -1e-42F, 3e38F};
    for (size_t i = 0; i < std::size(extremes) && values.size() > 100; ++i) {
        values[i * 7 + 1] = extremes[i];
    }
    return values;
}

namespace {

constexpr double kLn2 = 0.693147180559945309417232121458;

double rounded(double v, Rounding rounding) {
    if (rounding == Rounding::half_even) return std::nearbyint(v);
    if (rounding == Rounding::floor) return std::floor(v);
    const bool away = rounding == Rounding::half_away || rounding == Rounding::double_;
    const double size = away ? std::fabs(v) : v;
    const double whole = std::floor(size) + (size - std::floor(size) >= 0.5 ? 1 : 0);
    return away && v < 0 ? -whole : whole;
}

struct Results {
    std::vector<float> y, gx;
    std::vector<double> glog2t;
};

// The sum of each `size` numbers, added one after the other.
std::vector<double> sums_of(const std::vector<double>& values, size_t size) {
    std::vector<double> sums;
    for (size_t i = 0; i < values.size(); ++i) {
        if (i % size == 0) {
            sums.push_back(values[i]);
        } else {
            sums.back() += values[i];
        }
    }
    return sums;
}

// The sum of the products of one channel (or lane), in the order of quantize.h.
double ordered_sum(std::vector<double> sums) {
    for (const int64_t size : {kLeafRows, kLeaves, kBlocks}) {
        sums = sums_of(sums, static_cast<size_t>(size));
    }
    return sums.empty() ? 0 : sums_of(sums, sums.size())[0];
}

Results expected(const std::vector<float>& x, const std::vector<float>& g, const Quantizer& q) {
    Results results{x, g, std::vector<double>(static_cast<size_t>(q.channels))};
    const size_t columns = static_cast<size_t>(q.channels == 1 ? kLanes : q.channels);
    std::vector<std::vector<double>> products(columns);
    for (size_t i = 0; i < x.size(); ++i) {
        const int f = q.f[i % static_cast<size_t>(q.channels)];
        const double r = rounded(std::ldexp(static_cast<double>(x[i]), f), q.rounding);
        const bool below = r < q.low;
        const bool above = r > q.high;
        const double code = below ? q.low : (above ? q.high : r);
        const float slope =
            below ? q.low : (above ? q.high : static_cast<float>(r) - std::ldexp(x[i], f));
        results.y[i] = static_cast<float>(std::ldexp(code, -f)) + 0.0F;
        results.gx[i] = below || above ? 0.0F : g[i];
        products[i % columns].push_back(static_cast<double>(g[i]) * slope);
    }
    std::vector<double> sums;
    for (const std::vector<double>& column : products) sums.push_back(ordered_sum(column));
    for (size_t half = columns / 2; q.channels == 1 && half > 0; half /= 2) {
        for (size_t i = 0; i < half; ++i) sums[i] += sums[i + half];
    }
    for (size_t i = 0; i < results.glog2t.size(); ++i) {
        results.glog2t[i] = std::ldexp(kLn2, -q.f[i]) * sums[i] + 0.0;
    }
    return results;
}

// The layout of a narrow type: the bits of its fraction, and its smallest exponent.
struct Format {
    int fraction_bits;
    int least_exponent;
};

Format format(Type type) { return type == Type::bfloat16 ? Format{7, -126} : Format{10, -14}; }

// The nearest number that the type holds, ties to even.
float held(float v, Type type) {
    if (type == Type::float32 || v == 0 || !std::isfinite(v)) return v;
    const Format f = format(type);
    const int exponent = std::max(std::ilogb(v), f.least_exponent) - f.fraction_bits;
    const double number = std::ldexp(std::nearbyint(std::ldexp(double{v}, -exponent)), exponent);
    const double limit = type == Type::bfloat16 ? std::ldexp(1, 128) : std::ldexp(1, 16);
    return std::fabs(number) < limit ? static_cast<float>(number)
                                     : std::copysign(std::numeric_limits<float>::infinity(), v);
}

float decoded(uint16_t bits, Type type) {
    const Format f = format(type);
    const int exponent = (bits & 0x7fff) >> f.fraction_bits;
    const int fraction = bits & ((1 << f.fraction_bits) - 1);
    const bool special = exponent == 0x7fff >> f.fraction_bits;
    const int normal = exponent == 0 ? 0 : 1 << f.fraction_bits;
    const double number = std::ldexp(
        double(normal + fraction), std::max(exponent, 1) - 1 + f.least_exponent - f.fraction_bits);
    const double size = !special        ? number
                        : fraction == 0 ? std::numeric_limits<double>::infinity()
                                        : std::numeric_limits<double>::quiet_NaN();
    return static_cast<float>(bits < 0x8000 ? size : -size);
}

// The bits of a number that the type holds. Every NaN gives the same bits.
uint16_t encoded(float v, Type type) {
    const Format f = format(type);
    const uint16_t sign = std::signbit(v) ? 0x8000 : 0;
    if (std::isnan(v)) return 0x7fff;
    if (std::isinf(v))
        return sign | static_cast<uint16_t>(0x7fff >> f.fraction_bits << f.fraction_bits);
    if (v == 0) return sign;
    const int exponent = std::max(std::ilogb(v), f.least_exponent);
    const double units = std::ldexp(std::fabs(double{v}), f.fraction_bits - exponent);
    const int biased = (exponent - f.least_exponent) << f.fraction_bits;
    return sign | static_cast<uint16_t>(biased + static_cast<int>(units));
}

// A tensor that begins `offset` elements after the start of its memory. No memory follows it, so a
// sanitizer finds reads past the end.
class Tensor {
  public:
    Tensor(const std::vector<float>& values, Type type, size_t offset)
        : type_(type),
          size_(static_cast<size_t>(size_of(type))),
          count_(values.size()),
          offset_(offset),
          memory_(new char[(count_ + offset) * size_]) {
        for (size_t i = 0; i < count_; ++i) {
            const uint16_t narrow = type == Type::float32 ? 0 : encoded(values[i], type);
            std::memcpy(at(i),
                        type == Type::float32 ? static_cast<const void*>(&values[i]) : &narrow,
                        size_);
        }
    }

    char* data() const { return at(0); }

    std::vector<float> values() const {
        std::vector<float> values(count_);
        for (size_t i = 0; i < count_; ++i) {
            uint16_t narrow = 0;
            std::memcpy(type_ == Type::float32 ? static_cast<void*>(&values[i]) : &narrow, at(i),
                        size_);
            if (type_ != Type::float32) values[i] = decoded(narrow, type_);
        }
        return values;
    }

  private:
    char* at(size_t i) const { return memory_.get() + (offset_ + i) * size_; }

    Type type_;
    size_t size_, count_, offset_;
    std::unique_ptr<char[]> memory_;
};

std::vector<float> held(std::vector<float> values, Type type) {
    for (float& value : values) value = held(value, type);
    return values;
}

void compare(const std::vector<float>& x, const std::vector<float>& g, const Quantizer& q,
             Type type, size_t offset, const Results& wanted) {
    const Tensor own_x(x, type, offset);
    const Tensor own_g(g, type, offset);
    const Tensor out(x, type, offset);
    const auto count = static_cast<int64_t>(x.size());
    quantize(own_x.data(), out.data(), count, q, type);
    CHECK(same(out.values(), held(wanted.y, type)));
    std::vector<double> sums(static_cast<size_t>(q.channels), -1);
    quantize_gradients(own_x.data(), own_g.data(), out.data(), sums.data(), count, q, type);
    CHECK(same(out.values(), wanted.gx));
    CHECK(same(sums, wanted.glog2t));
    quantize_gradients(own_x.data(), own_g.data(), own_g.data(), sums.data(), count, q, type);
    CHECK(same(own_g.values(), wanted.gx));
    CHECK(same(sums, wanted.glog2t));
    quantize(own_x.data(), own_x.data(), count, q, type);
    CHECK(same(own_x.values(), held(wanted.y, type)));
}

void test_one(const std::vector<float>& x, const std::vector<float>& g, const Quantizer& q,
              Type type, size_t offset) {
    const Results wanted = expected(x, g, q);
    for (const InstructionSet set :
         {InstructionSet::plain, InstructionSet::avx2, InstructionSet::avx512}) {
        if (!choose(set)) continue;
        CHECK(chosen() == set);
        for (const int count : {1, 3}) {
            set_threads(count);
            compare(x, g, q, type, offset, wanted);
        }
    }
}

void test_quantizer_of(size_t count, int64_t channels, size_t offset) {
    std::vector<int32_t> f(static_cast<size_t>(channels));
    for (size_t i = 0; i < f.size(); ++i) f[i] = static_cast<int32_t>(i % 5) + 2;
    for (const Type type : {Type::float32, Type::bfloat16, Type::float16}) {
        const std::vector<float> x = held(with_extremes(samples(count, 1)), type);
        const std::vector<float> g = held(samples(count, 2), type);
        for (int mode = 0; mode < kRoundings; ++mode) {
            test_one(x, g, {f.data(), channels, -8, 7, static_cast<Rounding>(mode)}, type, offset);
        }
    }
}

}  // namespace

void test_quantizer() {
    for (const size_t size : {0, 1, 31, 32, 1000, 1024, 40'001, 300'000}) {
        test_quantizer_of(size, 1, size % 3);
    }
    for (const int64_t channels : {2, 3, 8, 33, 64, 1100}) {
        test_quantizer_of(static_cast<size_t>(channels) * 1030, channels, 1);
    }
    const int32_t exponents[] = {3, 4};  // more than a span
    for (const auto& [size, channels] : {std::pair{(1 << 20) + 5000, 1}, std::pair{66'000, 2}}) {
        const std::vector<float> many = samples(static_cast<size_t>(size), 3);
        test_one(many, many, {exponents, channels, -8, 7, Rounding::half_even}, Type::float32, 0);
    }
    // A NaN or infinity reaches the sum.
    std::vector<float> diverged = samples(1000, 4);
    diverged[500] = std::numeric_limits<float>::quiet_NaN();
    const std::vector<float> extremes = with_extremes(samples(1000, 5));
    const Quantizer one{exponents, 1, -8, 7, Rounding::half_up};
    test_one(diverged, samples(1000, 6), one, Type::float32, 0);
    test_one(samples(1000, 6), diverged, one, Type::float32, 0);
    test_one(extremes, extremes, one, Type::float32, 0);
    const std::vector<float> x((1 << 22) + 64 + 5, 0.3F);  // large enough for streaming stores
    const int32_t f = 3;
    const Quantizer q{&f, 1, -8, 7, Rounding::half_even};
    std::vector<float> y(x.size());
    const size_t lead = (64 - reinterpret_cast<uintptr_t>(y.data()) % 64) % 64 / 4;
    quantize(x.data(), y.data() + lead, static_cast<int64_t>(x.size() - lead), q);
    CHECK(std::all_of(y.begin() + static_cast<ptrdiff_t>(lead), y.end(),
                      [](float value) { return value == 0.25F; }));
}

void test_narrow_types() {
    for (const Type type : {Type::bfloat16, Type::float16}) {
        std::vector<float> all(1 << 16);
        for (size_t i = 0; i < all.size(); ++i) {
            all[i] = decoded(static_cast<uint16_t>(i), type);
            CHECK(std::isnan(all[i]) || encoded(all[i], type) == i);
            CHECK(same(held(all[i], type), all[i]));
        }
        const std::vector<float> reversed(all.rbegin(), all.rend());
        // Neither type holds all codes of 16 bits: some are rounded, too large or too small.
        for (const int32_t f : {2, -10, 30, 126}) {
            test_one(all, reversed, {&f, 1, -32768, 32767, Rounding::half_even}, type, 0);
        }
    }
}

}  // namespace qgraph
