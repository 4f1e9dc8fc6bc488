// For levels whose weights have the four bytes of a sum next to each other. Each includes this
// once, after it has defined interleave.

#pragma once

#include "engine/kernels/vectors.h"

namespace qgraph::engine::kernels {
namespace {

// The codes of four taps, or of two taps of 16-bit words, in the order of weights.
inline void interleave_bytes(const Bytes* four, Ints* out) { interleave(four, out); }
inline void interleave_words(const Bytes* four, Ints* out) { interleave(four, out); }

// The weights of three taps and one of padding, moved by one tap: those of the line below.
inline Ints moved_down(Ints weights) { return (Ints)((Words)weights << 8); }

}  // namespace
}  // namespace qgraph::engine::kernels
