#include "engine/groups.h"

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "engine/elementwise.h"
#include "engine/pointwise.h"

namespace qgraph::engine {
namespace {

struct Range {
    int64_t low;
    int64_t high;

    bool fits() const { return low >= INT32_MIN && high <= INT32_MAX; }
};

bool is_linear(Op op) { return family_of(op) == Family::product; }

bool is_elementwise(Op op) {
    return family_of(op) == Family::binary || family_of(op) == Family::unary;
}

// The stage that a kernel applies for this op after a sum; nothing if kernels lack it.
std::optional<Stage::Kind> stage_kind(Op op) {
    if (!is_elementwise(op)) return std::nullopt;
    return pointwise_form(op).stage;
}

Stage::Kind known_stage(Op op) {
    const std::optional<Stage::Kind> kind = stage_kind(op);
    if (!kind) no_case(op, "engine/groups.cpp, known_stage");
    return *kind;
}

// The number of output channels of a layer, from the shape of its weights.
int64_t channels_made(Op op, const Shape& weights) {
    switch (as_product(op)) {
        case ProductOp::conv2d:
        case ProductOp::matmul:
            return weights.back();
        case ProductOp::depthwise_conv2d:
            return weights[2] * weights[3];
    }
    no_case(op, "engine/groups.cpp, channels_made");
}

// The numbers of a constant that is added to a tensor of `shape`: one, or one for each channel.
bool is_by_channel(const Tensor& constant, const Shape& shape) {
    if (constant.kind != Kind::constant || constant.shape.size() > shape.size()) return false;
    const int64_t count = product(constant.shape);
    return count == 1 || (!constant.shape.empty() && constant.shape.back() == count &&
                          !shape.empty() && shape.back() == count);
}

std::vector<int32_t> narrowed(const std::vector<int64_t>& values) {
    std::vector<int32_t> made;
    for (const int64_t value : values) {
        made.push_back(static_cast<int32_t>(std::clamp<int64_t>(value, INT32_MIN, INT32_MAX)));
    }
    return made;
}

Numbers numbers_of(const std::vector<int32_t>& values) {
    return values.size() == 1 ? Numbers{values[0]} : Numbers{0, values.data()};
}

class Grouping {
  public:
    Grouping(const Network& network, const std::vector<bool>& kept, bool fuse)
        : network_(network),
          kept_(kept),
          fuse_(fuse),
          users_(network.tensors.size()),
          maker_(network.tensors.size(), -1),
          taken_(network.steps.size()) {
        for (uint32_t i = 0; i < network.steps.size(); ++i) {
            for (const uint32_t input : network.steps[i].inputs) users_[input].push_back(i);
            maker_[network.steps[i].output] = i;
        }
    }

    std::vector<Group> run() {
        std::vector<Group> groups;
        for (uint32_t i = 0; i < network_.steps.size(); ++i) {
            if (!taken_[i] && !is_folded_pad(i)) groups.push_back(made_from(i));
        }
        // A group runs in the place of its last step, where all its inputs exist.
        std::sort(groups.begin(), groups.end(),
                  [](const Group& a, const Group& b) { return a.steps.back() < b.steps.back(); });
        return groups;
    }

  private:
    const Tensor& tensor(uint32_t index) const { return network_.tensors[index]; }

    Group made_from(uint32_t first) {
        const Step& step = network_.steps[first];
        Group group{Group::Kind::single, {first}, step.window, step.inputs[0], false};
        Range range{};
        if (is_linear(step.op)) {
            read_through_pad(step, group);
            range = range_of_sums(step);
            const bool kernel = range.fits() && has_kernel(step);
            if (is_depthwise(step) && !(kernel && is_of_bytes(step))) {
                group.kind = Group::Kind::chain;
            } else if (kernel) {
                group.kind = Group::Kind::linear;
            } else {
                return group;
            }
        } else if (is_sum(step)) {
            const Range a = range_of(step.inputs[0]), b = range_of(step.inputs[1]);
            range = {a.low + b.low, a.high + b.high};
            group.kind = range.fits() ? Group::Kind::map : Group::Kind::chain;
            group.leading_add = true;
        } else if (is_elementwise(step.op)) {
            group.kind = Group::Kind::chain;
            if (is_stage(step, step.inputs[0])) {
                range = range_of(step.inputs[0]);
                Code code;
                if (code_of(tensor(step.inputs[0]), code) && after(step, range)) {
                    group.kind = Group::Kind::map;
                }
            }
        } else {
            return group;
        }
        extend(group, range);
        return group;
    }

