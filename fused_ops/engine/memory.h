#pragma once

#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <vector>

namespace qgraph::engine {

constexpr int64_t kLine = 64;

constexpr int64_t lines(int64_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

// Memory aligned to 64 bytes.
struct FreeAligned {
    void operator()(char* memory) const { operator delete[](memory, std::align_val_t(kLine)); }
};
using Aligned = std::unique_ptr<char[], FreeAligned>;

inline Aligned aligned(int64_t bytes) {
    return Aligned(new (std::align_val_t(kLine)) char[static_cast<size_t>(lines(bytes))]);
}

// A block of memory that is needed from call `first` to call `last`, inclusive.
struct Need {
    int64_t bytes;
    int64_t first;
    int64_t last;
    int64_t offset;
};

// Assigns offsets so that blocks needed at the same time do not overlap; returns the total size.
int64_t place(std::vector<Need>& needs);

// A file mapped into memory, read-only.
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
