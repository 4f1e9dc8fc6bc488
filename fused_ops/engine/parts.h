#pragma once

// Splits a call over several threads.

#include <algorithm>
#include <cstdint>
#include <functional>

#include "core/parallel.h"

namespace qgraph::engine {

// The work that makes one more thread worthwhile, in elements written or products summed up.
constexpr int64_t kElements = 1 << 15;
constexpr int64_t kProducts = 1 << 18;

// Calls what(begin, end, task) for parts of `count`, on as many threads as the work justifies.
template <typename What>
std::function<void()> in_parts(int most_threads, int64_t count, int64_t work, int64_t grain,
                               What what) {
    const int64_t threads = std::clamp<int64_t>(work / grain, 1, most_threads);
    const int64_t parts = std::min(count, threads);
    return [=] {
        run_tasks(parts, parts, [&](int64_t part) {
            what(count * part / parts, count * (part + 1) / parts, part);
        });
    };
}

}  // namespace qgraph::engine
