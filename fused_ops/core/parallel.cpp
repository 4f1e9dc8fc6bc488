#include "core/parallel.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
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

std::atomic<int> thread_limit{
    static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, kDefaultThreads))};

struct Job {
    const std::function<void(int64_t)>* body;  // lives until all tasks are done
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
        std::unique_lock<std::mutex> lock(mutex);
        finished.wait(lock, [&] { return done.load(std::memory_order_acquire) == tasks; });
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
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            grow(helpers);
            invitations_.insert(invitations_.end(), static_cast<size_t>(helpers), job);
        }
        for (int64_t i = 0; i < helpers; ++i) wake_.notify_one();
    }

    // What nobody has taken up by now is no longer needed.
    void withdraw(const std::shared_ptr<Job>& job) {
        const std::lock_guard<std::mutex> lock(mutex_);
        invitations_.erase(std::remove(invitations_.begin(), invitations_.end(), job),
                           invitations_.end());
    }

    void grow(int64_t helpers) {
        for (; workers_ < helpers; ++workers_) {
            try {
                std::thread([this] { serve(); }).detach();
            } catch (const std::system_error&) {
                return;  // no more threads to be had: the caller does their work
            }
        }
    }

    [[noreturn]] void serve() {
        for (;;) {
            std::shared_ptr<Job> job;
            {
                std::unique_lock<std::mutex> lock(mutex_);
                wake_.wait(lock, [&] { return !invitations_.empty(); });
                job = invitations_.front();
                invitations_.pop_front();
            }
            job->work();
        }
    }

    std::mutex mutex_;
    std::condition_variable wake_;
    std::deque<std::shared_ptr<Job>> invitations_;
    int64_t workers_ = 0;
};

// Never destroyed: its threads sleep in it until the process ends.
Pool* the_pool = nullptr;

Pool& pool() {
    static std::once_flag once;
    std::call_once(once, [] {
        the_pool = new Pool;
        // A forked child has none of the threads, and perhaps a mutex that nobody will unlock.
        pthread_atfork(nullptr, nullptr, [] { the_pool = new Pool; });
    });
    return *the_pool;
}

}  // namespace

void set_threads(int count) { thread_limit = std::max(count, 1); }

int threads() { return thread_limit; }

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
