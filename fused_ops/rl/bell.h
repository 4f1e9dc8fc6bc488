#pragma once

#include <atomic>
#include <cstdint>

namespace qgraph::rl {

static_assert(std::atomic<uint64_t>::is_always_lock_free, "processes share these");

// Wakes who sleeps until another process has done something. It lies in shared memory, and a
// process that is killed at it leaves nothing locked: at worst the next `ring` wakes no thread.
//
//     waiter                              the other
//         seen = bell.count();                changes what is waited for
//         if (nothing yet)                    bell.ring();
//             bell.wait(seen, ...);
struct alignas(64) Bell {
    uint32_t count() const { return rung.load(); }

    void ring() {
        rung.fetch_add(1);
        if (sleepers.exchange(0) != 0) wake();
    }

    // Until it has rung since `seen`, time is over or a signal came: look again what is the case.
    void wait(uint32_t seen, int64_t nanoseconds);

  private:
    void wake();

    std::atomic<uint32_t> rung;
    std::atomic<uint32_t> sleepers;
};

// Nanoseconds of a clock that all processes of a machine read alike.
int64_t now();

}  // namespace qgraph::rl
