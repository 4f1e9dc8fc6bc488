#pragma once

#include <cstdint>

#include "rl/bell.h"

namespace qgraph::rl {

// Passes blocks of one size from one writer to several readers, in memory that their processes
// share.
//
// The writer fills a buffer that nothing reads and publishes it by one store to `latest`. A reader
// writes the buffer's number into one of its two slots, and then checks that the buffer is still
// the latest. If so, the writer sees the slot before it takes the next buffer. Neither ever waits
// for the other. There are two buffers for each reader and two more, so one is always free.
//
// A faulty process may have written to the memory, so the number of a buffer is checked before use.
class Channel {
  public:
    // The number of bytes before the buffers, and the number of buffers.
    static int64_t head_size(int64_t readers);
    static int64_t buffers(int64_t readers) { return 2 * readers + 2; }

    // `memory` has head_size bytes, which are zeros for a new channel.
    Channel(void* memory, int64_t readers);

    // -- the writer ---------------------------------------------------------------------------
    int64_t free_buffer() const;                    // a buffer that nothing reads
    bool publish(int64_t buffer, int64_t version);  // false unless the version is later
    bool asked();                                   // true if a reader asked since the last call
    bool wait_asked(int64_t nanoseconds) const;     // does not reset `asked`

    // -- a reader -----------------------------------------------------------------------------
    struct Found {
        int64_t buffer;  // -1: nothing newer than `version`
        int64_t version;
    };
    Found claim(int64_t reader, int64_t slot, int64_t newer_than);
    void release(int64_t reader, int64_t slot);
    void ask();
    bool wait(int64_t version, int64_t nanoseconds);  // until this or a later version is published

    int64_t version() const;  // the latest; -1 before the first

  private:
    struct Head {
        // The number of publications * 2^16 + buffer, which never repeats. 0 before the first.
        alignas(64) Shared<uint64_t> latest;
        alignas(64) Shared<uint64_t> asked;
        Shared<uint64_t> answered;
        Bell published;
        Bell asking;
    };
    struct alignas(64) Slots {
        Shared<uint32_t> held[2];  // buffer + 1, or 0 for an empty slot
    };
    struct alignas(64) Buffer {
        Shared<int64_t> version;
    };

    bool held(uint32_t buffer) const;
    uint32_t buffer_of(uint64_t latest) const;

    Head* head_;
    Slots* slots_;
    Buffer* buffers_;
    int64_t readers_;
};

}  // namespace qgraph::rl
