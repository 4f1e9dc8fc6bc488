#include "core/parallel.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

namespace qgraph {
namespace {

// Every kernel here is bound by memory traffic, which a few cores saturate.
constexpr unsigned kDefaultThreads = 4;

std::atomic<int> thread_limit{
    static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, kDefaultThreads))};

}  // namespace

void set_threads(int count) { thread_limit = std::max(count, 1); }

int threads() { return thread_limit; }

void parallel_ranges(int64_t count, int64_t grain,
                     const std::function<void(int64_t, int64_t, int)>& body) {
    const int64_t parts = std::clamp<int64_t>(count / std::max<int64_t>(grain, 1), 1, threads());
    const auto start = [&](int64_t part) { return count * part / parts; };

    std::vector<std::thread> helpers;
    for (int part = 1; part < parts; ++part) {
        helpers.emplace_back([&, part] { body(start(part), start(part + 1), part); });
    }
    body(start(0), start(1), 0);
    for (std::thread& helper : helpers) helper.join();
}

}  // namespace qgraph
