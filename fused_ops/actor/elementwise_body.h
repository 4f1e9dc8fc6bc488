// All ops but products, on rows of floats. Included once by each level.

#pragma once

#include "actor/format.h"
#include "actor/functions.h"

namespace qgraph::actor {
namespace {

// The largest bits of a magnitude.
inline bool finite_sizes(Ints sizes) {
    for (int i = 0; i < kWide; ++i) {
        if (sizes[i] >= 0x7f800000) return false;
    }
    return true;
}

bool finite(const float* x, int64_t count) {
    Ints largest{};
    for (int64_t i = 0; i < count; i += kWide) {
        const Ints size = (Ints)((Bits)load_first(x + i, count - i) & 0x7fffffffu);
        largest = size > largest ? size : largest;
    }
    return finite_sizes(largest);
}

void activate(Rows rows, Activation activation, float alpha) {
    if (activation == Activation::linear && rows.x == rows.y) return;
    with_activation(activation, [&](auto tag) {
        each(rows.x, rows.y, rows.count * rows.size,
             [&](Vec x, int64_t, int64_t) { return activated<decltype(tag)::value>(x, alpha); });
    });
}

template <class F>
void each_row(Rows rows, F f) {
    for (int64_t row = 0; row < rows.count; ++row) {
        f(rows.x + row * rows.size, rows.y + row * rows.size);
    }
}

void affine(Rows rows, const float* scale, const float* offset) {
    each_row(rows, [&](const float* x, float* y) {
        each(x, y, rows.size, [&](Vec v, int64_t i, int64_t left) {
            return v * load_first(scale + i, left) + load_first(offset + i, left);
        });
    });
}

void clip(Rows rows, const float* low, const float* high) {
    each_row(rows, [&](const float* x, float* y) {
        each(x, y, rows.size, [&](Vec v, int64_t i, int64_t left) {
            return held(v, load_first(low + i, left), load_first(high + i, left));
        });
    });
}

// Lane i sums the values i, i + 16, ...; then the upper half of the lanes is added to the lower
// half until one number is left.
template <class F>
float total(const float* x, int64_t count, F f) {
    Vec sums[kLanes / kWide] = {};
    for (int64_t i = 0; i < count; i += kLanes) {
        for (int part = 0; part < kLanes / kWide; ++part) {
            const int64_t at = i + part * kWide;
            if (at < count) sums[part] += f(load_first(x + at, count - at), count - at);
        }
    }
    float lanes[kLanes];
    for (int part = 0; part < kLanes / kWide; ++part) store_all(lanes + part * kWide, sums[part]);
    for (int half = kLanes / 2; half > 0; half /= 2) {
        for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
    }
    return lanes[0];
}

float mean(const float* x, int64_t count) {
    const float sum = total(x, count, [](Vec v, int64_t) { return v; });
    return sum / static_cast<float>(count);
}

void layer_norm(Rows rows, const float* gamma, const float* beta, float epsilon) {
    each_row(rows, [&](const float* x, float* y) {
        const float middle = mean(x, rows.size);
        each(x, y, rows.size, [&](Vec v, int64_t, int64_t) { return v - middle; });
        const float squares = total(y, rows.size, [](Vec v, int64_t) { return v * v; });
        const float variance = squares / static_cast<float>(rows.size);
        const float scale = 1.0f / __builtin_sqrtf(variance + epsilon);
        each(y, y, rows.size, [&](Vec v, int64_t i, int64_t left) {
            return (v * scale) * load_first(gamma + i, left) + load_first(beta + i, left);
        });
    });
}

void center(Rows rows) {
    each_row(rows, [&](const float* x, float* y) {
        const float middle = mean(x, rows.size);
        each(x, y, rows.size, [&](Vec v, int64_t, int64_t) { return v - middle; });
    });
}

void softmax(Rows rows) {
    each_row(rows, [&](const float* x, float* y) {
        float largest = x[0];
        for (int64_t i = 1; i < rows.size; ++i) {
            largest = x[i] > largest || largest != largest ? x[i] : largest;
        }
        each(x, y, rows.size, [&](Vec v, int64_t, int64_t) { return exp(v - largest); });
        const float sum = total(y, rows.size, [](Vec v, int64_t) { return v; });
        each(y, y, rows.size, [&](Vec v, int64_t, int64_t) { return v / sum; });
    });
}

template <class F>
void with_other(Rows rows, const float* other, bool one, F f) {
    if (!one) {
        return each(rows.x, rows.y, rows.count * rows.size, [&](Vec v, int64_t i, int64_t left) {
            return f(v, load_first(other + i, left));
        });
    }
    for (int64_t row = 0; row < rows.count; ++row) {
        const int64_t at = row * rows.size;
        each(rows.x + at, rows.y + at, rows.size,
             [&](Vec v, int64_t, int64_t) { return f(v, all(other[row])); });
    }
}

void add(Rows rows, const float* other, bool one) {
    with_other(rows, other, one, [](Vec a, Vec b) { return a + b; });
}

void multiply(Rows rows, const float* other, bool one) {
    with_other(rows, other, one, [](Vec a, Vec b) { return a * b; });
}

void sum_rows(Rows rows) {
    for (int64_t row = 0; row < rows.count; ++row) {
        rows.y[row] = total(rows.x + row * rows.size, rows.size, [](Vec v, int64_t) { return v; });
    }
}

// Products are added one after the other.
void matmul(const Matrices& m) {
    for (int64_t row = 0; row < m.rows; ++row) {
        const float* a = m.a + row * m.depth;
        for (int64_t c = 0; c < m.columns; c += kWide) {
            Vec sum{};
            for (int64_t k = 0; k < m.depth; ++k) {
                sum += all(a[k]) * load_first(m.b + k * m.columns + c, m.columns - c);
            }
            store_first(m.y + row * m.columns + c, sum, m.columns - c);
        }
    }
}

// y = end(join(join(first, v), ...), count) of the `count` values v under each window.
template <class Join, class End>
void pool(const Pool& p, Vec first, Join join, End end) {
    const int64_t last_row = p.height + p.top, last_column = p.width + p.left;
    float* y = p.y;
    for (int64_t row = 0; row < p.out_height * p.strides[0]; row += p.strides[0]) {
        for (int64_t column = 0; column < p.out_width * p.strides[1]; column += p.strides[1]) {
            for (int64_t c = 0; c < p.channels; c += kWide) {
                Vec joined = first;
                int count = 0;
                for (int64_t i = row; i < row + p.ksize[0]; ++i) {
                    if (i < p.top || i >= last_row) continue;
                    for (int64_t j = column; j < column + p.ksize[1]; ++j) {
                        if (j < p.left || j >= last_column) continue;
                        const int64_t pixel = (i - p.top) * p.width + j - p.left;
                        const Vec v = load_first(p.x + pixel * p.channels + c, p.channels - c);
                        joined = join(joined, v);
                        ++count;
                    }
                }
                store_first(y + c, end(joined, count), p.channels - c);
            }
            y += p.channels;
        }
    }
}

void max_pool(const Pool& p) {
    pool(
        p, all(-__builtin_inff()), [](Vec a, Vec v) { return v > a ? v : a; },
        [](Vec a, int) { return a; });
}

// Values are added in the order of rows.
void avg_pool(const Pool& p) {
    pool(
        p, Vec{}, [](Vec a, Vec v) { return a + v; },
        [](Vec a, int count) { return a / static_cast<float>(count); });
}

}  // namespace
}  // namespace qgraph::actor
