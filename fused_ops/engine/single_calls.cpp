#include "engine/single_calls.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "engine/elementwise.h"
#include "engine/parts.h"
#include "engine/plain.h"

namespace qgraph::engine {
namespace {

class SingleCalls {
  public:
    SingleCalls(const Network& network, const std::vector<Place>& places, int threads, Level level)
        : network_(network), places_(places), threads_(threads), level_(level) {}

    std::function<void()> call(const Group& group) const {
        const Step& found = step(group.steps[0]);
        switch (family_of(found.op)) {
            case Family::product:
                return plain_conv(group);
            case Family::matrix:
                return matrices(found);
            case Family::row:
                return rows(found);
            case Family::reduction:
                return reduction(found);
            case Family::move:
                return move(found);
            case Family::reshape:
                return reshape(group);
            case Family::binary:
            case Family::unary:
                break;  // chains compute these, even a single step
        }
        no_case(found.op, "engine/single_calls.cpp, call");
    }

  private:
    const Tensor& tensor(uint32_t index) const { return network_.tensors[index]; }
    const Step& step(uint32_t index) const { return network_.steps[index]; }
    const Place& place_of(uint32_t index) const { return places_[index]; }

    template <typename What>
    std::function<void()> in_parts(int64_t count, int64_t work, int64_t grain, What what) const {
        return engine::in_parts(threads_, count, work, grain, what);
    }

    std::function<void()> reshape(const Group& group) const {
        const Step& found = step(group.steps[0]);
        const Place &x = place_of(group.x), &y = place_of(found.output);
        switch (as_reshape(found.op)) {
            case ReshapeOp::reshape:
                if (is_alias(network_, group)) return [] {};
                return [=] { convert(x.data, x.storage, 1, y.data, y.storage, product(y.shape)); };
        }
        no_case(found.op, "engine/single_calls.cpp, reshape");
    }

    std::function<void()> reduction(const Step& found) const {
        const Place &x = place_of(found.inputs[0]), &y = place_of(found.output);
        switch (as_reduction(found.op)) {
            case ReductionOp::reduce_max:
                return [=, axes = found.list] { reduce_max(axes, x, y); };
        }
        no_case(found.op, "engine/single_calls.cpp, reduction");
    }

    std::function<void()> move(const Step& found) const {
        const Place &x = place_of(found.inputs[0]), &y = place_of(found.output);
        switch (as_move(found.op)) {
            case MoveOp::transpose:
            case MoveOp::slice:
                return strided(found);
            case MoveOp::concat:
                return concat(found);
            case MoveOp::pad:
                return [=, begin = every_second(found.list)] {
                    std::memset(y.data, 0,
                                static_cast<size_t>(product(y.shape) * size_of(y.storage)));
                    insert(x, y, begin);
                };
            case MoveOp::take:
                return [=, axis = found.axis, indices = found.list] { take(x, axis, indices, y); };
            case MoveOp::embedding:
                return [=, table = tensor(found.inputs[1])] { copy_rows(x, table, y); };
        }
        no_case(found.op, "engine/single_calls.cpp, move");
    }

    std::function<void()> matrices(const Step& found) const {
        const Place &a = place_of(found.inputs[0]), &b = place_of(found.inputs[1]);
        const Place& y = place_of(found.output);
        switch (as_matrix(found.op)) {
            case MatrixOp::batch_matmul: {
                const int64_t columns = y.shape.back(), size = product(y.shape);
                return in_parts(size / columns, size * a.shape.back(), kProducts,
                                [=, narrow = sums_fit(found)](int64_t begin, int64_t end, int64_t) {
                                    multiply(a, b, y, narrow, begin, end);
                                });
            }
        }
        no_case(found.op, "engine/single_calls.cpp, matrices");
    }

    // Whether 32 bits hold every partial sum of these products, for any codes of these types.
    bool sums_fit(const Step& found) const {
        const Place &a = place_of(found.inputs[0]), &b = place_of(found.inputs[1]);
        if (size_of(a.storage) > 2 || size_of(b.storage) > 2) return false;
        const auto most = [](Storage type) { return std::max(-lowest(type), highest(type)); };
        return most(a.storage) * most(b.storage) <=
               INT32_MAX / std::max<int64_t>(a.shape.back(), 1);
    }

    std::function<void()> rows(const Step& found) const {
        const Place &x = place_of(found.inputs[0]), &y = place_of(found.output);
        switch (as_row(found.op)) {
            case RowOp::max_pool:
                return pool(found);
            case RowOp::softmax: {
                const int64_t size = product(y.shape), rows = size / y.shape.back();
                const Tensor& table = tensor(found.inputs[1]);
                auto entries = std::make_shared<std::vector<int64_t>>(
                    static_cast<size_t>(product(table.shape)));
                convert(table.data, table.storage, 1, entries->data(), Storage::i64,
                        product(table.shape));
                return in_parts(
                    rows, size, kElements,
                    [=, bits = found.bits, high = found.high](int64_t begin, int64_t end, int64_t) {
                        softmax(*entries, bits, high, x, y, begin, end);
                    });
            }
            case RowOp::standardize: {
                const int64_t size = product(y.shape), rows = size / y.shape.back();
                return in_parts(rows, size, kElements,
                                [=, numbers = found.standard](int64_t begin, int64_t end, int64_t) {
                                    standardize(numbers, x, y, begin, end);
                                });
            }
        }
        no_case(found.op, "engine/single_calls.cpp, rows");
    }

