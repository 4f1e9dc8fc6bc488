#pragma once

#include <cstddef>
#include <new>
#include <vector>

namespace qgraph {

// Memory aligned to 64 bytes, so that no vector spans two cache lines.
template <typename T>
struct AlignedAllocator {
    using value_type = T;
    static constexpr std::align_val_t kAlignment{64};

    AlignedAllocator() = default;
    template <typename U>
    explicit AlignedAllocator(const AlignedAllocator<U>&) {}

    T* allocate(size_t count) {
        return static_cast<T*>(operator new(count * sizeof(T), kAlignment));
    }
    void deallocate(T* memory, size_t) { operator delete(memory, kAlignment); }

    bool operator==(const AlignedAllocator&) const { return true; }
    bool operator!=(const AlignedAllocator&) const { return false; }
};

template <typename T>
using AlignedVector = std::vector<T, AlignedAllocator<T>>;

}  // namespace qgraph
