#include "rl/bell.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace qgraph::rl {

// The futex calls omit the "private" flag, since several processes wait on the same word.
void Bell::wait(uint32_t seen, int64_t nanoseconds) {
    sleepers.store(1);
    if (rung.load() != seen || nanoseconds <= 0) return;
    const timespec limit{static_cast<time_t>(nanoseconds / 1000000000),
                         static_cast<long>(nanoseconds % 1000000000)};
    syscall(SYS_futex, &rung, FUTEX_WAIT, seen, &limit, nullptr, 0);
}

void Bell::wake() { syscall(SYS_futex, &rung, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0); }

int64_t now() {
    timespec time{};
    clock_gettime(CLOCK_MONOTONIC, &time);
    return static_cast<int64_t>(time.tv_sec) * 1000000000 + time.tv_nsec;
}

}  // namespace qgraph::rl
