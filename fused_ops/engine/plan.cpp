#include "engine/plan.h"

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "engine/chains.h"
#include "engine/elementwise.h"
#include "engine/parts.h"
#include "engine/single_calls.h"

namespace qgraph::engine {
namespace {

class Planner {
  public:
    Planner(const Network& network, int64_t samples, const std::vector<bool>& kept,
            const Options& options, Packed& packed)
        : network_(network),
          options_(options),
          packed_(packed),
          groups_(group(network, kept, options.fuse)) {
        plan_.layout = make_layout(network, groups_, samples, kept, options.memory);
    }

    Plan make() {
        for (const Group& group : groups_) {
            plan_.calls.push_back({group.steps, call_of(group)});
        }
        return std::move(plan_);
    }

  private:
    const Tensor& tensor(uint32_t index) const { return network_.tensors[index]; }
    const Step& step(uint32_t index) const { return network_.steps[index]; }
    const Place& place_of(uint32_t index) const { return plan_.layout.places[index]; }
    uint32_t output_of(const Group& group) const { return step(group.steps.back()).output; }

    // -- calls --------------------------------------------------------------------------------

    std::function<void()> call_of(const Group& group) {
        switch (group.kind) {
            case Group::Kind::linear:
                return linear(group);
            case Group::Kind::map:
                return map(group);
            case Group::Kind::chain:
                return lookup_of_bytes(group) ? bytes(group) : chain(group);
            case Group::Kind::single:
                break;
        }
        return single_call(network_, plan_.layout.places, group, options_.threads, options_.level);
    }

    template <typename What>
    std::function<void()> in_parts(int64_t count, int64_t work, int64_t grain, What what) const {
        return engine::in_parts(options_.threads, count, work, grain, what);
    }

    // Packed weights are stored in `memory`.
    Allocate into(Aligned& memory) const {
        return [&memory, most = options_.memory](size_t bytes) {
            check_memory(static_cast<int64_t>(bytes), most);
            memory = aligned(static_cast<int64_t>(bytes));
            return memory.get();
        };
    }

    const char* packed(const Group& group, const std::function<Aligned()>& make) {
        const std::array key = {group.x, group.steps.front(), group.steps.back()};
        auto found = packed_.find(key);
        if (found == packed_.end()) found = packed_.emplace(key, make()).first;
        return found->second.get();
    }

    // The stages after the first step, or of all steps if `all`.
    std::vector<Stage> stages(const Group& group, bool all,
                              std::vector<StageNumbers>& memory) const {
        std::vector<Stage> made;
        memory.resize(group.steps.size());
        for (size_t i = all ? 0 : 1; i < group.steps.size(); ++i) {
            made.push_back(stage_of(network_, step(group.steps[i]), memory[i]));
        }
        return made;
    }

    std::function<void()> linear(const Group& group) {
        const Step& first = step(group.steps[0]);
        const Tensor& w = tensor(first.inputs[1]);
        const Place &x = place_of(group.x), &y = place_of(output_of(group));
        Conv conv;
        code_of(tensor(group.x), conv.x);
        code_of(tensor(output_of(group)), conv.y);
        const bool bytes = w.low >= INT8_MIN && w.high <= INT8_MAX;
        conv.w = bytes ? Code::s8 : Code::s16;
        conv.channels = x.shape.back();
        conv.out_channels = y.shape.back();
        const int64_t products = product(w.shape);
        int64_t pixels = y.shape[0];
        if (slides(first.op)) {
            const Window& window = group.window;
            conv.height = x.shape[1], conv.width = x.shape[2];
            conv.kernel_height = window.kernel[0], conv.kernel_width = window.kernel[1];
            conv.stride_height = window.strides[0], conv.stride_width = window.strides[1];
            conv.dilation_height = window.dilations[0], conv.dilation_width = window.dilations[1];
            conv.pad_top = window.pads[0], conv.pad_left = window.pads[2];
            conv.out_height = y.shape[1], conv.out_width = y.shape[2];
            conv.depthwise = first.op == Op::depthwise_conv2d;
            conv.groups = conv.depthwise ? 1 : first.groups;
            pixels *= conv.out_height * conv.out_width;
        }
        const char* layer = packed(group, [&] {
            std::vector<StageNumbers> memory;
            const std::vector<Stage> done = stages(group, false, memory);
            const Stages list{done.data(), static_cast<int>(done.size())};
            check_memory(static_cast<int64_t>(least_size(conv, list, options_.level)),
                         options_.memory);
            const int64_t count = product(w.shape);
            const Storage type = bytes ? Storage::i8 : Storage::i16;
            std::vector<char> converted;
            if (w.storage != type) {
                converted.resize(static_cast<size_t>(count * size_of(type)));
                convert(w.data, w.storage, 1, converted.data(), type, count);
            }
            const void* weights = w.storage == type ? w.data : converted.data();
            Aligned packed;
            pack(conv, weights, list, options_.level, into(packed));
            return packed;
        });
        return parts_of(layer, x.data, y.data, pixels, products * pixels);
    }

