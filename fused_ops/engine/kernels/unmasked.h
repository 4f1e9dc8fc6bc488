// Code shared by the levels without mask registers. Included after vectors.h.

#pragma once

#include "engine/kernels/vectors.h"

namespace qgraph::engine::kernels {
namespace {

// v & ~bits where (t & rest) is 0, else v.
template <typename T>
inline T clear_where_none(T v, T bits, T t, T rest) {
    return v & ~(((t & rest) == 0) & bits);
}

inline Bytes load_part(const char* from, int64_t count) {
    Bytes bytes{};
    std::memcpy(&bytes, from, static_cast<size_t>(count));
    return bytes;
}

inline void store_part(char* to, Bytes bytes, int64_t count) {
    std::memcpy(to, &bytes, static_cast<size_t>(count));
}

}  // namespace
}  // namespace qgraph::engine::kernels
