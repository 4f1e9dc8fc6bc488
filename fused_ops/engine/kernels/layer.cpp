#include "engine/kernels/layer.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "engine/kernels/codes.h"
#include "engine/kernels/extra_steps.h"

namespace qgraph::engine::kernels {
namespace {

constexpr int64_t kGathered = 192 << 10;  // bytes of input that stay in the second-level cache
// The cost of a step whose bytes are multiplied as words, in the unit of extra_steps.h. Words need
// twice the bytes of weights, which pays from this many pixels on.
constexpr double kWordsCost = 1.4;
constexpr int64_t kManyPixels = 32;

int64_t ceil_to(int64_t count, int64_t multiple) {
    return (count + multiple - 1) / multiple * multiple;
}

bool is_depthwise(const Conv& conv) {
    return conv.depthwise && conv.out_channels == conv.channels && size_of(conv.x) == 1;
}

// A depthwise layer without a depthwise kernel is computed as a layer with many groups.
Conv matrix_form(Conv conv) {
    if (conv.depthwise && !is_depthwise(conv)) {
        conv.depthwise = false;
        conv.groups = conv.channels;
    }
    return conv;
}

int64_t taps_of(const Conv& conv) { return conv.kernel_height * conv.kernel_width; }

int64_t inputs_of(const Conv& conv) { return conv.depthwise ? 1 : conv.channels / conv.groups; }

bool is_direct(const Conv& s) {
    const bool alone = taps_of(s) == 1 && s.stride_height == 1 && s.stride_width == 1;
    const bool same =
        s.pad_top == 0 && s.pad_left == 0 && s.out_height == s.height && s.out_width == s.width;
    return alone && same && inputs_of(s) * size_of(s.x) % 4 == 0;
}

std::vector<Block> blocks_of(const Conv& conv, int lanes) {
    return kernels::blocks_of(conv.out_channels, conv.depthwise ? 1 : conv.groups, lanes,
                              conv.depthwise);
}

int64_t positions_of(const std::vector<Block>& blocks, int lanes) {
    return blocks.back().position + int64_t{4} * lanes * blocks.back().vectors;
}

// The packed layer without its arrays. The arrays of the stages begin at `finish`; `end` is after
// the last.
struct Plan {
    Layer layer;
    std::vector<Block> blocks;
    int64_t finish;
    int64_t end;
};

Plan plan_of(const Conv& given, int stages, Level level, bool words = false) {
    Plan plan{};
    Layer& layer = plan.layer;
    const Conv conv = matrix_form(given);
    const Kernels& all = *kernels_of(level);
    layer.level = level;
    layer.conv = conv;
    plan.blocks = blocks_of(conv, all.lanes);
    layer.blocks = static_cast<int64_t>(plan.blocks.size());
    layer.blocks_in_group = layer.blocks / (conv.depthwise ? 1 : conv.groups);
    layer.words = words || size_of(conv.x) == 2 || conv.w == Code::s16;
    layer.split = layer.words ? all.products.split_words : all.products.split_bytes;
    const bool multiplies_bytes = conv.depthwise || !layer.words;
    const Code flipped = !layer.words && all.products.signed_codes ? Code::u8 : Code::s8;
    layer.flip = multiplies_bytes && conv.x == flipped ? 0x80808080 : 0;
    if (conv.x == Code::u16) layer.flip = 0x80008000;
    const int64_t positions = positions_of(plan.blocks, all.lanes);
    const int64_t tile = int64_t{kTileRows} * 4 * 4 * all.lanes * 4;
    int64_t weights = 0;
    if (conv.depthwise) {
        layer.columns = !layer.words && conv.kernel_height == 3 && conv.kernel_width == 3 &&
                        conv.dilation_height == 1 && conv.dilation_width == 1 &&
                        conv.stride_width <= 2;
        layer.taps = ceil_to(layer.columns ? 12 : taps_of(conv) * (layer.words ? 2 : 1), 4);
        weights = positions * layer.taps;
        layer.scratch = 2 * tile + aligned(layer.taps * static_cast<int64_t>(sizeof(char*)));
    } else {
        const int64_t codes = taps_of(conv) * inputs_of(conv);
        layer.steps = ceil_to(codes * (layer.words ? 2 : 1), 4) / 4;
        const bool widens = layer.words && size_of(conv.x) == 1;
        layer.direct = is_direct(conv) && layer.flip == 0 && !widens;
        layer.row = layer.direct ? conv.channels * size_of(conv.x) : layer.steps * 4;
        weights = positions * layer.steps * 4;
        layer.rows = std::max(kGathered / layer.row / all.rows, int64_t{1}) * all.rows;
        layer.scratch = tile + (layer.direct ? 0 : aligned(layer.rows * layer.row) + 2 * kAlign);
    }
    layer.block_table = aligned(sizeof(Layer));
    layer.weights = layer.block_table + aligned(layer.blocks * static_cast<int64_t>(sizeof(Block)));
    layer.tap_table = layer.weights + aligned(weights);
    plan.finish = layer.tap_table + aligned(layer.taps * 8);
    plan.end = plan.finish + finish_size(positions, conv.out_channels, stages);
    return plan;
}

Plan plan_of(const Map& map, Stages stages, Level level) {
    Plan plan{};
    Layer& layer = plan.layer;
    const int lanes = kernels_of(level)->lanes;
    layer.level = level;
    layer.map = map;
    layer.direct = true;
    for (int i = 0; i < stages.count; ++i) {
        const Stage& s = stages.stages[i];
        for (const Numbers* numbers : {&s.shift, &s.term, &s.low, &s.high}) {
            layer.direct &= numbers->of_channel == nullptr;
        }
    }
    const int64_t channels = layer.direct ? int64_t{16} * lanes : map.channels;
    plan.blocks = kernels::blocks_of(channels, 1, lanes, true);
    layer.blocks = static_cast<int64_t>(plan.blocks.size());
    layer.block_table = aligned(sizeof(Layer));
    plan.finish = layer.block_table + aligned(layer.blocks * static_cast<int64_t>(sizeof(Block)));
    plan.end = plan.finish + finish_size(positions_of(plan.blocks, lanes), channels, stages.count);
    return plan;
}

Layer* begin(const Plan& plan, void* memory) {
    std::memset(memory, 0, static_cast<size_t>(plan.finish));
    auto* layer = new (memory) Layer(plan.layer);
    std::memcpy(static_cast<char*>(memory) + layer->block_table, plan.blocks.data(),
                plan.blocks.size() * sizeof(Block));
    return layer;
}

// The range of sums with these weights, and the constant that compensates for flipped codes.
Sums sums_of(const Layer& layer, const void* weights) {
    const Conv& conv = layer.conv;
    const auto channels = static_cast<size_t>(conv.out_channels);
    Sums sums{Values(channels), Values(channels), std::vector<uint32_t>(channels)};
    const int64_t codes = taps_of(conv) * inputs_of(conv);
    // How much smaller than its true value a flipped code is.
    const int64_t moved = layer.flip == 0       ? 0
                          : conv.x == Code::u16 ? 32768
                          : conv.x == Code::u8  ? 128
                                                : -128;
    for (int64_t k = 0; k < codes; ++k) {
        for (size_t c = 0; c < channels; ++c) {
            const int64_t w =
                load_code(conv.w, weights, k * conv.out_channels + static_cast<int64_t>(c));
            const int64_t ends[] = {w * low_of(conv.x), w * high_of(conv.x)};
            sums.low[c] += std::min(ends[0], ends[1]);
            sums.high[c] += std::max(ends[0], ends[1]);
            sums.start[c] += static_cast<uint32_t>(w * moved);
        }
    }
    const int64_t bound = conv.bound > 0 ? std::min<int64_t>(conv.bound, INT32_MAX) : INT32_MAX;
    for (size_t c = 0; c < channels; ++c) {
        sums.low[c] = std::max(sums.low[c], conv.bound > 0 ? -bound : INT32_MIN);
        sums.high[c] = std::min(sums.high[c], bound);
    }
    return sums;
}

// The place of a byte of a sum in a register of weights.
int64_t place_of(const Layer& layer, int64_t wide, int64_t sum, int64_t byte) {
    return layer.split ? (byte / 2 * wide + sum) * 2 + byte % 2 : sum * 4 + byte;
}

// The place of the weight of a code and a position.
void put_weight(const Layer& layer, const Block& block, int64_t wide, int64_t position, int64_t k,
                int64_t w, int8_t* weights) {
    const int64_t in_register = position % wide;
    const int64_t size = layer.words ? 2 : 1;
    if (layer.conv.depthwise) {
        if (layer.columns) k = k % 3 * 4 + k / 3;
        int8_t* at = weights + block.position * layer.taps;
        const int64_t byte = k * size;
        at += (byte / 4 * 4 + position / wide) * wide * 4;
        at += place_of(layer, wide, in_register, byte % 4);
        std::memcpy(at, &w, static_cast<size_t>(size));
        return;
    }
    const int64_t together = std::min(block.vectors, 2);  // registers computed together
    const int64_t pair = position / wide / together;
    int8_t* at = weights + (block.position + pair * together * wide) * layer.steps * 4;
    const int64_t step = k * size / 4;
    at += (step * together + position / wide % together) * wide * 4;
    at += place_of(layer, wide, in_register, k * size % 4);
    std::memcpy(at, &w, static_cast<size_t>(size));
}

void put_weights(const Plan& plan, int lanes, const void* weights, int8_t* to) {
    const Conv& conv = plan.layer.conv;
    const int64_t codes = taps_of(conv) * inputs_of(conv);
    for (const Block& block : plan.blocks) {
        for (int64_t position = 0; position < int64_t{4} * lanes * block.vectors; ++position) {
            const int64_t channel = channel_in_block(block, lanes, position);
            if (channel >= block.channels) continue;
            for (int64_t k = 0; k < codes; ++k) {
                const int64_t from = k * conv.out_channels + block.channel + channel;
                put_weight(plan.layer, block, int64_t{4} * lanes, position, k,
                           load_code(conv.w, weights, from), to);
            }
        }
    }
}

std::vector<int8_t> packed_weights(const Plan& plan, int lanes, const void* weights) {
    std::vector<int8_t> packed(static_cast<size_t>(plan.layer.tap_table - plan.layer.weights));
    put_weights(plan, lanes, weights, packed.data());
    return packed;
}

// The registers of sums that are computed together, in the order of positions.
std::vector<Together> registers_of(const Plan& plan, int lanes) {
    std::vector<Together> all;
    for (const Block& block : plan.blocks) {
        const int64_t together = std::min(block.vectors, 2);
        for (int64_t vector = 0; vector < block.vectors; vector += together) {
            const int64_t position = block.position + vector * 4 * lanes;
            all.push_back({position * plan.layer.steps * 4, together * 16 * lanes});
        }
    }
    return all;
}

void make_room_for(const ExtraSteps& extra, int64_t registers, Plan& plan) {
    plan.layer.chunk = extra.chunk;
    plan.layer.extra_first = plan.end;
    plan.layer.extra_steps = plan.layer.extra_first + aligned((registers + 1) * 8);
    const auto steps = static_cast<int64_t>(extra.steps.size()) * 4;
    plan.layer.extra_weights = plan.layer.extra_steps + aligned(steps);
    plan.end = plan.layer.extra_weights + aligned(static_cast<int64_t>(extra.weights.size()));
}

void put_extra_steps(const Layer& layer, const ExtraSteps& extra, const std::vector<Together>& all,
                     int lanes, char* memory) {
    // The second of two registers begins where the registers after it begin.
    auto* first = reinterpret_cast<int64_t*>(memory + layer.extra_first);
    for (size_t i = 0; i < all.size(); ++i) {
        *first++ = extra.first[i];
        if (all[i].bytes > 16 * lanes) *first++ = extra.first[i + 1];
    }
    *first = extra.first.back();
    std::copy(extra.steps.begin(), extra.steps.end(),
              reinterpret_cast<int32_t*>(memory + layer.extra_steps));
    std::copy(extra.weights.begin(), extra.weights.end(), memory + layer.extra_weights);
}

void put_taps(const Layer& layer, char* to) {
    const Conv& conv = layer.conv;
    for (int64_t tap = 0; tap < taps_of(conv); ++tap) {
        const int64_t row = tap / conv.kernel_width * conv.dilation_height;
        const int64_t column = tap % conv.kernel_width * conv.dilation_width;
        const int64_t offset = (row * conv.width + column) * conv.channels;
        std::memcpy(to + tap * 8, &offset, 8);
    }
}

}  // namespace

}  // namespace qgraph::engine::kernels

