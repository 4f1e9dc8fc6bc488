#include "core/parallel.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>

namespace qgraph {
namespace {

// Every kernel here is bound by memory traffic, which a few cores saturate.
constexpr unsigned kDefaultThreads = 4;

thread_local bool alone = false;

std::atomic<int> thread_limit{
    static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, kDefaultThreads))};

// How long a thread polls for work, or for the end of it, before it sleeps. Waking a thread takes
// as long as a small layer, and the next layer usually follows at once.
constexpr std::chrono::microseconds kAwake{50};
constexpr int kLooks = 32;  // polls between two readings of the clock

// Polls `there` for kAwake; true if it became true.
template <typename There>
bool seen_soon(There there) {
    const auto end = std::chrono::steady_clock::now() + kAwake;
    do {
        for (int i = 0; i < kLooks; ++i) {
            if (there()) return true;
#if defined(__x86_64__)
            __builtin_ia32_pause();
#endif
        }
    } while (std::chrono::steady_clock::now() < end);
    return false;
}

struct Job {
    const std::function<void(int64_t)>* body;  // valid until all tasks are done
    int64_t tasks;
    std::atomic<int64_t> claimed{0};
    std::atomic<int64_t> done{0};
    std::mutex mutex;
    std::condition_variable finished;

    void work() {
        for (;;) {
            const int64_t task = claimed.fetch_add(1, std::memory_order_relaxed);
            if (task >= tasks) return;
            (*body)(task);
            if (done.fetch_add(1, std::memory_order_acq_rel) + 1 == tasks) {
                const std::lock_guard<std::mutex> lock(mutex);
                finished.notify_all();
            }
        }
    }

    void wait() {
        const auto all = [&] { return done.load(std::memory_order_acquire) == tasks; };
        if (seen_soon(all)) return;
        std::unique_lock<std::mutex> lock(mutex);
        finished.wait(lock, all);
    }
};

class Pool {
  public:
    void run(int64_t tasks, int64_t helpers, const std::function<void(int64_t)>& body) {
        const auto job = std::make_shared<Job>();
        job->body = &body;
        job->tasks = tasks;
        invite(job, helpers);
        job->work();
        withdraw(job);
        job->wait();
    }

  private:
    void invite(const std::shared_ptr<Job>& job, int64_t helpers) {
        int64_t to_wake = 0;
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            grow(helpers);
            invitations_.insert(invitations_.end(), static_cast<size_t>(helpers), job);
            open_.store(invitations_.size(), std::memory_order_release);
            to_wake = std::min(helpers, asleep_);
        }
        for (int64_t i = 0; i < to_wake; ++i) wake_.notify_one();
    }

    // Removes the invitations that no thread has accepted: they are no longer needed.
    void withdraw(const std::shared_ptr<Job>& job) {
        const std::lock_guard<std::mutex> lock(mutex_);
        invitations_.erase(std::remove(invitations_.begin(), invitations_.end(), job),
                           invitations_.end());
        open_.store(invitations_.size(), std::memory_order_release);
    }

    void grow(int64_t helpers) {
        for (; workers_ < helpers; ++workers_) {
            try {
                std::thread([this] { serve(); }).detach();
            } catch (const std::system_error&) {
                return;  // the system allows no more threads: the caller does their work
            }
        }
    }

    [[noreturn]] void serve() {
        for (;;) {
            seen_soon([this] { return open_.load(std::memory_order_acquire) > 0; });
            next_job()->work();
        }
    }

    std::shared_ptr<Job> next_job() {
        std::unique_lock<std::mutex> lock(mutex_);
        ++asleep_;
        wake_.wait(lock, [&] { return !invitations_.empty(); });
        --asleep_;
        const std::shared_ptr<Job> job = invitations_.front();
        invitations_.pop_front();
        open_.store(invitations_.size(), std::memory_order_release);
        return job;
    }

    std::mutex mutex_;
    std::condition_variable wake_;
    std::deque<std::shared_ptr<Job>> invitations_;
    std::atomic<size_t> open_{0};  // the number of invitations
    int64_t asleep_ = 0;
    int64_t workers_ = 0;
};

// Never destroyed, since its threads sleep in it until the process ends.
Pool* the_pool = nullptr;

Pool& pool() {
    static std::once_flag once;
    std::call_once(once, [] {
        the_pool = new Pool;
        // A forked child has none of the threads, and its mutex may stay locked for ever.
        pthread_atfork(nullptr, nullptr, [] { the_pool = new Pool; });
    });
    return *the_pool;
}

}  // namespace

void set_threads(int count) { thread_limit = std::max(count, 1); }

void stay_on_calling_thread() { alone = true; }

int threads() { return alone ? 1 : thread_limit.load(); }

void parallel_tasks(int64_t tasks, int64_t wanted, const std::function<void(int64_t)>& body) {
    run_tasks(tasks, std::min<int64_t>(wanted, threads()), body);
}

void run_tasks(int64_t tasks, int64_t wanted, const std::function<void(int64_t)>& body) {
    const int64_t helpers = std::min(tasks, wanted) - 1;
    if (helpers > 0) {
        pool().run(tasks, helpers, body);
        return;
    }
    for (int64_t task = 0; task < tasks; ++task) body(task);
}

void parallel_ranges(int64_t count, int64_t grain,
                     const std::function<void(int64_t, int64_t, int)>& body) {
    const int64_t parts = std::clamp<int64_t>(count / std::max<int64_t>(grain, 1), 1, threads());
    const auto start = [&](int64_t part) { return count * part / parts; };
    parallel_tasks(parts, parts, [&](int64_t part) {
        body(start(part), start(part + 1), static_cast<int>(part));
    });
}

}  // namespace qgraph
