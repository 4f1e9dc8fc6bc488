// The functions of qgraph._native.broadcast on the simulated machine, for ctypes. They return
// KILLED in a process that was killed.
#include "rl/channel.h"
#include "rl/rings.h"

namespace qgraph::rl {

Scheduler scheduler;

namespace {
constexpr int64_t KILLED = INT64_MIN;

template <typename F>
int64_t living(F f) {
    try {
        return static_cast<int64_t>(f());
    } catch (const Killed&) {
        return KILLED;
    }
}

template <typename F>
int64_t done(F f) {
    return living([&] {
        f();
        return 0;
    });
}

Rings rings(char* memory, int64_t writers, int64_t capacity, int64_t record_size) {
    return Rings(memory, memory + Rings::head_size(writers), writers, capacity, record_size);
}
}  // namespace

}  // namespace qgraph::rl

using namespace qgraph::rl;

extern "C" {

void simulate(Scheduler given) { scheduler = given; }

int64_t channel_head(int64_t readers) { return Channel::head_size(readers); }
int64_t channel_buffers(int64_t readers) { return Channel::buffers(readers); }
int64_t rings_head(int64_t writers) { return Rings::head_size(writers); }

int64_t channel_room(void* memory, int64_t readers) {
    return living([&] { return Channel(memory, readers).free_buffer(); });
}
int64_t channel_publish(void* memory, int64_t readers, int64_t buffer, int64_t version) {
    return living([&] { return Channel(memory, readers).publish(buffer, version); });
}
int64_t channel_asked(void* memory, int64_t readers) {
    return living([&] { return Channel(memory, readers).asked(); });
}
int64_t channel_wait_asked(void* memory, int64_t readers, int64_t nanoseconds) {
    return living([&] { return Channel(memory, readers).wait_asked(nanoseconds); });
}
int64_t channel_claim(void* memory, int64_t readers, int64_t reader, int64_t slot,
                      int64_t newer_than, int64_t* version) {
    return living([&] {
        const auto found = Channel(memory, readers).claim(reader, slot, newer_than);
        *version = found.version;
        return found.buffer;
    });
}
int64_t channel_release(void* memory, int64_t readers, int64_t reader, int64_t slot) {
    return done([&] { Channel(memory, readers).release(reader, slot); });
}
int64_t channel_ask(void* memory, int64_t readers) {
    return done([&] { Channel(memory, readers).ask(); });
}
int64_t channel_wait(void* memory, int64_t readers, int64_t version, int64_t nanoseconds) {
    return living([&] { return Channel(memory, readers).wait(version, nanoseconds); });
}
int64_t channel_version(void* memory, int64_t readers) {
    return living([&] { return Channel(memory, readers).version(); });
}

int64_t rings_put(char* memory, int64_t writers, int64_t capacity, int64_t record_size,
                  int64_t writer, const void* from, int64_t count) {
    return living(
        [&] { return rings(memory, writers, capacity, record_size).put(writer, from, count); });
}
int64_t rings_take(char* memory, int64_t writers, int64_t capacity, int64_t record_size,
                   int64_t writer, void* to, int64_t count) {
    return living(
        [&] { return rings(memory, writers, capacity, record_size).take(writer, to, count); });
}
int64_t rings_wait_free(char* memory, int64_t writers, int64_t capacity, int64_t record_size,
                        int64_t writer, int64_t nanoseconds) {
    return living([&] {
        return rings(memory, writers, capacity, record_size).wait_free(writer, nanoseconds);
    });
}
int64_t rings_wait_filled(char* memory, int64_t writers, int64_t capacity, int64_t record_size,
                          int64_t nanoseconds) {
    return living(
        [&] { return rings(memory, writers, capacity, record_size).wait_filled(nanoseconds); });
}
int64_t rings_filled(char* memory, int64_t writers, int64_t capacity, int64_t record_size,
                     int64_t writer) {
    return living([&] { return rings(memory, writers, capacity, record_size).filled(writer); });
}
int64_t rings_written(char* memory, int64_t writers, int64_t capacity, int64_t record_size,
                      int64_t writer) {
    return living([&] { return rings(memory, writers, capacity, record_size).written(writer); });
}
int64_t rings_put_waited(char* memory, int64_t writers, int64_t capacity, int64_t record_size,
                         int64_t writer) {
    return living([&] { return rings(memory, writers, capacity, record_size).put_waited(writer); });
}
int64_t rings_take_waited(char* memory, int64_t writers, int64_t capacity, int64_t record_size) {
    return living([&] { return rings(memory, writers, capacity, record_size).take_waited(); });
}

}  // extern "C"
