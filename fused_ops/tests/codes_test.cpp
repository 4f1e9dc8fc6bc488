// Tests of codes in bytes: packing, norms and max pools by their definitions, with the same bits on
// any instruction set and with any number of threads.

#include "core/codes.h"

#include <cmath>
#include <limits>
#include <vector>

#include "core/coded_norm.h"
#include "core/max_pool.h"
#include "core/parallel.h"
#include "core/quantize.h"
#include "tests/check.h"

namespace qgraph {
namespace {

void check(size_t count, const ByteCodes& form) {
    const int low = form.is_signed ? -(1 << (form.bits - 1)) : 0;
    const int high = low + (1 << form.bits) - 1;
    std::vector<float> x(count), unpacked(count + 1, -7);
    std::vector<uint8_t> wanted(count), codes(count + 1, 77);
    for (size_t i = 0; i < count; ++i) {
        const int code = low + static_cast<int>(i * 37 % (1U << form.bits));
        x[i] = std::ldexp(static_cast<float>(code), -form.f);
        wanted[i] = static_cast<uint8_t>(code);
    }
    const auto size = static_cast<int64_t>(count);
    pack_codes(x.data(), codes.data(), size, form);
    unpack_codes(codes.data(), unpacked.data(), size, form);
    CHECK(codes.back() == 77 && unpacked.back() == -7);
    CHECK(std::equal(wanted.begin(), wanted.end(), codes.begin()));
    CHECK(std::equal(x.begin(), x.end(), unpacked.begin(),
                     [](float a, float b) { return same(a, b); }));
    const float infinity = std::numeric_limits<float>::infinity();
    const float outside[] = {infinity, -infinity, std::numeric_limits<float>::quiet_NaN(), -0.0F};
    uint8_t limited[4];
    pack_codes(outside, limited, 4, form);
    const auto lowest = static_cast<uint8_t>(low);
    CHECK(limited[0] == static_cast<uint8_t>(high) && limited[1] == lowest);
    CHECK(limited[2] == lowest && limited[3] == 0);
}

void check_norm(size_t rows, size_t channels) {
    const ByteCodes form{4, 8, true};
    const size_t count = rows * channels;
    const auto size = static_cast<int64_t>(count);
    const auto c = static_cast<int64_t>(channels);
    std::vector<uint8_t> codes(count);
    std::vector<float> x(count), y(count);
    for (size_t i = 0; i < count; ++i) codes[i] = static_cast<uint8_t>(i * 41 + i / 251);
    unpack_codes(codes.data(), x.data(), size, form);
    const std::vector<float> g = samples(count, 1), mean = samples(channels, 2);
    const std::vector<float> scale = samples(channels, 3), slope = samples(channels, 4);
    normalize_codes(codes.data(), form, y.data(), size, c,
                    {mean.data(), scale.data(), slope.data()});
    std::vector<double> products(count);
    for (size_t i = 0; i < count; ++i) {
        const float off = x[i] - mean[i % channels];
        CHECK(same(y[i], off * scale[i % channels] + slope[i % channels]));
        products[i] = static_cast<double>(g[i]) * off;
    }
    const std::vector<double> by_scale = sums_of_channels(products, channels);
    const std::vector<double> by_shift = sums_of_channels({g.begin(), g.end()}, channels);
    std::vector<float> gx = g;
    normalized_codes_gradient(gx.data(), codes.data(), form, gx.data(), size, c,
                              {mean.data(), scale.data(), slope.data()});
    const auto n = static_cast<double>(rows);
    for (size_t i = 0; i < count; ++i) {
        const size_t k = i % channels;
        const auto a = static_cast<float>(2 * static_cast<double>(slope[k]) * by_scale[k] / n);
        const auto b = static_cast<float>(-static_cast<double>(scale[k]) * by_shift[k] / n);
        CHECK(same(gx[i], g[i] * scale[k] + ((x[i] - mean[k]) * a + b)));
    }
}

void check_pool(const Pool& p, bool is_signed) {
    const auto at = [&](int64_t image, int64_t row, int64_t column, int64_t channel) {
        return static_cast<size_t>(((image * p.rows + row) * p.columns + column) * p.channels +
                                   channel);
    };
    std::vector<uint8_t> codes(at(p.images, 0, 0, 0));
    for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint8_t>(i * 29 % 11 % 3 - 1);
    const int64_t results = p.images * p.out_rows() * p.out_columns() * p.channels;
    const std::vector<float> g = samples(static_cast<size_t>(results), 6);
    std::vector<float> wanted(codes.size()), gx(codes.size() + 1, -7);
    for (int64_t i = 0; i < results; ++i) {
        const int64_t channel = i % p.channels, place = i / p.channels;
        const int64_t left = place % p.out_columns() * p.column_stride;
        const int64_t top = place / p.out_columns() % p.out_rows() * p.row_stride;
        const int64_t image = place / p.out_columns() / p.out_rows();
        const auto value = [&](size_t k) {
            return is_signed ? static_cast<int>(static_cast<int8_t>(codes[k])) : int{codes[k]};
        };
        size_t first = at(image, top, left, channel);
        for (int64_t row = top; row < top + p.height; ++row) {
            for (int64_t column = left; column < left + p.width; ++column) {
                const size_t k = at(image, row, column, channel);
                if (value(k) > value(first)) first = k;
            }
        }
        wanted[first] = g[static_cast<size_t>(i)];
    }
    max_pool_gradient(codes.data(), is_signed, g.data(), gx.data(), p);
    CHECK(gx.back() == -7 && std::equal(wanted.begin(), wanted.end(), gx.begin()));
}

}  // namespace

void test_codes() {
    const InstructionSet before = chosen();
    for (const InstructionSet set :
         {InstructionSet::plain, InstructionSet::avx2, InstructionSet::avx512}) {
        if (!choose(set)) continue;
        for (const int threads : {1, 3}) {
            set_threads(threads);
            for (const size_t count : {0, 1, 31, 32, 33, 1000, 32'768, 400'007}) {
                check(count, {3, 8, true});
                check(count, {126, 8, false});
                check(count, {-126, 2, true});
                check(count, {-2, 1, false});
            }
            check(5'000'000, {0, 8, true});  // written past the caches
            for (const size_t channels : {1, 3, 8, 31, 32, 33, 100}) {
                check_norm(70'000 / channels, channels);
            }
            check_norm(5, 12);
            check_norm(3, 40'000);  // more channels than a block has elements
            for (const bool is_signed : {true, false}) {
                check_pool({2, 30, 30, 64, 2, 2, 2, 2}, is_signed);
                check_pool({3, 9, 11, 5, 2, 3, 3, 4}, is_signed);
                check_pool({1, 7, 4, 300, 1, 1, 1, 1}, is_signed);
            }
        }
    }
    choose(before);
}

}  // namespace qgraph
