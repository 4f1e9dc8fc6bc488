#include "rl/bell.h"

namespace qgraph::rl {

void Bell::ring() {
    rung.fetch_add(1);
    if (sleepers.exchange(0) != 0) wake_all(rung);
}

void Bell::wait(uint32_t seen, int64_t nanoseconds) {
    sleepers.store(1);
    if (rung.load() != seen || nanoseconds <= 0) return;
    sleep_on(rung, seen, nanoseconds);
}

}  // namespace qgraph::rl
