#pragma once

#include <atomic>
#include <cstdint>

#include "rl/bell.h"

namespace qgraph::rl {

// Blocks of one size from one writer to several readers, in memory that their processes share.
//
// The writer fills a buffer that is not read and publishes it by one store to `latest`. A reader
// states in one of its two slots which buffer it reads, and looks again whether that is still the
// latest: if so, the writer sees the slot before it next takes a buffer. Neither ever waits for the
// other, and with two buffers for each reader and two more there always is a free one.
//
// What lies in memory was perhaps written by a process that went wrong: numbers of buffers are
// checked before they are used.
class Channel {
  public:
    // Bytes before the buffers, and how many buffers there are.
    static int64_t head_size(int64_t readers);
    static int64_t buffers(int64_t readers) { return 2 * readers + 2; }

    // `memory`: head_size bytes, zeros where the channel is new.
    Channel(void* memory, int64_t readers);

    // -- the writer ---------------------------------------------------------------------------
    int64_t room() const;                           // a buffer that is not read
    bool publish(int64_t buffer, int64_t version);  // false unless the version is a later one
    bool asked();                                   // since the last call
    bool wait_asked(int64_t nanoseconds) const;     // without taking it as answered

    // -- a reader -----------------------------------------------------------------------------
    struct Found {
        int64_t buffer;  // -1: nothing newer than `version`
        int64_t version;
    };
    Found claim(int64_t reader, int64_t slot, int64_t newer_than);
    void release(int64_t reader, int64_t slot);
    void ask();
    bool wait(int64_t version, int64_t nanoseconds);  // until it or a later one is published

    int64_t version() const;  // the latest; -1 before the first

  private:
    struct Head {
        // Publications so far * 2^16 + buffer: never the same twice. 0 before the first.
        alignas(64) std::atomic<uint64_t> latest;
        alignas(64) std::atomic<uint64_t> asked;
        std::atomic<uint64_t> answered;
        Bell published;
        Bell asking;
    };
    struct alignas(64) Slots {
        std::atomic<uint32_t> held[2];  // buffer + 1; 0: none
    };
    struct alignas(64) Buffer {
        std::atomic<int64_t> version;
    };

    bool held(uint32_t buffer) const;
    uint32_t buffer_of(uint64_t latest) const;

    Head* head_;
    Slots* slots_;
    Buffer* buffers_;
    int64_t readers_;
};

}  // namespace qgraph::rl
