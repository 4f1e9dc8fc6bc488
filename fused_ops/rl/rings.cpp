#include "rl/rings.h"

#include <algorithm>

namespace qgraph::rl {

namespace {
constexpr int64_t PAGE = 4096;
}  // namespace

int64_t Rings::head_size(int64_t writers) {
    const int64_t used =
        static_cast<int64_t>(sizeof(Head)) + writers * static_cast<int64_t>(sizeof(Ring));
    return (used + PAGE - 1) / PAGE * PAGE;
}

Rings::Rings(void* memory, void* records, int64_t writers, int64_t capacity, int64_t record_size)
    : head_(static_cast<Head*>(memory)),
      rings_(reinterpret_cast<Ring*>(head_ + 1)),
      records_(static_cast<char*>(records)),
      writers_(writers),
      capacity_(capacity),
      record_size_(record_size) {}

char* Rings::place(int64_t writer, uint64_t record) const {
    const auto slot = static_cast<int64_t>(record % static_cast<uint64_t>(capacity_));
    return records_ + (writer * capacity_ + slot) * record_size_;
}

int64_t Rings::filled(int64_t writer) const {
    const Ring& ring = rings_[writer];
    const uint64_t taken = ring.taken.load();
    return static_cast<int64_t>(
        std::min(ring.written.load() - taken, static_cast<uint64_t>(capacity_)));
}

int64_t Rings::written(int64_t writer) const {
    return static_cast<int64_t>(rings_[writer].written.load());
}

int64_t Rings::put(int64_t writer, const void* from, int64_t count) {
    Ring& ring = rings_[writer];
    count = std::min(count, capacity_ - filled(writer));
    if (count <= 0) return 0;
    const uint64_t begin = ring.written.load();
    const auto slot = static_cast<int64_t>(begin % static_cast<uint64_t>(capacity_));
    const int64_t first = std::min(count, capacity_ - slot);
    const char* source = static_cast<const char*>(from);
    copy_bytes(place(writer, begin), source, static_cast<size_t>(first * record_size_));
    copy_bytes(place(writer, 0), source + first * record_size_,
               static_cast<size_t>((count - first) * record_size_));
    ring.written.store(begin + static_cast<uint64_t>(count));
    head_->filled.ring();
    return count;
}

int64_t Rings::take(int64_t writer, void* to, int64_t count) {
    Ring& ring = rings_[writer];
    count = std::min(count, filled(writer));
    if (count <= 0) return 0;
    const uint64_t begin = ring.taken.load();
    const auto slot = static_cast<int64_t>(begin % static_cast<uint64_t>(capacity_));
    const int64_t first = std::min(count, capacity_ - slot);
    char* target = static_cast<char*>(to);
    copy_bytes(target, place(writer, begin), static_cast<size_t>(first * record_size_));
    copy_bytes(target + first * record_size_, place(writer, 0),
               static_cast<size_t>((count - first) * record_size_));
    ring.taken.store(begin + static_cast<uint64_t>(count));
    ring.freed.ring();
    return count;
}

bool Rings::wait_free(int64_t writer, int64_t nanoseconds) {
    Ring& ring = rings_[writer];
    const uint32_t seen = ring.freed.count();
    if (filled(writer) < capacity_) return true;
    const int64_t begin = now();
    ring.freed.wait(seen, nanoseconds);
    ring.waited.fetch_add(now() - begin);
    return filled(writer) < capacity_;
}

bool Rings::any() const {
    for (int64_t i = 0; i < writers_; ++i) {
        if (filled(i) > 0) return true;
    }
    return false;
}

bool Rings::wait_filled(int64_t nanoseconds) {
    const uint32_t seen = head_->filled.count();
    if (any()) return true;
    const int64_t begin = now();
    head_->filled.wait(seen, nanoseconds);
    head_->waited.fetch_add(now() - begin);
    return any();
}

}  // namespace qgraph::rl
