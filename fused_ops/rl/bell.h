#pragma once

#include <atomic>
#include <cstdint>

namespace qgraph::rl {

static_assert(std::atomic<uint64_t>::is_always_lock_free, "processes cannot share a lock");

// Lets a process sleep until another process has changed something. A bell is in shared memory. A
// process that is killed while it uses a bell leaves nothing locked: at worst one `ring` wakes no
// thread.
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

    // Returns when the bell has rung since `seen`, the time is over or a signal has arrived. The
    // caller then checks the state again.
    void wait(uint32_t seen, int64_t nanoseconds);

  private:
    void wake();

    std::atomic<uint32_t> rung;
    std::atomic<uint32_t> sleepers;
};

// The time in nanoseconds, by a clock that all processes of a machine share.
int64_t now();

}  // namespace qgraph::rl
