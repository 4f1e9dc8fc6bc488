#pragma once

#include <cstdint>
#include <vector>

#include "engine/kernels/kernels.h"

namespace qgraph::engine {

// A convolution of floats that are codes on a scale. It multiplies the codes, so its sums are those
// of the integer program. Threads may share it; `run` works on the calling thread.
class CodedConv {
  public:
    // conv: x is u8 or s8, y is s32. Weights are s8.
    CodedConv(Conv conv, const int8_t* weights);

    // x [n, height, width, channels] = codes / scale, y [n, out_height, out_width, out_channels] =
    // sums * unit, scale and unit powers of two. Returns false, and leaves y undefined, if a number
    // of x is not such a code: not whole, beyond its type, or NaN.
    bool run(int64_t n, const float* x, float scale, float* y, float unit) const;

  private:
    const char* packed() const;

    Conv conv_;
    std::vector<char> memory_;
};

}  // namespace qgraph::engine