    // With few pixels, parts are blocks of channels.
    std::function<void()> parts_of(const char* layer, const void* x, void* y, int64_t pixels,
                                   int64_t products) {
        const int64_t blocks = engine::blocks(layer);
        const bool by_block = pixels < 4 * options_.threads && blocks > 1;
        const auto size = lines(static_cast<int64_t>(scratch_size(layer)));
        check_memory(size * options_.threads, options_.memory);
        const std::shared_ptr<char[]> scratch = aligned(size * options_.threads);
        return in_parts(by_block ? blocks : pixels, products, kProducts,
                        [=](int64_t begin, int64_t end, int64_t part) {
                            const Part what = by_block ? Part{0, pixels, begin, end}
                                                       : Part{begin, end, 0, INT64_MAX};
                            engine::run(layer, x, y, what, scratch.get() + part * size);
                        });
    }

    std::function<void()> map(const Group& group) {
        const Step& first = step(group.steps[0]);
        const uint32_t made = output_of(group);
        Map map;
        code_of(tensor(first.inputs[0]), map.a);
        map.two = group.leading_add;
        if (map.two) code_of(tensor(first.inputs[1]), map.b);
        code_of(tensor(made), map.y);
        const Place& y = place_of(made);
        const Shape& one = tensor(made).shape;  // of one sample: all plans share the packed weights
        map.channels = one.empty() ? 1 : one.back();
        const char* layer = packed(group, [&] {
            std::vector<StageNumbers> memory;
            const std::vector<Stage> done = stages(group, !map.two, memory);
            const Stages list{done.data(), static_cast<int>(done.size())};
            Aligned packed;
            pack(map, list, options_.level, into(packed));
            return packed;
        });
        const int64_t rows = product(y.shape) / map.channels;
        const auto* a = static_cast<const char*>(place_of(first.inputs[0]).data);
        const auto* b =
            map.two ? static_cast<const char*>(place_of(first.inputs[1]).data) : nullptr;
        auto* out = static_cast<char*>(y.data);
        const int64_t a_row = size_of(map.a) * map.channels, y_row = size_of(map.y) * map.channels;
        const int64_t b_row = map.two ? size_of(map.b) * map.channels : 0;
        return in_parts(rows, product(y.shape), kElements,
                        [=](int64_t begin, int64_t end, int64_t) {
                            run_map(layer, a + begin * a_row, map.two ? b + begin * b_row : nullptr,
                                    out + begin * y_row, end - begin);
                        });
    }

    bool lookup_of_bytes(const Group& group) const {
        const Step& first = step(group.steps[0]);
        return group.steps.size() == 1 && first.op == Op::lookup &&
               size_of(tensor(first.inputs[0]).storage) == 1 &&
               size_of(tensor(first.output).storage) == 1;
    }

    std::function<void()> bytes(const Group& group) {
        const Step& first = step(group.steps[0]);
        const Tensor& entries = tensor(first.inputs[1]);
        const int64_t count = product(entries.shape);
        std::vector<int64_t> values(static_cast<size_t>(count));
        convert(entries.data, entries.storage, 1, values.data(), Storage::i64, count);
        const bool is_signed = tensor(first.inputs[0]).storage == Storage::i8;
        std::array<uint8_t, 256> table;
        for (int i = 0; i < 256; ++i) {
            const int64_t code = is_signed ? static_cast<int8_t>(i) : i;
            const int64_t at = std::clamp<int64_t>(code - first.offset, 0, count - 1);
            table[static_cast<size_t>(i)] = static_cast<uint8_t>(values[static_cast<size_t>(at)]);
        }
        const auto* x = static_cast<const uint8_t*>(place_of(first.inputs[0]).data);
        auto* y = static_cast<uint8_t*>(place_of(first.output).data);
        const int64_t size = product(place_of(first.output).shape);
        const Level level = options_.level;
        return in_parts(size, size, kElements, [=](int64_t begin, int64_t end, int64_t) {
            look_up(x + begin, table.data(), y + begin, end - begin, level);
        });
    }

    std::function<void()> chain(const Group& group) const {
        const auto made = make_chain(network_, plan_.layout.places, group, options_.level);
        const int64_t size = product(place_of(output_of(group)).shape);
        const int64_t taps =
            made->chain.sums == nullptr ? 1 : made->sums.kernel[0] * made->sums.kernel[1];
        const RunChain run = chain_for(options_.level);
        return in_parts(size, size * taps, kElements,
                        [=](int64_t begin, int64_t end, int64_t) { run(made->chain, begin, end); });
    }

    const Network& network_;
    const Options& options_;
    Packed& packed_;
    const std::vector<Group> groups_;
    Plan plan_{};
};

}  // namespace

Plan make_plan(const Network& network, int64_t samples, const std::vector<bool>& kept,
               const Options& options, Packed& packed) {
    return Planner(network, samples, kept, options, packed).make();
}

}  // namespace qgraph::engine
