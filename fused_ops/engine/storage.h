#pragma once

#include <cstdint>

namespace qgraph::engine {

// The integer types that codes are stored in, in the order of qgraph/backends/engine/file.py.
enum class Storage : uint8_t { i8, u8, i16, u16, i32, u32, i64 };
constexpr int kStorages = 7;

constexpr int64_t size_of(Storage storage) {
    return storage <= Storage::u8    ? 1
           : storage <= Storage::u16 ? 2
           : storage <= Storage::u32 ? 4
                                     : 8;
}

constexpr int64_t lowest(Storage storage) {
    switch (storage) {
        case Storage::i8:
            return INT8_MIN;
        case Storage::i16:
            return INT16_MIN;
        case Storage::i32:
            return INT32_MIN;
        case Storage::i64:
            return INT64_MIN;
        case Storage::u8:
        case Storage::u16:
        case Storage::u32:
            break;
    }
    return 0;
}

constexpr int64_t highest(Storage storage) {
    switch (storage) {
        case Storage::i8:
            return INT8_MAX;
        case Storage::u8:
            return UINT8_MAX;
        case Storage::i16:
            return INT16_MAX;
        case Storage::u16:
            return UINT16_MAX;
        case Storage::i32:
            return INT32_MAX;
        case Storage::u32:
            return UINT32_MAX;
        case Storage::i64:
            break;
    }
    return INT64_MAX;
}

// Calls what(T{}) with the C++ type of `storage`.
template <typename What>
inline void with_type(Storage storage, What&& what) {
    switch (storage) {
        case Storage::i8:
            return what(int8_t{});
        case Storage::u8:
            return what(uint8_t{});
        case Storage::i16:
            return what(int16_t{});
        case Storage::u16:
            return what(uint16_t{});
        case Storage::i32:
            return what(int32_t{});
        case Storage::u32:
            return what(uint32_t{});
        case Storage::i64:
            return what(int64_t{});
    }
}

}  // namespace qgraph::engine
