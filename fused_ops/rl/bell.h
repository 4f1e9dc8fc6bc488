#pragma once

#include <cstdint>

#include "rl/machine.h"

namespace qgraph::rl {

// Lets a process sleep until another process has changed something. A bell is in shared memory. A
// process that is killed while it uses a bell leaves nothing locked: if it rang, that `ring` may
// wake no thread, but the next one does; if it slept, each later `ring` costs a system call.
//
//     waiting process                     other process
//         seen = bell.count();                change the state
//         if (nothing yet)                    bell.ring();
//             bell.wait(seen, ...);
struct alignas(64) Bell {
    uint32_t count() const { return rung.load(); }

    void ring();

    // Returns when the bell has rung since `seen`, the time is over or a signal has arrived. The
    // caller then checks the state again.
    void wait(uint32_t seen, int64_t nanoseconds);

  private:
    Shared<uint32_t> rung;
    Shared<uint32_t> sleepers;
};

}  // namespace qgraph::rl
