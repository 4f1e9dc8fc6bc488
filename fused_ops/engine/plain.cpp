#include "engine/plain.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/elementwise.h"

namespace qgraph::engine {
namespace {

const char* at(const Place& place, int64_t element) {
    return static_cast<const char*>(place.data) + element * size_of(place.storage);
}

char* out_at(const Place& place, int64_t element) {
    return static_cast<char*>(place.data) + element * size_of(place.storage);
}

// Calls what(row, column, tap) with each pixel of x in the window of pixel `pixel` of y. Rows are
// counted over all images.
template <typename What>
void seen(const Window& window, const Shape& x, const Shape& y, int64_t pixel, const What& what) {
    const int64_t column = pixel % y[2] * window.strides[1] - window.pads[2];
    const int64_t row = pixel / y[2] % y[1] * window.strides[0] - window.pads[0];
    const int64_t image = pixel / y[2] / y[1];
    for (int64_t i = 0; i < window.kernel[0]; ++i) {
        const int64_t h = row + i * window.dilations[0];
        if (h < 0 || h >= x[1]) continue;
        for (int64_t j = 0; j < window.kernel[1]; ++j) {
            const int64_t w = column + j * window.dilations[1];
            if (w < 0 || w >= x[2]) continue;
            what((image * x[1] + h) * x[2] + w, i * window.kernel[1] + j);
        }
    }
}

constexpr uint64_t kMostSquare = uint64_t{1} << 53;

// The integer part of the square root of a number up to kMostSquare.
int64_t floor_root(uint64_t square) {
    auto root = static_cast<uint64_t>(std::sqrt(static_cast<double>(square)));
    while (root * root > square) --root;
    while ((root + 1) * (root + 1) <= square) ++root;
    return static_cast<int64_t>(root);
}

int64_t floor_quotient(int64_t a, int64_t b) {
    const int64_t quotient = a / b;
    return quotient - (a % b < 0);
}

// Calls a function with the offset, by these strides, of each run along the last dimension.
template <typename What>
void each_run(const Shape& shape, const std::vector<int64_t>& strides, const What& what) {
    const size_t outer = shape.size() - 1;
    std::vector<int64_t> index(outer, 0);
    for (int64_t place = 0;;) {
        what(place);
        size_t axis = outer;
        for (; axis-- > 0;) {
            place += strides[axis];
            if (++index[axis] < shape[axis]) break;
            place -= strides[axis] * shape[axis];
            index[axis] = 0;
        }
        if (axis == std::numeric_limits<size_t>::max()) return;
    }
}

}  // namespace

std::vector<int64_t> dense_strides(const Shape& shape) {
    std::vector<int64_t> strides(shape.size());
    int64_t step = 1;
    for (size_t axis = shape.size(); axis-- > 0; step *= shape[axis]) strides[axis] = step;
    return strides;
}

void run(const PlainConv& conv, int64_t begin, int64_t end) {
    const int64_t inputs = conv.x.shape[3], outputs = conv.out_channels;
    const int64_t groups = conv.depthwise ? inputs : conv.groups;
    const int64_t in = inputs / groups, out = outputs / groups;
    std::vector<int64_t> x(static_cast<size_t>(inputs)), sums(static_cast<size_t>(outputs));
    for (int64_t pixel = begin; pixel < end; ++pixel) {
        std::fill(sums.begin(), sums.end(), 0);
        seen(conv.window, conv.x.shape, conv.y.shape, pixel, [&](int64_t place, int64_t tap) {
            convert(at(conv.x, place * inputs), conv.x.storage, 1, x.data(), Storage::i64, inputs);
            for (int64_t channel = 0; channel < inputs; ++channel) {
                // Filters of a depthwise layer have the order [tap, channel, multiplier].
                const int64_t group = channel / in;
                const int64_t row =
                    conv.depthwise ? tap * inputs + channel : tap * in + channel % in;
                const int64_t width = conv.depthwise ? out : outputs;
                const int64_t* w = &conv.weights[static_cast<size_t>(
                    row * width + (conv.depthwise ? 0 : group * out))];
                int64_t* sum = &sums[static_cast<size_t>(group * out)];
                for (int64_t j = 0; j < out; ++j) {
                    // Unsigned, because the sum may overflow if the ranges in the file are wrong.
                    sum[j] = static_cast<int64_t>(static_cast<uint64_t>(sum[j]) +
                                                  static_cast<uint64_t>(x[channel]) *
                                                      static_cast<uint64_t>(w[j]));
                }
            }
        });
        convert(sums.data(), Storage::i64, 1, out_at(conv.y, pixel * outputs), conv.y.storage,
                outputs);
    }
}

void max_pool(const Window& window, const Place& x, const Place& y, int64_t begin, int64_t end) {
    const int64_t channels = x.shape[3];
    std::vector<int64_t> most(static_cast<size_t>(channels)), values(most);
    for (int64_t pixel = begin; pixel < end; ++pixel) {
        std::fill(most.begin(), most.end(), std::numeric_limits<int64_t>::min());
        seen(window, x.shape, y.shape, pixel, [&](int64_t place, int64_t) {
            convert(at(x, place * channels), x.storage, 1, values.data(), Storage::i64, channels);
            for (size_t c = 0; c < most.size(); ++c) most[c] = std::max(most[c], values[c]);
        });
        convert(most.data(), Storage::i64, 1, out_at(y, pixel * channels), y.storage, channels);
    }
}

void reduce_max(const std::vector<int64_t>& axes, const Place& x, const Place& y) {
    Shape kept(x.shape);
    for (const int64_t axis : axes) kept[static_cast<size_t>(axis)] = 1;
    std::vector<int64_t> strides = dense_strides(kept);
    for (const int64_t axis : axes) strides[static_cast<size_t>(axis)] = 0;
    const int64_t count = product(y.shape), inner = x.shape.empty() ? 1 : x.shape.back();
    const int64_t step = strides.empty() ? 0 : strides.back();
    std::vector<int64_t> most(static_cast<size_t>(count), std::numeric_limits<int64_t>::min());
    std::vector<int64_t> values(static_cast<size_t>(inner));
    int64_t read = 0;
    const auto run = [&](int64_t place) {
        convert(at(x, read), x.storage, 1, values.data(), Storage::i64, inner);
        read += inner;
        for (int64_t i = 0; i < inner; ++i) {
            int64_t& found = most[static_cast<size_t>(place + i * step)];
            found = std::max(found, values[static_cast<size_t>(i)]);
        }
    };
    if (x.shape.empty()) {
        run(0);
    } else {
        each_run(x.shape, strides, run);
    }
    convert(most.data(), Storage::i64, 1, y.data, y.storage, count);
}

void copy(const Place& x, int64_t begin, const std::vector<int64_t>& strides, const Place& y) {
    if (y.shape.empty()) {
        convert(x.data, x.storage, 1, y.data, y.storage, 1);
        return;
    }
    int64_t written = 0;
    each_run(y.shape, strides, [&](int64_t place) {
        convert(at(x, begin + place), x.storage, strides.back(), out_at(y, written), y.storage,
                y.shape.back());
        written += y.shape.back();
    });
}

void insert(const Place& x, const Place& y, const std::vector<int64_t>& begin) {
    const std::vector<int64_t> strides = dense_strides(y.shape);
    int64_t first = 0;
    for (size_t axis = 0; axis < begin.size(); ++axis) first += begin[axis] * strides[axis];
    // x covers all dimensions after this one completely, so their elements are contiguous.
    size_t last = x.shape.size() - 1;
    while (last > 0 && x.shape[last] == y.shape[last]) --last;
    Shape shape(x.shape.begin(), x.shape.begin() + static_cast<ptrdiff_t>(last) + 1);
    shape.back() *= strides[last];
    int64_t read = 0;
    each_run(shape, strides, [&](int64_t place) {
        convert(at(x, read), x.storage, 1, out_at(y, first + place), y.storage, shape.back());
        read += shape.back();
    });
}

namespace {

// Strides of a tensor along the axes of `onto` in front of the last two; 0 for repeated axes.
std::vector<int64_t> matrix_strides(const Shape& shape, const Shape& onto) {
    const std::vector<int64_t> dense = dense_strides(shape);
    std::vector<int64_t> strides(onto.size() - 2, 0);
    const size_t own = shape.size() - 2, missing = strides.size() - own;
    for (size_t i = 0; i < own; ++i) strides[missing + i] = shape[i] == 1 ? 0 : dense[i];
    return strides;
}

template <typename Number>
void multiply_as(Storage storage, const Place& a, const Place& b, const Place& y, int64_t begin,
                 int64_t end) {
    using Sum = std::make_unsigned_t<Number>;  // sums may overflow if the ranges are wrong
    const int64_t terms = a.shape.back(), columns = y.shape.back(),
                  rows = y.shape[y.shape.size() - 2];
    const std::vector<int64_t> of_a = matrix_strides(a.shape, y.shape);
    const std::vector<int64_t> of_b = matrix_strides(b.shape, y.shape);
    std::vector<Number> row(static_cast<size_t>(terms)), made(static_cast<size_t>(columns));
    std::vector<Number> matrix(static_cast<size_t>(terms * columns));
    int64_t known = -1;
    for (int64_t i = begin; i < end; ++i) {
        int64_t rest = i / rows, from_a = i % rows * terms, from_b = 0;
        for (size_t axis = of_a.size(); axis-- > 0; rest /= y.shape[axis]) {
            from_a += rest % y.shape[axis] * of_a[axis];
            from_b += rest % y.shape[axis] * of_b[axis];
        }
        if (from_b != known) {
            convert(at(b, from_b), b.storage, 1, matrix.data(), storage, terms * columns);
            known = from_b;
        }
        convert(at(a, from_a), a.storage, 1, row.data(), storage, terms);
        std::fill(made.begin(), made.end(), 0);
        for (int64_t k = 0; k < terms; ++k) {
            const auto code = static_cast<Sum>(row[static_cast<size_t>(k)]);
            const Number* right = &matrix[static_cast<size_t>(k * columns)];
            for (int64_t j = 0; j < columns; ++j) {
                Number& sum = made[static_cast<size_t>(j)];
                sum =
                    static_cast<Number>(static_cast<Sum>(sum) + code * static_cast<Sum>(right[j]));
            }
        }
        convert(made.data(), storage, 1, out_at(y, i * columns), y.storage, columns);
    }
}

}  // namespace

void multiply(const Place& a, const Place& b, const Place& y, bool narrow, int64_t begin,
              int64_t end) {
    if (narrow) {
        multiply_as<int32_t>(Storage::i32, a, b, y, begin, end);
    } else {
        multiply_as<int64_t>(Storage::i64, a, b, y, begin, end);
    }
}

void softmax(const std::vector<int64_t>& table, int64_t bits, int64_t high, const Place& x,
             const Place& y, int64_t begin, int64_t end) {
    const int64_t channels = x.shape.back();
    const auto farthest = static_cast<int64_t>(table.size()) - 1;
    std::vector<int64_t> row(static_cast<size_t>(channels));
    for (int64_t i = begin; i < end; ++i) {
        convert(at(x, i * channels), x.storage, 1, row.data(), Storage::i64, channels);
        const int64_t most = *std::max_element(row.begin(), row.end());
        // Unsigned, because sums may overflow if the table in the file is wrong.
        uint64_t total = 0;
        for (int64_t& code : row) {
            code = table[static_cast<size_t>(std::min(most - code, farthest))];
            total += static_cast<uint64_t>(code);
        }
        const auto divisor = std::max<int64_t>(static_cast<int64_t>(total), 1);
        for (int64_t& code : row) {
            const uint64_t raised = (static_cast<uint64_t>(code) << bits) + total / 2;
            code = std::min(floor_quotient(static_cast<int64_t>(raised), divisor), high);
        }
        convert(row.data(), Storage::i64, 1, out_at(y, i * channels), y.storage, channels);
    }
}

void standardize(const Standard& numbers, const Place& x, const Place& y, int64_t begin,
                 int64_t end) {
    const int64_t channels = x.shape.back();
    std::vector<int64_t> row(static_cast<size_t>(channels));
    // Unsigned, and the square is limited, because sums may overflow if the ranges in the file are
    // wrong.
    const auto count = static_cast<uint64_t>(channels);
    for (int64_t i = begin; i < end; ++i) {
        convert(at(x, i * channels), x.storage, 1, row.data(), Storage::i64, channels);
        uint64_t total = 0, squares = 0;
        for (const int64_t code : row) {
            total += static_cast<uint64_t>(code);
            squares += static_cast<uint64_t>(code) * static_cast<uint64_t>(code);
        }
        const uint64_t spread = count * squares - total * total;
        const uint64_t square =
            (spread << (2 * numbers.guard)) + static_cast<uint64_t>(numbers.epsilon);
        const int64_t root = floor_root(std::min(square, kMostSquare)) + 1;
        for (int64_t& code : row) {
            const uint64_t deviation = count * static_cast<uint64_t>(code) - total;
            const uint64_t doubled =
                (deviation << (numbers.shift + 1)) + static_cast<uint64_t>(root);
            code = floor_quotient(static_cast<int64_t>(doubled), 2 * root);
        }
        convert(row.data(), Storage::i64, 1, out_at(y, i * channels), y.storage, channels);
    }
}

void take(const Place& x, int64_t axis, const std::vector<int64_t>& indices, const Place& y) {
    const auto along = static_cast<size_t>(axis);
    int64_t outer = 1, inner = 1;
    for (size_t i = 0; i < x.shape.size(); ++i) {
        if (i < along) outer *= x.shape[i];
        if (i > along) inner *= x.shape[i];
    }
    int64_t written = 0;
    for (int64_t i = 0; i < outer; ++i) {
        for (const int64_t index : indices) {
            convert(at(x, (i * x.shape[along] + index) * inner), x.storage, 1, out_at(y, written),
                    y.storage, inner);
            written += inner;
        }
    }
}

void copy_rows(const Place& x, const Tensor& table, const Place& y) {
    const int64_t count = product(x.shape), rows = table.shape[0];
    const int64_t row = product(table.shape) / std::max<int64_t>(rows, 1);
    std::vector<int64_t> indices(static_cast<size_t>(count));
    convert(x.data, x.storage, 1, indices.data(), Storage::i64, count);
    const auto* entries = static_cast<const char*>(table.data);
    for (int64_t i = 0; i < count; ++i) {
        // Codes may be out of range if the ranges in the file are wrong.
        const int64_t index = std::clamp<int64_t>(indices[static_cast<size_t>(i)], 0, rows - 1);
        convert(entries + index * row * size_of(table.storage), table.storage, 1,
                out_at(y, i * row), y.storage, row);
    }
}

}  // namespace qgraph::engine
