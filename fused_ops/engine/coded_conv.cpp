#include "engine/coded_conv.h"

#include <cstring>

namespace qgraph::engine {
namespace {

constexpr size_t kAlignment = 64;

char* aligned(std::vector<char>& memory) {
    const auto address = reinterpret_cast<uintptr_t>(memory.data());
    return reinterpret_cast<char*>((address + kAlignment - 1) / kAlignment * kAlignment);
}

// Memory of this thread, which is kept: new memory costs more than a small convolution.
char* scratch(size_t bytes) {
    thread_local std::vector<char> memory;
    if (memory.size() < bytes + kAlignment) memory.resize(bytes + kAlignment);
    return aligned(memory);
}

// False if a number is not a code.
template <typename T>
bool to_codes(const float* x, float scale, char* codes, int64_t count) {
    int32_t others = 0;
    for (int64_t i = 0; i < count; ++i) {
        const float number = x[i] * scale;
        const float inside = number > -1000.0f && number < 1000.0f ? number : 0.0f;
        const T code = static_cast<T>(static_cast<int32_t>(inside));
        others += static_cast<float>(code) != number;
        codes[i] = static_cast<char>(code);
    }
    return others == 0;
}

}  // namespace

CodedConv::CodedConv(Conv conv, const int8_t* weights) : conv_(conv) {
    pack(conv, weights, Stages{}, best_level(), [this](size_t bytes) {
        memory_.resize(bytes + kAlignment);
        return aligned(memory_);
    });
}

bool CodedConv::run(int64_t n, const float* x, float scale, float* y, float unit) const {
    const int64_t count = n * conv_.height * conv_.width * conv_.channels;
    const int64_t pixels = n * conv_.out_height * conv_.out_width;
    const int64_t code_bytes = (count + 2 * static_cast<int64_t>(kAlignment)) /
                               static_cast<int64_t>(kAlignment) * static_cast<int64_t>(kAlignment);
    char* const codes = scratch(static_cast<size_t>(code_bytes) + scratch_size(packed()));
    const bool are_codes = conv_.x == Code::u8 ? to_codes<uint8_t>(x, scale, codes, count)
                                               : to_codes<int8_t>(x, scale, codes, count);
    if (!are_codes) return false;
    engine::run(packed(), codes, y, {0, pixels}, codes + code_bytes);
    // Sums are where their floats will be.
    for (int64_t i = 0; i < pixels * conv_.out_channels; ++i) {
        int32_t sum;
        std::memcpy(&sum, y + i, sizeof(sum));
        y[i] = static_cast<float>(sum) * unit;
    }
    return true;
}

const char* CodedConv::packed() const { return aligned(const_cast<std::vector<char>&>(memory_)); }

}  // namespace qgraph::engine
