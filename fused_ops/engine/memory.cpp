#include "engine/memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>

#include "engine/network.h"

namespace qgraph::engine {

int64_t place(std::vector<Need>& needs) {
    // The largest first, each in the tightest gap.
    std::vector<size_t> order(needs.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return needs[a].bytes > needs[b].bytes; });
    std::vector<const Need*> placed;  // by offset
    int64_t all = 0;
    for (const size_t index : order) {
        Need& need = needs[index];
        int64_t best = -1, best_gap = INT64_MAX, end = 0;
        for (const Need* other : placed) {
            if (other->last < need.first || need.last < other->first) continue;
            const int64_t gap = other->offset - end;
            if (gap >= need.bytes && gap < best_gap) {
                best = end;
                best_gap = gap;
            }
            end = std::max(end, other->offset + lines(other->bytes));
        }
        need.offset = best < 0 ? end : best;
        all = std::max(all, need.offset + lines(need.bytes));
        const auto at = std::upper_bound(
            placed.begin(), placed.end(), need.offset,
            [](int64_t offset, const Need* other) { return offset < other->offset; });
        placed.insert(at, &need);
    }
    return all;
}

MappedFile::MappedFile(const std::string& path) {
    const auto fail = [&] { throw LoadFailure(std::strerror(errno)); };
    const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) fail();
    struct stat status{};
    const bool known = fstat(file, &status) == 0;
    if (known && S_ISREG(status.st_mode) && status.st_size > 0) {
        size_ = static_cast<uint64_t>(status.st_size);
        data_ = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file, 0);
    }
    const int error = errno;
    close(file);
    errno = error;
    if (data_ == MAP_FAILED) fail();
    if (data_ == nullptr) throw LoadFailure("the path is not a file, or the file is empty");
}

MappedFile::~MappedFile() {
    if (data_ != nullptr && data_ != MAP_FAILED) munmap(data_, size_);
}

}  // namespace qgraph::engine
