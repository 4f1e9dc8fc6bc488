#pragma once

// Integer kernels on codes: convolutions, matrix products, and what is done elementwise. All is
// exact, so that every level gives the same bits. Tensors are NHWC, dense, zero point 0, and may
// have any alignment. Running allocates nothing, and nothing checks what it is given: shapes,
// pointers and bounds are the caller's word.

#include <cstddef>
#include <cstdint>
#include <functional>

#include "core/quantize.h"

namespace qgraph::engine {

// Instruction sets. `pack` is told one, and what it has packed runs on that one.
enum class Level { plain, avx2, avx512vnni, amx };
constexpr Level kLevels[] = {Level::plain, Level::avx2, Level::avx512vnni, Level::amx};
bool supports(Level level);  // this CPU and this build
Level best_level();

enum class Code : uint8_t { u8, s8, u16, s16, s32 };
constexpr int kCodes = 5;
constexpr int64_t size_of(Code code) { return code <= Code::s8 ? 1 : code <= Code::s16 ? 2 : 4; }

// An integer for each channel of the result (the last axis), or one for all.
struct Numbers {
    int32_t for_all = 0;
    const int32_t* of_channel = nullptr;
    int32_t operator[](int64_t channel) const {
        return of_channel == nullptr ? for_all : of_channel[channel];
    }
};

// What is done with a sum, one stage after the other, before it is stored. Values are s32 between
// stages: that true values fit is the caller's word.
//   requantize  clip(round_shift(v, shift, rounding), low, high), as in qgraph.numerics; negative
//               shifts are left shifts, which saturate
//   add         v + term
//   clip        clip(v, low, high)
struct Stage {
    enum class Kind { requantize, add, clip };
    static constexpr int kKinds = 3;
    Kind kind = Kind::clip;
    Numbers shift;
    Rounding rounding = Rounding::half_even;
    Numbers term;
    Numbers low{INT32_MIN};
    Numbers high{INT32_MAX};
};

constexpr int kMaxStages = 8;

// A result is saturated to its type when it is stored.
struct Stages {
    const Stage* stages = nullptr;
    int count = 0;
};

// Convolution of x [n, height, width, channels] with w [kernel_height, kernel_width,
// channels / groups, out_channels] into y [n, out_height, out_width, out_channels]; where it is
// depthwise, w is [kernel_height, kernel_width, channels, multiplier] and groups are not looked at.
// Padding has code 0; only what lies above and to the left is said, the rest follows. A product
// x [n, k] times w [k, m] is channels = k, out_channels = m, and 1 for all else.
struct Conv {
    Code x = Code::u8;  // not s32
    Code w = Code::s8;  // s8 or s16
    Code y = Code::u8;
    int64_t height = 1, width = 1, channels = 1;
    int64_t kernel_height = 1, kernel_width = 1;
    int64_t stride_height = 1, stride_width = 1;
    int64_t dilation_height = 1, dilation_width = 1;
    int64_t pad_top = 0, pad_left = 0;
    int64_t out_height = 1, out_width = 1, out_channels = 1;
    int64_t groups = 1;
    bool depthwise = false;
    // What no sum exceeds in magnitude (bias not included), where the caller knows; 0: it is found
    // from the weights and the type of x. A smaller bound can be faster, never different.
    int64_t bound = 0;
};

// What one call computes: pixels of all images (n * out_height * out_width of them, in order), and
// blocks of output channels. Parts that are disjoint may run at the same time, each with scratch
// memory of its own. Best are parts of many pixels; blocks are for few pixels and many channels.
struct Part {
    int64_t begin = 0, end = 0;
    int64_t first_block = 0, last_block = INT64_MAX;  // up to, not including; past the end is fine
};

// A layer is packed once, into memory that `allocate` gives: so many bytes, aligned to 64. It holds
// all it needs: weights and stages may go. It may be moved, read only, and shared by threads.
using Allocate = std::function<void*(size_t bytes)>;
size_t least_size(const Conv& conv, Stages stages, Level level);  // some weights need more
void pack(const Conv& conv, const void* weights, Stages stages, Level level,
          const Allocate& allocate);

// Scratch memory is aligned to 64.
size_t scratch_size(const void* packed);
int64_t blocks(const void* packed);  // of output channels; 1 where they cannot be told apart
void run(const void* packed, const void* x, void* y, Part part, void* scratch);

// Elementwise: y = stages(a) or stages(a + b) on rows of channels. y may be a or b where it has
// their type.
struct Map {
    Code a = Code::u8;
    Code b = Code::u8;  // not looked at where run_map has no b
    Code y = Code::u8;
    int64_t channels = 1;
    bool two = false;  // there is a b
};
void pack(const Map& map, Stages stages, Level level, const Allocate& allocate);
void run_map(const void* packed, const void* a, const void* b, void* y, int64_t rows);

// Maximum over windows of x [n, height, width, channels]; padding never wins, and each window has
// something else in it. Pixels are as in Part.
struct Pool {
    Code type = Code::u8;
    int64_t height = 1, width = 1, channels = 1;
    int64_t kernel_height = 1, kernel_width = 1;
    int64_t stride_height = 1, stride_width = 1;
    int64_t pad_top = 0, pad_left = 0;
    int64_t out_height = 1, out_width = 1;
};
void max_pool(const Pool& pool, const void* x, void* y, int64_t begin, int64_t end, Level level);

// y[i] = table[x[i]] for bytes; codes of s8 are looked up by their bits: table[uint8_t(code)].
void look_up(const uint8_t* x, const uint8_t* table, uint8_t* y, int64_t count, Level level);

}  // namespace qgraph::engine
