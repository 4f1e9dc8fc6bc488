#pragma once

#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <vector>

namespace qgraph::engine {

constexpr int64_t kLine = 64;

constexpr int64_t lines(int64_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

// Bytes at a multiple of 64.
struct FreeAligned {
    void operator()(char* memory) const { operator delete[](memory, std::align_val_t(kLine)); }
};
using Aligned = std::unique_ptr<char[], FreeAligned>;

inline Aligned aligned(int64_t bytes) {
    return Aligned(new (std::align_val_t(kLine)) char[static_cast<size_t>(lines(bytes))]);
}

// A piece of memory that is needed from call `first` to call `last`, both included.
struct Need {
    int64_t bytes;
    int64_t first;
    int64_t last;
    int64_t offset;
};

// Gives each need its offset, so that none overlap while both are needed; returns the bytes of all.
int64_t place(std::vector<Need>& needs);

// A file in memory, read only.
class MappedFile {
  public:
    explicit MappedFile(const std::string& path);
    ~MappedFile();
    MappedFile(const MappedFile&) = delete;
    MappedFile& operator=(const MappedFile&) = delete;

    const void* data() const { return data_; }
    uint64_t size() const { return size_; }

  private:
    void* data_ = nullptr;
    uint64_t size_ = 0;
};

}  // namespace qgraph::engine