    std::function<void()> strided(const Step& found) const {
        const Place &x = place_of(found.inputs[0]), &y = place_of(found.output);
        const std::vector<int64_t> dense = dense_strides(x.shape);
        std::vector<int64_t> strides;
        int64_t begin = 0;
        for (size_t i = 0; i < dense.size(); ++i) {
            if (found.op == Op::transpose) {
                strides.push_back(dense[static_cast<size_t>(found.list[i])]);
            } else {
                begin += found.list[i] * dense[i];
                strides.push_back(found.steps[i] * dense[i]);
            }
        }
        return [=] { copy(x, begin, strides, y); };
    }

    std::function<void()> concat(const Step& found) const {
        const Place& y = place_of(found.output);
        std::vector<std::pair<Place, std::vector<int64_t>>> parts;
        std::vector<int64_t> begin(y.shape.size(), 0);
        for (const uint32_t input : found.inputs) {
            parts.emplace_back(place_of(input), begin);
            begin[static_cast<size_t>(found.axis)] +=
                place_of(input).shape[static_cast<size_t>(found.axis)];
        }
        return [=] {
            for (const auto& [x, at] : parts) insert(x, y, at);
        };
    }

    static std::vector<int64_t> every_second(const std::vector<int64_t>& list) {
        std::vector<int64_t> found;
        for (size_t i = 0; i < list.size(); i += 2) found.push_back(list[i]);
        return found;
    }

    std::function<void()> pool(const Step& found) const {
        const Place &x = place_of(found.inputs[0]), &y = place_of(found.output);
        const Window window = found.window;
        const int64_t pixels = y.shape[0] * y.shape[1] * y.shape[2];
        const int64_t work = product(y.shape) * window.kernel[0] * window.kernel[1];
        Pool pool;
        const bool known = code_of(tensor(found.inputs[0]), pool.type) && x.storage == y.storage &&
                           pool.type != Code::u16;
        if (!known) {
            return in_parts(pixels, work, kElements, [=](int64_t begin, int64_t end, int64_t) {
                max_pool(window, x, y, begin, end);
            });
        }
        pool.height = x.shape[1], pool.width = x.shape[2], pool.channels = x.shape[3];
        pool.kernel_height = window.kernel[0], pool.kernel_width = window.kernel[1];
        pool.stride_height = window.strides[0], pool.stride_width = window.strides[1];
        pool.pad_top = window.pads[0], pool.pad_left = window.pads[2];
        pool.out_height = y.shape[1], pool.out_width = y.shape[2];
        const Level level = level_;
        return in_parts(pixels, work, kElements,
                        [=, from = x.data, to = y.data](int64_t begin, int64_t end, int64_t) {
                            max_pool(pool, from, to, begin, end, level);
                        });
    }

    std::function<void()> plain_conv(const Group& group) const {
        const Step& found = step(group.steps[0]);
        const Tensor& w = tensor(found.inputs[1]);
        auto conv = std::make_shared<PlainConv>();
        conv->window = group.window;
        conv->groups = found.groups;
        conv->depthwise = found.op == Op::depthwise_conv2d;
        conv->weights.resize(static_cast<size_t>(product(w.shape)));
        convert(w.data, w.storage, 1, conv->weights.data(), Storage::i64, product(w.shape));
        conv->x = place_of(group.x);
        conv->y = place_of(found.output);
        if (!slides(found.op)) {  // a matrix product is a convolution of images of one pixel
            conv->window = {{1, 1}, {1, 1}, {1, 1}, {0, 0, 0, 0}};
            conv->groups = 1;
            conv->x.shape = {conv->x.shape[0], 1, 1, conv->x.shape[1]};
            conv->y.shape = {conv->y.shape[0], 1, 1, conv->y.shape[1]};
        }
        conv->out_channels = conv->y.shape[3];
        const int64_t pixels = product(conv->y.shape) / conv->out_channels;
        return in_parts(
            pixels, pixels * product(w.shape), kProducts,
            [conv](int64_t begin, int64_t end, int64_t) { engine::run(*conv, begin, end); });
    }

    const Network& network_;
    const std::vector<Place>& places_;
    const int threads_;
    const Level level_;
};

}  // namespace

bool slides(Op op) {
    switch (as_product(op)) {
        case ProductOp::conv2d:
        case ProductOp::depthwise_conv2d:
            return true;
        case ProductOp::matmul:
            return false;
    }
    no_case(op, "engine/single_calls.cpp, slides");
}

std::function<void()> single_call(const Network& network, const std::vector<Place>& places,
                                  const Group& group, int threads, Level level) {
    return SingleCalls(network, places, threads, level).call(group);
}

}  // namespace qgraph::engine