namespace qgraph::engine {

using namespace kernels;

size_t least_size(const Conv& conv, Stages stages, Level level) {
    return static_cast<size_t>(plan_of(conv, stages.count, level).end);
}

void pack(const Conv& conv, const void* weights, Stages stages, Level level,
          const Allocate& allocate) {
    Plan plan = plan_of(conv, stages.count, level);
    const int lanes = kernels_of(level)->lanes;
    const PairForm& pairs = kernels_of(level)->products.pairs;
    const bool in_pairs = pairs.most > 0;
    std::vector<int8_t> packed = packed_weights(plan, lanes, weights);
    ExtraSteps extra;
    const std::vector<Together> registers = registers_of(plan, lanes);
    if (in_pairs && !plan.layer.conv.depthwise && !plan.layer.words) {
        extra = make_extra_steps(packed, registers, plan.layer.steps, 32 * lanes, pairs);
        if (extra.cost > kWordsCost && conv.out_height * conv.out_width >= kManyPixels) {
            plan = plan_of(conv, stages.count, level, true);
            packed = packed_weights(plan, lanes, weights);
        } else {
            make_room_for(extra, positions_of(plan.blocks, lanes) / (4 * lanes), plan);
        }
    }
    if (in_pairs && plan.layer.conv.depthwise && !plan.layer.words) {
        for (Block& block : plan.blocks) {
            const int64_t count = int64_t{16} * lanes * plan.layer.taps;
            block.small = fit_words(packed.data() + block.position * plan.layer.taps, count,
                                    plan.layer.columns, pairs);
        }
    }
    char* at = static_cast<char*>(allocate(static_cast<size_t>(plan.end)));
    Layer* layer = begin(plan, at);
    std::memcpy(at + layer->weights, packed.data(), packed.size());
    if (layer->chunk > 0) put_extra_steps(*layer, extra, registers, lanes, at);
    if (layer->conv.depthwise) put_taps(*layer, at + layer->tap_table);
    layer->finish =
        make_finish(stages, conv.y, plan.blocks, lanes, sums_of(*layer, weights), at, plan.finish);
}

void pack(const Map& map, Stages stages, Level level, const Allocate& allocate) {
    const Plan plan = plan_of(map, stages, level);
    void* memory = allocate(static_cast<size_t>(plan.end));
    Layer* layer = begin(plan, memory);
    const auto channels =
        static_cast<size_t>(plan.blocks.back().channel + plan.blocks.back().channels);
    Sums sums{Values(channels), Values(channels), std::vector<uint32_t>(channels)};
    const auto add = [&](Code code) {
        for (size_t c = 0; c < channels; ++c) {
            sums.low[c] += low_of(code);
            sums.high[c] += high_of(code);
            if (code == Code::s8) sums.start[c] -= 128;
        }
    };
    add(map.a);
    if (map.two) add(map.b);
    layer->finish = make_finish(stages, map.y, plan.blocks, kernels_of(level)->lanes, sums,
                                static_cast<char*>(memory), plan.finish);
}

}  // namespace qgraph::engine
