#pragma once

#include <atomic>
#include <cstdint>

namespace qgraph::rl {

static_assert(std::atomic<uint64_t>::is_always_lock_free, "processes share these");

// Lets a process sleep until another one has changed something. It is in shared memory. A process
// that is killed while it uses it leaves nothing locked: at worst one `ring` wakes no thread.
//
//     waiting process                     other process
//         seen = bell.count();                change the state
//         if (nothing yet)                    bell.ring();
//             bell.wait(seen, ...);
struct alignas(64) Bell {
    uint32_t count() const { return rung.load(); }

    void ring() {
        rung.fetch_add(1);
        if (sleepers.exchange(0) != 0) wake();
    }

    // Returns when it has rung since `seen`, the time is over or a signal arrived: check the state
    // again.
    void wait(uint32_t seen, int64_t nanoseconds);

  private:
    void wake();

    std::atomic<uint32_t> rung;
    std::atomic<uint32_t> sleepers;
};

// Nanoseconds of a clock that is the same for all processes of a machine.
int64_t now();

}  // namespace qgraph::rl
