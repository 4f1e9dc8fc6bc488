#pragma once

#include <cstdint>

namespace qgraph {

// Consecutive elements to pack into bytes: a multiple of kLanes.
struct PackSpan {
    const float* x;
    uint8_t* codes;
    int64_t count;
    float scale;  // 2^f
    float low, high;
};

// Consecutive bytes to unpack: a multiple of kLanes.
struct UnpackSpan {
    const uint8_t* codes;
    float* x;
    int64_t count;
    float step;  // 2^-f
    bool is_signed;
    bool stream;  // write past the caches; x is aligned to 64 bytes
};

struct CodeKernels {
    void (*pack)(const PackSpan&);
    void (*unpack)(const UnpackSpan&);
};

}  // namespace qgraph
