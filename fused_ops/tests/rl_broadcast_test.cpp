#include <atomic>
#include <thread>
#include <vector>

#include "rl/channel.h"
#include "rl/rings.h"
#include "tests/check.h"

namespace qgraph {

namespace {

using namespace rl;

// Memory that begins at a page and is zero.
struct Memory {
    explicit Memory(int64_t size) : bytes(static_cast<size_t>(size) + 4096) {}
    char* data() {
        const auto address = reinterpret_cast<uintptr_t>(bytes.data());
        return bytes.data() + (4096 - address % 4096) % 4096;
    }
    std::vector<char> bytes;
};

// All numbers of a block equal its version, so a block that mixes two versions is found.
// ThreadSanitizer finds races.
void test_readers_beside_a_writer() {
    constexpr int64_t READERS = 3, NUMBERS = 2000, VERSIONS = 3000;
    Memory memory(Channel::head_size(READERS));
    Channel channel(memory.data(), READERS);
    std::vector<std::vector<int64_t>> buffers(static_cast<size_t>(Channel::buffers(READERS)),
                                              std::vector<int64_t>(static_cast<size_t>(NUMBERS)));
    const auto read = [&](int64_t reader) {
        int64_t version = -1, slot = 0;
        while (version < VERSIONS - 1) {
            const Channel::Found found = channel.claim(reader, 1 - slot, version);
            if (found.buffer < 0) {
                channel.wait(version + 1, 1000000);
                continue;
            }
            CHECK(found.version > version);
            channel.release(reader, slot);
            slot = 1 - slot;
            version = found.version;
            for (int64_t number : buffers[static_cast<size_t>(found.buffer)]) {
                CHECK(number == version);
            }
        }
    };
    std::vector<std::thread> threads;
    for (int64_t reader = 0; reader < READERS; ++reader) threads.emplace_back(read, reader);
    for (int64_t version = 0; version < VERSIONS; ++version) {
        const int64_t buffer = channel.free_buffer();
        CHECK(buffer >= 0);
        for (int64_t& number : buffers[static_cast<size_t>(buffer)]) number = version;
        CHECK(channel.publish(buffer, version));
        CHECK(!channel.publish(buffer, version));
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(channel.version() == VERSIONS - 1);
}

void test_rings() {
    constexpr int64_t WRITERS = 2, CAPACITY = 7, RECORDS = 21000;
    struct Record {
        int64_t count[3];
    };
    const int64_t head = Rings::head_size(WRITERS);
    Memory memory(head + WRITERS * CAPACITY * static_cast<int64_t>(sizeof(Record)));
    Rings rings(memory.data(), memory.data() + head, WRITERS, CAPACITY, sizeof(Record));
    const auto write = [&](int64_t writer) {
        for (int64_t count = 0; count < RECORDS;) {
            Record records[3];
            for (Record& record : records) {
                for (int64_t& number : record.count) number = count;
                ++count;
            }
            for (int64_t done = 0; done < 3;) {
                done += rings.put(writer, records + done, 3 - done);
                if (done < 3) rings.wait_free(writer, 1000000);
            }
        }
    };
    std::vector<std::thread> threads;
    for (int64_t writer = 0; writer < WRITERS; ++writer) threads.emplace_back(write, writer);
    std::vector<int64_t> expected(WRITERS);
    while (expected[0] < RECORDS || expected[1] < RECORDS) {
        rings.wait_filled(1000000);
        for (int64_t writer = 0; writer < WRITERS; ++writer) {
            Record records[5];
            const int64_t found = rings.take(writer, records, 5);
            for (int64_t i = 0; i < found; ++i) {
                for (int64_t number : records[i].count) {
                    CHECK(number == expected[static_cast<size_t>(writer)]);
                }
                ++expected[static_cast<size_t>(writer)];
            }
        }
    }
    for (std::thread& thread : threads) thread.join();
}

// Whatever another process has written there, reads and writes stay within the memory.
void test_damaged_memory() {
    for (unsigned seed = 1; seed < 300; ++seed) {
        constexpr int64_t READERS = 2, CAPACITY = 5, RECORD = 8;
        Memory memory(Channel::head_size(READERS) + Rings::head_size(1) + CAPACITY * RECORD);
        std::srand(seed);
        for (char& byte : memory.bytes) byte = static_cast<char>(std::rand());
        Channel channel(memory.data(), READERS);
        const Channel::Found found = channel.claim(1, 0, -1);
        CHECK(found.buffer >= -1 && found.buffer < Channel::buffers(READERS));
        const int64_t buffer = channel.free_buffer();
        CHECK(buffer >= -1 && buffer < Channel::buffers(READERS));
        channel.version();
        char* head = memory.data() + Channel::head_size(READERS);
        Rings rings(head, head + Rings::head_size(1), 1, CAPACITY, RECORD);
        char records[CAPACITY * RECORD] = {};
        CHECK(rings.take(0, records, CAPACITY) <= CAPACITY);
        CHECK(rings.put(0, records, CAPACITY) <= CAPACITY);
    }
}

}  // namespace

void test_broadcast() {
    test_readers_beside_a_writer();
    test_rings();
    test_damaged_memory();
}

}  // namespace qgraph
