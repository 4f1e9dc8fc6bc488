// A machine whose every step a scheduler chooses: each access of a shared word, and each piece of a
// copy, is a step, before which another process may run. Takes the place of fused_ops/rl/machine.h.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

namespace qgraph::rl {

// The scheduler. `step` and `sleep` return false in a process that was killed.
struct Scheduler {
    bool (*step)();
    bool (*sleep)(const void* word, uint32_t seen, int64_t nanoseconds);
    bool (*wake)(const void* word);
    int64_t (*now)();
};

extern Scheduler scheduler;

// Thrown in a process that was killed: nothing of it happens any more.
struct Killed {};

inline void step() {
    if (!scheduler.step()) throw Killed();
}

template <typename T>
class Shared {
  public:
    T load() const {
        step();
        return value_;
    }
    void store(T value) {
        step();
        value_ = value;
    }
    T exchange(T value) {
        step();
        std::swap(value, value_);
        return value;
    }
    T fetch_add(T number) {
        step();
        const T before = value_;
        value_ += number;
        return before;
    }
    T fetch_sub(T number) {
        step();
        const T before = value_;
        value_ -= number;
        return before;
    }

  private:
    T value_;
};

inline void copy_bytes(void* to, const void* from, size_t size) {
    constexpr size_t PIECE = 16;
    for (size_t done = 0; done < size; done += PIECE) {
        step();
        std::memcpy(static_cast<char*>(to) + done, static_cast<const char*>(from) + done,
                    std::min(PIECE, size - done));
    }
}

inline void sleep_on(const Shared<uint32_t>& word, uint32_t seen, int64_t nanoseconds) {
    if (!scheduler.sleep(&word, seen, nanoseconds)) throw Killed();
}

inline void wake_all(const Shared<uint32_t>& word) {
    if (!scheduler.wake(&word)) throw Killed();
}

inline int64_t now() { return scheduler.now(); }

}  // namespace qgraph::rl
