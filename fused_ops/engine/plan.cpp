#include "engine/plan.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <utility>

#include "core/parallel.h"
#include "engine/chains.h"
#include "engine/elementwise.h"

namespace qgraph::engine {
namespace {

// Work for which one more thread pays, in elements written or products summed up.
constexpr int64_t kElements = 1 << 15;
constexpr int64_t kProducts = 1 << 18;

// Whether a layer's weights are filters that slide over an image; else they are a matrix.
bool slides(Op op) {
    switch (as_product(op)) {
        case ProductOp::conv2d:
        case ProductOp::depthwise_conv2d:
            return true;
        case ProductOp::matmul:
            return false;
    }
    no_case(op, "engine/plan.cpp, slides");
}

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
        return single(group);
    }

    // Calls what(begin, end, task) for parts of `count`, on as many threads as there is work for.
    template <typename What>
    std::function<void()> in_parts(int64_t count, int64_t work, int64_t grain, What what) const {
        const int64_t threads = std::clamp<int64_t>(work / grain, 1, options_.threads);
        const int64_t parts = std::min(count, threads);
        return [=] {
            run_tasks(parts, parts, [&](int64_t part) {
                what(count * part / parts, count * (part + 1) / parts, part);
            });
        };
    }

    // What is packed goes to `memory`.
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

    // The stages behind the first step; all steps where `all`.
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

    // Parts are blocks of channels where there are few pixels.
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
        const Shape& one = tensor(made).shape;  // of one sample: all plans share what is packed
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

    // -- the others ---------------------------------------------------------------------------

    std::function<void()> single(const Group& group) {
        const Step& found = step(group.steps[0]);
        switch (family_of(found.op)) {
            case Family::product:
                return plain_conv(group);
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
                break;  // they are chains, also alone
        }
        no_case(found.op, "engine/plan.cpp, single");
    }

    std::function<void()> reshape(const Group& group) const {
        const Step& found = step(group.steps[0]);
        const Place &x = place_of(group.x), &y = place_of(found.output);
        switch (as_reshape(found.op)) {
            case ReshapeOp::reshape:
                if (is_alias(network_, group)) return [] {};
                return [=] { convert(x.data, x.storage, 1, y.data, y.storage, product(y.shape)); };
        }
        no_case(found.op, "engine/plan.cpp, reshape");
    }

    std::function<void()> reduction(const Step& found) const {
        const Place &x = place_of(found.inputs[0]), &y = place_of(found.output);
        switch (as_reduction(found.op)) {
            case ReductionOp::reduce_max:
                return [=, axes = found.list] { reduce_max(axes, x, y); };
        }
        no_case(found.op, "engine/plan.cpp, reduction");
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
        }
        no_case(found.op, "engine/plan.cpp, move");
    }

    std::function<void()> rows(const Step& found) const {
        const Place &x = place_of(found.inputs[0]), &y = place_of(found.output);
        switch (as_row(found.op)) {
            case RowOp::max_pool:
                return pool(found);
            case RowOp::standardize: {
                const int64_t size = product(y.shape), rows = size / y.shape.back();
                return in_parts(rows, size, kElements,
                                [=, numbers = found.standard](int64_t begin, int64_t end, int64_t) {
                                    standardize(numbers, x, y, begin, end);
                                });
            }
        }
        no_case(found.op, "engine/plan.cpp, rows");
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
        const Level level = options_.level;
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
        if (!slides(found.op)) {  // a convolution of images of one pixel
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
