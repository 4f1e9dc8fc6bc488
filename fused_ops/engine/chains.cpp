#include "engine/chains.h"

#include <algorithm>

namespace qgraph::engine {
namespace {

constexpr int64_t kPeriod = 1 << 16;  // of a constant that is spread once and for all

// A tensor, spread over `shape`.
Operand spread(const Place& place, bool constant, const Shape& shape, bool wide) {
    Operand made;
    made.data = place.data;
    made.storage = place.storage;
    if (!constant && place.shape == shape) {
        made.spread = Operand::Spread::dense;
        return made;
    }
    const std::vector<int64_t> dense = dense_strides(place.shape);
    const size_t missing = shape.size() - place.shape.size();
    made.spread = Operand::Spread::strided;
    made.sizes = shape;
    made.strides.assign(shape.size(), 0);
    size_t first = shape.size();  // the first dimension along which it is not the same
    for (size_t i = 0; i < place.shape.size(); ++i) {
        if (place.shape[i] == 1) continue;
        made.strides[missing + i] = dense[i];
        first = std::min(first, missing + i);
    }
    if (shape.empty()) {
        made.sizes = {1};
        made.strides = {1};
    }
    const int64_t period =
        product(Shape(shape.begin() + static_cast<ptrdiff_t>(first), shape.end()));
    if (!constant || period > kPeriod) return made;
    std::vector<int64_t> values(static_cast<size_t>(period));
    const Chain spreading{true, made, {}, Storage::i64, values.data()};
    run(spreading, 0, period);
    return repeated(values, wide);
}

bool is_wide(int64_t low, int64_t high) { return low < INT32_MIN || high > INT32_MAX; }

// Values on the way of a chain fit into 32 bits if those of all its tensors do.
bool is_wide(const Network& network, const Group& group) {
    const auto wide = [&](uint32_t index) {
        return is_wide(network.tensors[index].low, network.tensors[index].high);
    };
    return std::any_of(group.steps.begin(), group.steps.end(), [&](uint32_t index) {
        const Step& step = network.steps[index];
        return wide(step.output) || std::any_of(step.inputs.begin(), step.inputs.end(), wide) ||
               std::any_of(step.shifts.begin(), step.shifts.end(),
                           [](int64_t shift) { return shift < 0 || shift > 30; }) ||
               (step.op == Op::requantize && is_wide(step.low, step.high));
    });
}

Micro::Kind kind_of(Op op, bool swapped) {
    switch (op) {
        case Op::add:
            return Micro::Kind::add;
        case Op::sub:
            return swapped ? Micro::Kind::sub_from : Micro::Kind::sub;
        case Op::mul:
            return Micro::Kind::mul;
        case Op::maximum:
            return Micro::Kind::maximum;
        default:
            return Micro::Kind::minimum;
    }
}

Micro lookup(const Step& step, const Tensor& entries, bool wide) {
    Micro micro{Micro::Kind::lookup};
    micro.offset = step.offset;
    micro.table_size = product(entries.shape);
    micro.table = typed(widened(entries.data, entries.storage, micro.table_size), wide);
    return micro;
}

Micro requantize(const Step& step, bool wide) {
    Micro micro{Micro::Kind::requantize, repeated(step.shifts, wide)};
    micro.rounding = step.rounding;
    micro.wrap = step.wrap;
    micro.low = step.low;
    micro.high = step.high;
    return micro;
}

}  // namespace

std::shared_ptr<const Chain> make_chain(const Network& network, const std::vector<Place>& places,
                                        const Group& group) {
    const bool wide = is_wide(network, group);
    const Place& y = places[network.steps[group.steps.back()].output];
    const auto operand = [&](uint32_t index) {
        return spread(places[index], network.tensors[index].kind == Kind::constant, y.shape, wide);
    };
    uint32_t value = network.steps[group.steps[0]].inputs[0];  // what the chain has come to
    auto chain = std::make_shared<Chain>(Chain{wide, operand(value), {}, y.storage, y.data});
    std::vector<Micro>& micros = chain->micros;
    const auto bound = [&](Micro::Kind kind, const std::vector<int64_t>& bounds) {
        if (!bounds.empty()) micros.push_back({kind, repeated(bounds, wide)});
    };
    for (const uint32_t index : group.steps) {
        const Step& step = network.steps[index];
        if (is_binary(step.op)) {
            const bool swapped = step.inputs[0] != value;
            micros.push_back({kind_of(step.op, swapped), operand(step.inputs[swapped ? 0 : 1])});
        } else if (step.op == Op::clip) {
            bound(Micro::Kind::maximum, step.lows);
            bound(Micro::Kind::minimum, step.highs);
        } else if (step.op == Op::requantize) {
            micros.push_back(requantize(step, wide));
        } else {
            micros.push_back(lookup(step, network.tensors[step.inputs[1]], wide));
        }
        value = step.output;
    }
    return chain;
}

}  // namespace qgraph::engine
