#include "engine/kernels/kernels.h"

#include <algorithm>
#include <cstring>

#include "engine/kernels/codes.h"

namespace qgraph::engine {
namespace {

constexpr int64_t kAlign = 64;
int64_t aligned(int64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

struct Header {
    Conv conv;
    Map map;
    int64_t stages;
    int count;
    int64_t weights;
};

int64_t stages_size(Stages stages, int64_t channels) {
    return aligned(stages.count * static_cast<int64_t>(sizeof(Stage))) +
           aligned(stages.count * 4 * channels * 4);
}

int64_t weights_size(const Conv& conv) {
    const int64_t inputs = conv.depthwise ? 1 : conv.channels / conv.groups;
    return conv.kernel_height * conv.kernel_width * inputs * conv.out_channels * size_of(conv.w);
}

// Numbers with their values in the packed memory are found again by their place there.
void pack_stages(Stages stages, int64_t channels, char* memory, Header* header) {
    header->count = stages.count;
    char* values = memory + aligned(stages.count * static_cast<int64_t>(sizeof(Stage)));
    for (int i = 0; i < stages.count; ++i) {
        std::memcpy(memory + i * sizeof(Stage), &stages.stages[i], sizeof(Stage));
        const Stage& s = stages.stages[i];
        int which = 0;
        for (const Numbers* numbers : {&s.shift, &s.term, &s.low, &s.high}) {
            char* to = values + (i * 4 + which++) * channels * 4;
            for (int64_t c = 0; c < channels; ++c) {
                const int32_t value = (*numbers)[c];
                std::memcpy(to + c * 4, &value, 4);
            }
        }
    }
}

int64_t finish(const Header* header, int64_t v, int64_t channel, int64_t channels) {
    const char* memory = reinterpret_cast<const char*>(header) + header->stages;
    const char* values = memory + aligned(header->count * static_cast<int64_t>(sizeof(Stage)));
    for (int i = 0; i < header->count; ++i) {
        Stage s;
        std::memcpy(&s, memory + i * sizeof(Stage), sizeof(Stage));
        int which = 0;
        for (Numbers* numbers : {&s.shift, &s.term, &s.low, &s.high}) {
            numbers->of_channel = nullptr;
            numbers->for_all = code_at<int32_t>(values + (i * 4 + which++) * channels * 4, channel);
        }
        v = apply(s, v, channel);
    }
    return v;
}

}  // namespace

bool supports(Level level) { return level == Level::plain; }
Level best_level() { return Level::plain; }

size_t packed_size(const Conv& conv, Stages stages, Level) {
    return static_cast<size_t>(aligned(sizeof(Header)) + stages_size(stages, conv.out_channels) +
                               aligned(weights_size(conv)));
}

void pack(const Conv& conv, const void* weights, Stages stages, Level, void* memory) {
    auto* header = static_cast<Header*>(memory);
    *header = Header{conv, {}, aligned(sizeof(Header)), 0, 0};
    header->weights = header->stages + stages_size(stages, conv.out_channels);
    char* at = static_cast<char*>(memory);
    pack_stages(stages, conv.out_channels, at + header->stages, header);
    std::memcpy(at + header->weights, weights, static_cast<size_t>(weights_size(conv)));
}

size_t scratch_size(const void*) { return 64; }
int64_t blocks(const void*) { return 1; }

void run(const void* packed, const void* x, void* y, Part part, void*) {
    const auto* header = static_cast<const Header*>(packed);
    const Conv& s = header->conv;
    if (part.first_block > 0 || part.last_block < 1) return;
    const char* w = static_cast<const char*>(packed) + header->weights;
    const int64_t groups = s.depthwise ? s.channels : s.groups;
    const int64_t inputs = s.channels / groups;
    const int64_t outputs = s.out_channels / groups;
    for (int64_t pixel = part.begin; pixel < part.end; ++pixel) {
        const int64_t column = pixel % s.out_width;
        const int64_t row = pixel / s.out_width % s.out_height;
        const int64_t image = pixel / (s.out_width * s.out_height);
        for (int64_t out = 0; out < s.out_channels; ++out) {
            int64_t sum = 0;
            for (int64_t ky = 0; ky < s.kernel_height; ++ky) {
                const int64_t iy = row * s.stride_height + ky * s.dilation_height - s.pad_top;
                if (iy < 0 || iy >= s.height) continue;
                for (int64_t kx = 0; kx < s.kernel_width; ++kx) {
                    const int64_t ix = column * s.stride_width + kx * s.dilation_width - s.pad_left;
                    if (ix < 0 || ix >= s.width) continue;
                    const int64_t from = ((image * s.height + iy) * s.width + ix) * s.channels +
                                         out / outputs * inputs;
                    const int64_t tap = (ky * s.kernel_width + kx) * inputs;
                    for (int64_t i = 0; i < inputs; ++i) {
                        sum += load_code(s.x, x, from + i) *
                               load_code(s.w, w, (tap + i) * s.out_channels + out);
                    }
                }
            }
            store_code(s.y, y, pixel * s.out_channels + out,
                       finish(header, sum, out, s.out_channels));
        }
    }
}

size_t packed_size(const Map& map, Stages stages, Level) {
    return static_cast<size_t>(aligned(sizeof(Header)) + stages_size(stages, map.channels));
}

void pack(const Map& map, Stages stages, Level, void* memory) {
    auto* header = static_cast<Header*>(memory);
    *header = Header{{}, map, aligned(sizeof(Header)), 0, 0};
    pack_stages(stages, map.channels, static_cast<char*>(memory) + header->stages, header);
}

void run_map(const void* packed, const void* a, const void* b, void* y, int64_t rows) {
    const auto* header = static_cast<const Header*>(packed);
    const Map& map = header->map;
    for (int64_t i = 0; i < rows * map.channels; ++i) {
        int64_t v = load_code(map.a, a, i);
        if (map.two) v += load_code(map.b, b, i);
        store_code(map.y, y, i, finish(header, v, i % map.channels, map.channels));
    }
}

void max_pool(const Pool& s, const void* x, void* y, int64_t begin, int64_t end, Level) {
    for (int64_t pixel = begin; pixel < end; ++pixel) {
        const int64_t left = pixel % s.out_width * s.stride_width - s.pad_left;
        const int64_t top = pixel / s.out_width % s.out_height * s.stride_height - s.pad_top;
        const int64_t image = pixel / (s.out_width * s.out_height) * s.height;
        for (int64_t c = 0; c < s.channels; ++c) {
            int64_t most = INT64_MIN;
            for (int64_t iy = std::max<int64_t>(top, 0);
                 iy < std::min(top + s.kernel_height, s.height); ++iy) {
                for (int64_t ix = std::max<int64_t>(left, 0);
                     ix < std::min(left + s.kernel_width, s.width); ++ix) {
                    const int64_t at = ((image + iy) * s.width + ix) * s.channels + c;
                    most = std::max(most, load_code(s.type, x, at));
                }
            }
            store_code(s.type, y, pixel * s.channels + c, most);
        }
    }
}

void look_up(const uint8_t* x, const uint8_t* table, uint8_t* y, int64_t count, Level) {
    for (int64_t i = 0; i < count; ++i) y[i] = table[x[i]];
}

}  // namespace qgraph::engine
