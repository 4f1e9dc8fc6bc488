#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "engine/kernels/stages.h"

namespace qgraph::engine::kernels {

template <typename T>
T code_at(const void* codes, int64_t i) {
    T code;
    std::memcpy(&code, static_cast<const char*>(codes) + i * sizeof(T), sizeof(T));
    return code;
}

inline int64_t load_code(Code type, const void* codes, int64_t i) {
    switch (type) {
        case Code::u8:
            return code_at<uint8_t>(codes, i);
        case Code::s8:
            return code_at<int8_t>(codes, i);
        case Code::u16:
            return code_at<uint16_t>(codes, i);
        case Code::s16:
            return code_at<int16_t>(codes, i);
        case Code::s32:
            break;
    }
    return code_at<int32_t>(codes, i);
}

inline void store_code(Code type, void* codes, int64_t i, int64_t v) {
    v = std::min(std::max(v, low_of(type)), high_of(type));
    const int64_t size = size_of(type);
    // Little-endian: the low bytes come first.
    std::memcpy(static_cast<char*>(codes) + i * size, &v, static_cast<size_t>(size));
}

}  // namespace qgraph::engine::kernels
