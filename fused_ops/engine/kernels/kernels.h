#pragma once

// Integer kernels on codes: convolutions, matrix products and elementwise ops. All are exact, so
// every level gives the same bits. Tensors are NHWC, dense, with zero point 0 and any alignment.
// Running allocates no memory and checks no arguments: the caller guarantees shapes, pointers and
// bounds.

#include <cstddef>
#include <cstdint>
#include <functional>

#include "core/quantize.h"

namespace qgraph::engine {

// Instruction sets, in ascending order for each kind of CPU. `pack` takes one as an argument, and
// the packed layer runs on it.
enum class Level { plain, avx2, avx512vnni, amx, neon, neon_dotprod };
constexpr Level kLevels[] = {Level::plain, Level::avx2, Level::avx512vnni,
                             Level::amx,   Level::neon, Level::neon_dotprod};
constexpr bool has_avx512(Level level) { return level == Level::avx512vnni || level == Level::amx; }
bool supports(Level level);  // true if this CPU and this build do
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

// The stages that a sum goes through, in order, before it is stored. Values are s32 between stages:
// the caller guarantees that true values fit.
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

// Results are saturated to their type when they are stored.
struct Stages {
    const Stage* stages = nullptr;
    int count = 0;
};

// Convolution of x [n, height, width, channels] with w [kernel_height, kernel_width,
// channels / groups, out_channels] into y [n, out_height, out_width, out_channels]. For a depthwise
// convolution, w is [kernel_height, kernel_width, channels, multiplier] and `groups` is ignored.
// Padding has code 0. Only the padding above and to the left is given; the rest follows from the
// shapes. For a product x [n, k] times w [k, m], channels = k, out_channels = m, all else is 1.
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
    // A bound on the magnitude of sums without bias, if the caller has one. 0: the bound is
    // computed from the weights and the type of x. A smaller bound may be faster; results are the
    // same.
    int64_t bound = 0;
};

// The part of the output that one call computes: pixels, counted over all images (there are
// n * out_height * out_width), and blocks of output channels. Disjoint parts may run at the same
// time, each with its own scratch memory. Split by pixels where possible; split by blocks if there
// are few pixels and many channels.
struct Part {
    int64_t begin = 0, end = 0;
    int64_t first_block = 0, last_block = INT64_MAX;  // exclusive; may exceed the number of blocks
};

// A layer is packed once, into memory from `allocate`, aligned to 64 bytes. The packed layer is
// complete: weights and stages may be freed. It may be moved, made read-only, and shared by
// threads.
using Allocate = std::function<void*(size_t bytes)>;
size_t least_size(const Conv& conv, Stages stages,
                  Level level);  // a lower bound: some weights need more
void pack(const Conv& conv, const void* weights, Stages stages, Level level,
          const Allocate& allocate);

// Scratch memory must be aligned to 64 bytes.
size_t scratch_size(const void* packed);
int64_t blocks(const void* packed);  // blocks of output channels; 1 if they cannot be split
void run(const void* packed, const void* x, void* y, Part part, void* scratch);

// Elementwise: y = stages(a) or stages(a + b) on rows of channels. y may equal a or b if it has the
// same type.
struct Map {
    Code a = Code::u8;
    Code b = Code::u8;  // ignored without a second input
    Code y = Code::u8;
    int64_t channels = 1;
    bool two = false;  // there is a second input
};
void pack(const Map& map, Stages stages, Level level, const Allocate& allocate);
void run_map(const void* packed, const void* a, const void* b, void* y, int64_t rows);

// Maximum over windows of x [n, height, width, channels]. Padding is ignored, and each window must
// contain at least one pixel of x. Pixels are as in Part.
struct Pool {
    Code type = Code::u8;
    int64_t height = 1, width = 1, channels = 1;
    int64_t kernel_height = 1, kernel_width = 1;
    int64_t stride_height = 1, stride_width = 1;
    int64_t pad_top = 0, pad_left = 0;
    int64_t out_height = 1, out_width = 1;
};
void max_pool(const Pool& pool, const void* x, void* y, int64_t begin, int64_t end, Level level);

// y[i] = table[x[i]] for bytes. Codes of s8 are used as unsigned indices: table[uint8_t(code)].
void look_up(const uint8_t* x, const uint8_t* table, uint8_t* y, int64_t count, Level level);

}  // namespace qgraph::engine