    // Adds as many following steps as possible. The kernel must be able to store the type of the
    // output.
    void extend(Group& group, Range range) {
        const bool stages = group.kind != Group::Kind::chain;
        std::vector<uint32_t> steps = group.steps;
        bool stored = !stages || storable(group.steps.back());
        while (fuse_) {
            const uint32_t output = network_.steps[steps.back()].output;
            if (kept_[output] || users_[output].size() != 1) break;
            const Step& next = network_.steps[users_[output][0]];
            if (taken_[users_[output][0]]) break;  // taken by its other input
            if (tensor(next.output).shape != tensor(output).shape) break;
            if (stages ? steps.size() > kMaxStages || !is_stage(next, output) || !after(next, range)
                       : !is_elementwise(next.op)) {
                break;
            }
            steps.push_back(users_[output][0]);
            if (!stages || storable(steps.back())) {
                group.steps = steps;
                stored = true;
            }
        }
        if (!stored) {
            const bool linear = group.kind == Group::Kind::linear;
            group.kind = linear ? Group::Kind::single : Group::Kind::chain;
        }
        for (const uint32_t step : group.steps) taken_[step] = true;
    }

    bool storable(uint32_t step) const {
        Code code;
        return code_of(tensor(network_.steps[step].output), code);
    }

    Range range_of(uint32_t index) const {
        // Ranges in the file may be wrong; the limits of the type are certain.
        const Tensor& found = tensor(index);
        Code code;
        const bool as_s32 = found.storage == Storage::u32 && code_of(found, code);
        const Storage storage = as_s32 ? Storage::i32 : found.storage;
        return {lowest(storage), highest(storage)};
    }

    // The range of sums with these weights, for any x.
    Range range_of_sums(const Step& step) const {
        const Tensor& w = tensor(step.inputs[1]);
        const Range x = range_of(step.inputs[0]);
        const int64_t largest = std::max(-x.low, x.high);
        // Only for small codes: then the sum of magnitudes cannot overflow.
        if (largest > (1 << 16) || w.low < INT32_MIN || w.high > INT32_MAX) {
            return {INT64_MIN, INT64_MAX};
        }
        const auto channels = static_cast<size_t>(channels_made(step.op, w.shape));
        std::vector<int64_t> sums(channels, 0);
        const auto rows = static_cast<size_t>(product(w.shape)) / channels;
        with_type(w.storage, [&](auto type) {
            const auto* row = static_cast<const decltype(type)*>(w.data);
            for (size_t i = 0; i < rows; ++i, row += channels) {
                for (size_t c = 0; c < channels; ++c) sums[c] += std::abs(int64_t{row[c]});
            }
        });
        const int64_t most = *std::max_element(sums.begin(), sums.end());
        return most > INT32_MAX ? Range{INT64_MIN, INT64_MAX}
                                : Range{-most * largest, most * largest};
    }

    bool has_kernel(const Step& step) const {
        Code x;
        const Tensor& w = tensor(step.inputs[1]);
        return code_of(tensor(step.inputs[0]), x) && x != Code::s32 && w.low >= INT16_MIN &&
               w.high <= INT16_MAX;
    }

    // A depthwise convolution with one output for each channel; a chain can begin with it.
    bool is_depthwise(const Step& step) const {
        return step.op == Op::depthwise_conv2d && tensor(step.inputs[1]).shape[3] == 1;
    }

    // Kernels are fast for these depthwise convolutions and slow for others.
    bool is_of_bytes(const Step& step) const {
        const Tensor& w = tensor(step.inputs[1]);
        return size_of(tensor(step.inputs[0]).storage) == 1 && w.low >= INT8_MIN &&
               w.high <= INT8_MAX;
    }

    // a + b, element by element.
    bool is_sum(const Step& step) const {
        if (step.op != Op::add) return false;
        Code code;
        const Tensor &a = tensor(step.inputs[0]), &b = tensor(step.inputs[1]);
        return a.shape == b.shape && a.kind != Kind::constant && b.kind != Kind::constant &&
               code_of(a, code) && code_of(b, code);
    }

