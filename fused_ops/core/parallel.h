#pragma once

#include <cstdint>
#include <functional>

// Compiles a function for several instruction sets; the loader picks the best that the CPU
// supports.
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__linux__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define QGRAPH_DISPATCH __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define QGRAPH_DISPATCH
#endif

namespace qgraph {

// Upper bound on the threads a kernel may use; at least 1. Results never depend on it.
void set_threads(int count);
int threads();

// From now on kernels that the calling thread starts use no other thread. For threads that share
// the CPUs already.
void stay_on_calling_thread();

// Calls body(task) once for each task in [0, tasks), on at most `wanted` threads (never more than
// threads()), and returns when all are done. Threads claim tasks one by one. The caller is one of
// them and never waits for a thread that has not begun, so a busy machine does not delay it.
void parallel_tasks(int64_t tasks, int64_t wanted, const std::function<void(int64_t task)>& body);

// The same on at most `wanted` threads, even if that exceeds threads().
void run_tasks(int64_t tasks, int64_t wanted, const std::function<void(int64_t task)>& body);

// Calls body(begin, end, part) on disjoint ranges that cover [0, count), one per part, and
// returns when all are done. Each part gets at least `grain` items, so small inputs stay on the
// calling thread; parts are numbered from 0 and there are never more than threads() of them.
void parallel_ranges(int64_t count, int64_t grain,
                     const std::function<void(int64_t begin, int64_t end, int part)>& body);

}  // namespace qgraph
