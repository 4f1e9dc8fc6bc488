#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#define CHECK(condition)                                                         \
    do {                                                                         \
        if (!(condition)) {                                                      \
            std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
            std::exit(1);                                                        \
        }                                                                        \
    } while (false)

namespace qgraph {

// True if both have the same bits; all NaN count as equal.
template <typename T>
bool same(T a, T b) {
    return std::memcmp(&a, &b, sizeof a) == 0 || (a != a && b != b);
}

template <typename T>
bool same(const std::vector<T>& a, const std::vector<T>& b) {
    return a.size() == b.size() &&
           std::equal(a.begin(), a.end(), b.begin(), [](T p, T q) { return same(p, q); });
}

// `count` normally distributed numbers. Some lie exactly between two codes.
std::vector<float> samples(size_t count, unsigned seed);

// The values with some replaced by zeros, infinities, subnormal and large numbers, if there are
// enough values.
std::vector<float> with_extremes(std::vector<float> values);

// The sum of each channel, in the order of epilogue.h.
std::vector<double> sums_of_channels(const std::vector<double>& values, size_t channels);

void test_codes();
void test_quantizer();
void test_narrow_types();
void test_grid();
void test_epilogue_grid();
void test_engine_kernels();
void test_epilogue();
void test_norm();
void test_broadcast();
void test_rounding();
void test_significand();

}  // namespace qgraph
