#pragma once

#include <cstdint>

namespace qgraph {

// Of integers that are shifted, double_ is half_up by one bit, then half_away by the others; of
// numbers that are not codes it is half_away.
enum class Rounding { half_even, half_up, half_away, floor, double_ };
constexpr int kRoundings = 5;

// Of tensors. Narrow ones are computed in float32; a result that they do not hold is rounded to the
// nearest, ties to even.
enum class Type { float32, bfloat16, float16 };
constexpr int kTypes = 3;
constexpr int64_t size_of(Type type) { return type == Type::float32 ? 4 : 2; }

// A power-of-two quantizer. Element i belongs to channel i % channels, so channels are along the
// last axis, and 1 is per tensor. Each channel has its exponent f, |f| <= 126; low <= 0 <= high
// are whole.
struct Quantizer {
    const int32_t* f;
    int64_t channels;
    float low;
    float high;
    Rounding rounding;
};

// y = clip(round(x * 2^f), low, high) * 2^-f. NaN stays NaN and a zero comes out positive. `count`
// is a multiple of the channels. y may be x itself, but not overlap it otherwise.
void quantize(const void* x, void* y, int64_t count, const Quantizer& quantizer,
              Type type = Type::float32);

// The gradients, given g = d loss / d y. With r = round(x * 2^f), an element is inside unless
// r < low or r > high (a NaN is inside).
//   gx      g inside, else 0
//   glog2t  for each channel, 2^-f * ln 2 * sum(g * (r - x * 2^f inside | low | high))
// The sum is taken in float64 in an order that depends on count and channels only, never on
// threads, instruction set or device: rows of all channels (of kLanes elements, where there is one
// channel) are added up in leaves of kLeafRows, leaves in blocks of kLeaves, blocks in spans of
// kBlocks, spans in a row, the lanes at last in a tree of halves. gx may be g or x itself, but not
// overlap them otherwise.
void quantize_gradients(const void* x, const void* g, void* gx, double* glog2t, int64_t count,
                        const Quantizer& quantizer, Type type = Type::float32);

constexpr int64_t kLanes = 32;
constexpr int64_t kLeafRows = 32;
constexpr int64_t kLeaves = 32;
constexpr int64_t kBlocks = 32;

// Instruction sets that kernels are compiled for; the best the CPU has is in use unless one is
// chosen. Returns false, and changes nothing, where this CPU or build has no such set.
enum class InstructionSet { plain, avx2, avx512 };
constexpr int kInstructionSets = 3;
bool choose(InstructionSet set);
InstructionSet chosen();

}  // namespace qgraph
