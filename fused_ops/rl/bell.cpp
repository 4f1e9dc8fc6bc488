#include "rl/bell.h"

namespace qgraph::rl {

void Bell::ring() {
    rung.fetch_add(1);
    if (sleepers.load() != 0) wake_all(rung);
}

void Bell::wait(uint32_t seen, int64_t nanoseconds) {
    sleepers.fetch_add(1);
    if (rung.load() == seen && nanoseconds > 0) sleep_on(rung, seen, nanoseconds);
    sleepers.fetch_sub(1);
}

}  // namespace qgraph::rl
