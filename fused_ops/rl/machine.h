#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace qgraph::rl {

// What channel, rings and bell need of the machine: words that processes share, copies of bytes,
// sleep and time. `fused_ops/tests/simulated` has another machine in which every step is chosen.

template <typename T>
using Shared = std::atomic<T>;

static_assert(Shared<uint64_t>::is_always_lock_free, "processes cannot share a lock");

inline void copy_bytes(void* to, const void* from, size_t size) { std::memcpy(to, from, size); }

// Sleeps while `word` equals `seen`, until `wake_all`. It may also return early.
void sleep_on(const Shared<uint32_t>& word, uint32_t seen, int64_t nanoseconds);
void wake_all(const Shared<uint32_t>& word);

// The time in nanoseconds, by a clock that all processes of a machine share.
int64_t now();

}  // namespace qgraph::rl
