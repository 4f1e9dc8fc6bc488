#pragma once

#include <cstdint>

namespace qgraph {

// `double_` rounds twice when integers are shifted: half_up over one bit, then half_away over the
// others. For numbers that are not codes it is half_away.
enum class Rounding { half_even, half_up, half_away, floor, double_ };
constexpr int kRoundings = 5;

// Types of tensors. The narrow types are computed in float32, and results are rounded to the
// nearest, ties to even.
enum class Type { float32, bfloat16, float16 };
constexpr int kTypes = 3;
constexpr int64_t size_of(Type type) { return type == Type::float32 ? 4 : 2; }

// A power-of-two quantizer. Element i belongs to channel i % channels: channels are the last axis,
// and one channel means one scale per tensor. Each channel has an exponent f, |f| <= 126. low <= 0
// <= high are whole numbers.
struct Quantizer {
    const int32_t* f;
    int64_t channels;
    float low;
    float high;
    Rounding rounding;
};

// y = clip(round(x * 2^f), low, high) * 2^-f. NaN stays NaN, and a zero result is positive. `count`
// is a multiple of the channels. y may equal x but not overlap it otherwise.
void quantize(const void* x, void* y, int64_t count, const Quantizer& quantizer,
              Type type = Type::float32);

// The gradients, given g = d loss / d y. With r = round(x * 2^f), an element is inside unless
// r < low or r > high (a NaN is inside).
//   gx      g inside, else 0
//   glog2t  for each channel, 2^-f * ln 2 * sum(g * (r - x * 2^f inside | low | high))
// The sum is taken in float64 in an order that depends on count and channels only, never on
// threads, instruction set or device. A row has one element per channel, or kLanes elements if
// there is one channel. Rows are added up in leaves of kLeafRows, leaves in blocks of kLeaves,
// blocks in spans of kBlocks, spans in order. For one channel the lanes are added last, as a tree
// of halves. gx may equal g or x but not overlap them otherwise.
void quantize_gradients(const void* x, const void* g, void* gx, double* glog2t, int64_t count,
                        const Quantizer& quantizer, Type type = Type::float32);

constexpr int64_t kLanes = 32;
constexpr int64_t kLeafRows = 32;
constexpr int64_t kLeaves = 32;
constexpr int64_t kBlocks = 32;

// Instruction sets that kernels are compiled for. The best that the CPU supports is used unless one
// is chosen. Returns false and changes nothing if this CPU or build lacks the set.
enum class InstructionSet { plain, avx2, avx512 };
constexpr int kInstructionSets = 3;
bool choose(InstructionSet set);
InstructionSet chosen();

}  // namespace qgraph
