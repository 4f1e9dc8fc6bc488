#include "rl/channel.h"

namespace qgraph::rl {

namespace {
constexpr uint64_t PUBLICATION = uint64_t{1} << 16;
constexpr int64_t PAGE = 4096;
}  // namespace

int64_t Channel::head_size(int64_t readers) {
    const int64_t used = static_cast<int64_t>(sizeof(Head)) +
                         readers * static_cast<int64_t>(sizeof(Slots)) +
                         buffers(readers) * static_cast<int64_t>(sizeof(Buffer));
    return (used + PAGE - 1) / PAGE * PAGE;
}

Channel::Channel(void* memory, int64_t readers)
    : head_(static_cast<Head*>(memory)),
      slots_(reinterpret_cast<Slots*>(head_ + 1)),
      buffers_(reinterpret_cast<Buffer*>(slots_ + readers)),
      readers_(readers) {}

uint32_t Channel::buffer_of(uint64_t latest) const {
    const auto buffer = static_cast<uint32_t>(latest % PUBLICATION);
    return buffer < buffers(readers_) ? buffer : 0;
}

bool Channel::held(uint32_t buffer) const {
    for (int64_t i = 0; i < readers_; ++i) {
        for (const auto& slot : slots_[i].held) {
            if (slot.load() == buffer + 1) return true;
        }
    }
    return false;
}

int64_t Channel::free_buffer() const {
    const uint64_t latest = head_->latest.load();
    const int64_t kept = latest == 0 ? -1 : buffer_of(latest);
    // Searches from the front, so that only a few buffers are ever used.
    for (int64_t i = 0; i < buffers(readers_); ++i) {
        if (i != kept && !held(static_cast<uint32_t>(i))) return i;
    }
    return -1;  // readers cannot hold all buffers, so the memory is damaged
}

bool Channel::publish(int64_t buffer, int64_t version) {
    if (version <= this->version()) return false;
    buffers_[buffer].version.store(version);
    const uint64_t publications = head_->latest.load() / PUBLICATION + 1;
    head_->latest.store(publications * PUBLICATION + static_cast<uint64_t>(buffer));
    head_->published.ring();
    return true;
}

Channel::Found Channel::claim(int64_t reader, int64_t slot, int64_t newer_than) {
    auto& held = slots_[reader].held[slot];
    uint64_t latest = head_->latest.load();
    while (latest != 0) {
        const uint32_t buffer = buffer_of(latest);
        if (buffers_[buffer].version.load() <= newer_than) break;
        held.store(buffer + 1);
        const uint64_t again = head_->latest.load();
        if (again == latest) return {buffer, buffers_[buffer].version.load()};
        latest = again;
    }
    held.store(0);
    return {-1, -1};
}

void Channel::release(int64_t reader, int64_t slot) { slots_[reader].held[slot].store(0); }

int64_t Channel::version() const {
    const uint64_t latest = head_->latest.load();
    // If the writer has reused the buffer meanwhile, its version is later, which is also correct.
    return latest == 0 ? -1 : buffers_[buffer_of(latest)].version.load();
}

bool Channel::wait(int64_t version, int64_t nanoseconds) {
    const uint32_t seen = head_->published.count();
    if (this->version() >= version) return true;
    head_->published.wait(seen, nanoseconds);
    return this->version() >= version;
}

void Channel::ask() {
    head_->asked.fetch_add(1);
    head_->asking.ring();
}

bool Channel::asked() {
    const uint64_t count = head_->asked.load();
    return head_->answered.exchange(count) != count;
}

bool Channel::wait_asked(int64_t nanoseconds) const {
    const auto open = [this] { return head_->asked.load() != head_->answered.load(); };
    const uint32_t seen = head_->asking.count();
    if (open()) return true;
    head_->asking.wait(seen, nanoseconds);
    return open();
}

}  // namespace qgraph::rl