    bool is_stage(const Step& step, uint32_t x) const {
        if (step.inputs[0] != x) return false;
        const std::optional<Stage::Kind> kind = stage_kind(step.op);
        if (!kind) return false;
        switch (*kind) {
            case Stage::Kind::clip:
                return true;
            case Stage::Kind::requantize: {
                const auto [least, most] =
                    std::minmax_element(step.shifts.begin(), step.shifts.end());
                return !step.wrap && *least >= -30 && *most <= 30;
            }
            case Stage::Kind::add:
                return is_by_channel(tensor(step.inputs[1]), tensor(x).shape);
        }
        no_case(step.op, "engine/groups.cpp, is_stage");
    }

    // The range after a stage; false where 32 bits do not hold it.
    bool after(const Step& step, Range& range) const {
        switch (known_stage(step.op)) {
            case Stage::Kind::requantize:
                range = {step.low, step.high};
                break;
            case Stage::Kind::add: {
                const Tensor& term = tensor(step.inputs[1]);
                range = {range.low + term.low, range.high + term.high};
                break;
            }
            case Stage::Kind::clip:
                break;
        }
        return range.fits();
    }

    // A pad of height and width that only a convolution reads becomes part of the convolution.
    bool is_folded_pad(uint32_t index) const {
        const Step& step = network_.steps[index];
        if (!fuse_ || step.op != Op::pad || step.list.size() != 8) return false;
        if (step.list[0] != 0 || step.list[1] != 0 || step.list[6] != 0 || step.list[7] != 0) {
            return false;
        }
        if (kept_[step.output] || users_[step.output].size() != 1) return false;
        const Step& user = network_.steps[users_[step.output][0]];
        return (user.op == Op::conv2d || user.op == Op::depthwise_conv2d) &&
               tensor(step.inputs[0]).storage == tensor(step.output).storage;
    }

    void read_through_pad(const Step& step, Group& group) const {
        const int64_t maker = maker_[step.inputs[0]];
        if (maker < 0 || !is_folded_pad(static_cast<uint32_t>(maker))) return;
        const Step& pad = network_.steps[static_cast<size_t>(maker)];
        for (int i = 0; i < 4; ++i) group.window.pads[i] += pad.list[static_cast<size_t>(2 + i)];
        group.x = pad.inputs[0];
    }

    const Network& network_;
    const std::vector<bool>& kept_;
    const bool fuse_;
    std::vector<std::vector<uint32_t>> users_;
    std::vector<int64_t> maker_;
    std::vector<bool> taken_;
};

}  // namespace

std::vector<Group> group(const Network& network, const std::vector<bool>& kept, bool fuse) {
    return Grouping(network, kept, fuse).run();
}

bool code_of(const Tensor& tensor, Code& code) {
    switch (tensor.storage) {
        case Storage::u8:
            code = Code::u8;
            return true;
        case Storage::i8:
            code = Code::s8;
            return true;
        case Storage::u16:
            code = Code::u16;
            return true;
        case Storage::i16:
            code = Code::s16;
            return true;
        case Storage::u32:  // if int32 holds its codes
        case Storage::i32:
            code = Code::s32;
            return tensor.high <= INT32_MAX;
        case Storage::i64:
            break;
    }
    return false;
}

Stage stage_of(const Network& network, const Step& step, StageNumbers& memory) {
    Stage stage;
    stage.kind = known_stage(step.op);
    switch (stage.kind) {
        case Stage::Kind::requantize:
            memory.first = narrowed(step.shifts);
            stage.shift = numbers_of(memory.first);
            stage.rounding = step.rounding;
            stage.low.for_all = static_cast<int32_t>(step.low);
            stage.high.for_all = static_cast<int32_t>(step.high);
            break;
        case Stage::Kind::add: {
            const Tensor& term = network.tensors[step.inputs[1]];
            std::vector<int64_t> terms(static_cast<size_t>(product(term.shape)));
            convert(term.data, term.storage, 1, terms.data(), Storage::i64, product(term.shape));
            memory.first = narrowed(terms);
            stage.term = numbers_of(memory.first);
            break;
        }
        case Stage::Kind::clip:
            memory.first = narrowed(step.lows);
            memory.second = narrowed(step.highs);
            if (!memory.first.empty()) stage.low = numbers_of(memory.first);
            if (!memory.second.empty()) stage.high = numbers_of(memory.second);
            break;
    }
    return stage;
}

}  // namespace qgraph::engine
