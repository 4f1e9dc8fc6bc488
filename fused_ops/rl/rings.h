#pragma once

#include <cstdint>

#include "rl/bell.h"

namespace qgraph::rl {

// Queues of records of one size from several writers to one reader. Each writer has a ring buffer
// in memory that their processes share. A record is visible only when it is complete, so a process
// that is killed leaves complete records only.
class Rings {
  public:
    static int64_t head_size(int64_t writers);

    // `memory` has head_size bytes, which are zeros for new rings. `records` has writers x capacity
    // records.
    Rings(void* memory, void* records, int64_t writers, int64_t capacity, int64_t record_size);

    // Both return how many of `count` records they have written or read. They never wait.
    int64_t put(int64_t writer, const void* from, int64_t count);
    int64_t take(int64_t writer, void* to, int64_t count);

    // Wait until there is space to write or a record to read. put_waited and take_waited return the
    // nanoseconds that were spent waiting.
    bool wait_free(int64_t writer, int64_t nanoseconds);
    bool wait_filled(int64_t nanoseconds);

    int64_t filled(int64_t writer) const;
    int64_t written(int64_t writer) const;
    int64_t put_waited(int64_t writer) const { return rings_[writer].waited.load(); }
    int64_t take_waited() const { return head_->waited.load(); }

    int64_t writers() const { return writers_; }
    int64_t record_size() const { return record_size_; }

  private:
    struct Head {
        Bell filled;
        Shared<int64_t> waited;
    };
    struct Ring {
        alignas(64) Shared<uint64_t> written;  // only the writer changes it
        Shared<int64_t> waited;
        alignas(64) Shared<uint64_t> taken;  // only the reader changes it
        Bell freed;
    };

    bool any() const;
    char* place(int64_t writer, uint64_t record) const;

    Head* head_;
    Ring* rings_;
    char* records_;
    int64_t writers_;
    int64_t capacity_;
    int64_t record_size_;
};

}  // namespace qgraph::rl
