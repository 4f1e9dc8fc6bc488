#include "engine/chains.h"

#include <algorithm>

#include "engine/pointwise.h"

namespace qgraph::engine {
namespace {

constexpr int64_t kPeriod = 1 << 16;  // longest constant that is broadcast in advance

bool is_wide(int64_t low, int64_t high) { return low < INT32_MIN || high > INT32_MAX; }

// Intermediate values of a chain fit into 32 bits if all its tensors do.
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

class Maker {
  public:
    Maker(const Network& network, const std::vector<Place>& places, const Group& group, Level level)
        : network_(network),
          places_(places),
          group_(group),
          level_(level),
          wide_(is_wide(network, group)),
          y_(places[network.steps[group.steps.back()].output]),
          made_(std::make_shared<OwnedChain>()) {}

    std::shared_ptr<const OwnedChain> make() {
        const Step& first = network_.steps[group_.steps[0]];
        uint32_t value = first.inputs[0];  // the tensor that the next op reads
        if (first.op == Op::depthwise_conv2d) {
            made_->sums = sums(first);
            made_->chain.sums = &made_->sums;
        } else {
            made_->chain.source = operand(value);
        }
        for (const uint32_t index : group_.steps) {
            const Step& step = network_.steps[index];
            if (step.op != Op::depthwise_conv2d) append(step, value);
            value = step.output;
        }
        made_->chain.wide = wide_;
        made_->chain.micros = made_->micros.data();
        made_->chain.count = static_cast<int>(made_->micros.size());
        made_->chain.storage = y_.storage;
        made_->chain.y = y_.data;
        return made_;
    }

  private:
    void append(const Step& step, uint32_t value) {
        const bool swapped = step.inputs[0] != value;
        for (const MicroForm& form : pointwise_form(step.op).micros) {
            append(form, step, swapped);
        }
    }

    void append(const MicroForm& form, const Step& step, bool swapped) {
        Micro micro{};
        micro.op = form.op;
        micro.swapped = swapped;
        switch (form.side) {
            case Side::none:
                break;
            case Side::other_input:
                micro.operand = operand(step.inputs[swapped ? 0 : 1]);
                break;
            case Side::lows:
                if (step.lows.empty()) return;
                micro.operand = repeated(step.lows);
                break;
            case Side::highs:
                if (step.highs.empty()) return;
                micro.operand = repeated(step.highs);
                break;
            case Side::shifts:
                micro.operand = repeated(step.shifts);
                micro.rounding = step.rounding;
                micro.wrap = step.wrap;
                micro.low = step.low;
                micro.high = step.high;
                break;
            case Side::table: {
                const std::vector<int64_t> table = constant(step.inputs[1]);
                micro.offset = step.offset;
                micro.table = typed(table);
                micro.table_size = static_cast<int64_t>(table.size());
                break;
            }
        }
        made_->micros.push_back(micro);
    }

    DepthwiseSums sums(const Step& step) {
        const Place& x = places_[group_.x];
        const Window& w = group_.window;
        return {x.data,
                x.storage,
                typed(constant(step.inputs[1])),
                x.shape[1],
                x.shape[2],
                x.shape[3],
                y_.shape[1],
                y_.shape[2],
                {w.kernel[0], w.kernel[1]},
                {w.strides[0], w.strides[1]},
                {w.dilations[0], w.dilations[1]},
                w.pads[0],
                w.pads[2]};
    }

    std::vector<int64_t> constant(uint32_t index) const {
        const Tensor& tensor = network_.tensors[index];
        std::vector<int64_t> values(static_cast<size_t>(product(tensor.shape)));
        convert(tensor.data, tensor.storage, 1, values.data(), Storage::i64,
                static_cast<int64_t>(values.size()));
        return values;
    }

    // Converts values to the type of the chain and stores them with it.
    const void* typed(std::vector<int64_t> values) {
        const Storage own = wide_ ? Storage::i64 : Storage::i32;
        for (int64_t& value : values) value = std::clamp(value, lowest(own), highest(own));
        std::vector<char> made(values.size() * static_cast<size_t>(size_of(own)));
        convert(values.data(), Storage::i64, 1, made.data(), own,
                static_cast<int64_t>(values.size()));
        made_->arrays.push_back(std::move(made));
        return made_->arrays.back().data();
    }

    // A constant whose element i is values[i % period].
    Operand repeated(const std::vector<int64_t>& values) {
        Operand made{};
        if (values.size() == 1) {
            const Storage own = wide_ ? Storage::i64 : Storage::i32;
            made.value = std::clamp(values[0], lowest(own), highest(own));
            return made;
        }
        std::vector<int64_t> longer(values);
        for (size_t i = 0; i < kTile; ++i) longer.push_back(values[i % values.size()]);
        made.spread = Operand::Spread::periodic;
        made.period = static_cast<int64_t>(values.size());
        made.values = typed(std::move(longer));
        return made;
    }

    // A tensor, broadcast to the shape of the result.
    Operand operand(uint32_t index) {
        const Place& place = places_[index];
        const bool constant = network_.tensors[index].kind == Kind::constant;
        const Shape& shape = y_.shape;
        Operand made{};
        made.data = place.data;
        made.storage = place.storage;
        if (!constant && place.shape == shape) {
            made.spread = Operand::Spread::dense;
            return made;
        }
        const std::vector<int64_t> dense = dense_strides(place.shape);
        const size_t missing = shape.size() - place.shape.size();
        made.spread = Operand::Spread::strided;
        made.rank = static_cast<int>(std::max<size_t>(shape.size(), 1));
        made.sizes[0] = 1;
        std::copy(shape.begin(), shape.end(), made.sizes);
        size_t first = shape.size();  // the first dimension along which it varies
        for (size_t i = 0; i < place.shape.size(); ++i) {
            if (place.shape[i] == 1) continue;
            made.strides[missing + i] = dense[i];
            first = std::min(first, missing + i);
        }
        const int64_t period =
            product(Shape(shape.begin() + static_cast<ptrdiff_t>(first), shape.end()));
        if (!constant || period > kPeriod) return made;
        std::vector<int64_t> values(static_cast<size_t>(period));
        const Chain spreading{true, made, nullptr, nullptr, 0, Storage::i64, values.data()};
        chain_for(level_)(spreading, 0, period);
        return repeated(values);
    }

    const Network& network_;
    const std::vector<Place>& places_;
    const Group& group_;
    const Level level_;
    const bool wide_;
    const Place& y_;
    std::shared_ptr<OwnedChain> made_;
};

}  // namespace

std::shared_ptr<const OwnedChain> make_chain(const Network& network,
                                             const std::vector<Place>& places, const Group& group,
                                             Level level) {
    return Maker(network, places, group, level).make();
}

}  // namespace qgraph::engine
