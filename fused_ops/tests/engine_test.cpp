// Tests of the engine without Python, for the sanitizers. A file with every op runs. A file with
// damaged bytes and a correct checksum is refused, or it runs within its memory.
//
//   engine_test every_op.qgi [number of damaged files]

#include "engine/engine.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <string>

#include "engine/format.h"
#include "tests/check.h"

namespace {

using namespace qgraph;
using namespace qgraph::engine;
using Bytes = std::vector<char>;

constexpr int64_t kMemory = int64_t{1} << 26;

Bytes read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    CHECK(file.good());
    return {std::istreambuf_iterator<char>(file), {}};
}

void write(const std::string& path, const Bytes& bytes) {
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

template <typename T>
void put(Bytes& bytes, size_t at, T value) {
    if (at + sizeof value <= bytes.size()) std::memcpy(&bytes[at], &value, sizeof value);
}

// Gives a damaged file the header of an undamaged one: the right size and checksum.
void repair(Bytes& bytes) {
    put<uint64_t>(bytes, 16, bytes.size());
    put<uint32_t>(bytes, 12, 0);
    put(bytes, 12, crc32(0, bytes.data(), bytes.size()));
}

std::vector<Bytes> run(Engine& engine, int64_t samples, unsigned seed) {
    const Network& network = engine.network();
    std::mt19937 random(seed);
    std::vector<Bytes> entries, results;
    std::vector<const void*> given;
    std::vector<void*> buffers;
    const auto bytes_of = [&](uint32_t tensor) {
        return static_cast<size_t>(product(network.shape(tensor, samples)) *
                                   size_of(network.tensors[tensor].storage));
    };
    for (const uint32_t entry : network.entries) {
        const Tensor& tensor = network.tensors[entry];
        entries.emplace_back(bytes_of(entry));
        std::uniform_int_distribution<int64_t> code(tensor.low, tensor.high);
        with_type(tensor.storage, [&](auto type) {
            for (size_t i = 0; i < entries.back().size(); i += sizeof type) {
                put(entries.back(), i, static_cast<decltype(type)>(code(random)));
            }
        });
    }
    for (const uint32_t exit : network.exits) results.emplace_back(bytes_of(exit));
    for (const Bytes& entry : entries) given.push_back(entry.data());
    for (Bytes& result : results) buffers.push_back(result.data());
    engine.run(samples, given, network.exits, buffers);
    return results;
}

void test_that_nothing_changes_a_code(const std::string& path) {
    Engine plain(path, {1, Level::plain, false, kMemory});
    for (const Level level : kLevels) {
        if (!supports(level)) continue;
        for (const int threads : {1, 2, 3}) {
            for (const bool fuse : {false, true}) {
                Engine engine(path, {threads, level, fuse, kMemory});
                for (const int64_t samples : {1, 4}) {
                    CHECK(run(engine, samples, 5) == run(plain, samples, 5));
                }
            }
        }
    }
}

void test_that_memory_has_a_limit(const std::string& path) {
    Engine engine(path, {1, Level::plain, true, 1 << 20});
    try {
        run(engine, 10000, 0);
    } catch (const LoadFailure&) {
        return;
    }
    CHECK(false);
}

// A number that code often handles wrongly: powers of two, limits of types and their neighbours.
uint64_t odd_number(std::mt19937& random) {
    const uint64_t many[] = {0,          1,          2,          3,
                             7,          8,          255,        256,
                             0x7fffffff, 0x80000000, 0xffffffff, 0x7fffffffffffffff,
                             ~0ull,      1ull << 53, 1ull << 40, 0x8000000000000000};
    return many[random() % 16] + (random() % 4 == 0 ? random() % 64 : 0);
}

void damage(Bytes& bytes, std::mt19937& random) {
    const size_t size = bytes.size();
    const size_t tables =
        random() % 4 == 0 ? size : size * 2 / 3;  // mostly in tables, not in weights
    switch (random() % 8) {
        case 0:
            bytes[random() % size] = static_cast<char>(random());
            break;
        case 1:
            bytes[random() % tables] ^= static_cast<char>(1 << random() % 8);
            break;
        case 2:
            put(bytes, random() % tables / 4 * 4, static_cast<uint32_t>(odd_number(random)));
            break;
        case 3:
            put(bytes, random() % tables / 8 * 8, odd_number(random));
            break;
        case 4: {  // changes a number by one or two
            const size_t at = random() % tables / 4 * 4;
            uint32_t value = 0;
            if (at + 4 <= size) std::memcpy(&value, &bytes[at], 4);
            put(bytes, at, value + (random() % 5) - 2);
            break;
        }
        case 5: {  // copies one record over another
            const size_t length = 1 + random() % 96, from = random() % size, to = random() % size;
            for (size_t i = 0; i < length && from + i < size && to + i < size; ++i) {
                bytes[to + i] = bytes[from + i];
            }
            break;
        }
        case 6:
            bytes.resize(random() % 8 == 0 ? random() % size + 1 : size);
            break;
        case 7:  // changes a count in the header
            put(bytes, 24 + random() % 8 * 4, static_cast<uint32_t>(odd_number(random)));
            break;
    }
}

void test_damaged_files(const std::string& path, int count) {
    const Bytes whole = read(path);
    const std::string place = "/tmp/qgraph_engine_test." + std::to_string(getpid()) + ".qgi";
    int opened = 0;
    for (int seed = 0; seed < count; ++seed) {
        std::mt19937 random(static_cast<unsigned>(seed));
        Bytes bytes = whole;
        for (unsigned i = 0; i < 1 + random() % 3; ++i) damage(bytes, random);
        repair(bytes);
        write(place, bytes);
        try {
            Engine engine(place, {1 + seed % 2, best_level(), seed % 3 > 0, kMemory});
            run(engine, 1, 1);
            if (engine.network().batch_free) run(engine, 2, 1);
            ++opened;
        } catch (const LoadFailure&) {
        }
    }
    std::remove(place.c_str());
    std::printf("engine: %d of %d damaged files could be run\n", opened, count);
    CHECK(opened > 0 && opened < count);
}

void test_a_checksum_that_is_wrong(const std::string& path) {
    Bytes bytes = read(path);
    bytes[bytes.size() / 2] ^= 1;
    try {
        parse(bytes.data(), bytes.size());
    } catch (const LoadFailure& failure) {
        CHECK(std::string(failure.what()).find("checksum") != std::string::npos);
        return;
    }
    CHECK(false);
}

}  // namespace

int main(int count, char** arguments) {
    CHECK(count > 1);
    const std::string path = arguments[1];
    test_that_nothing_changes_a_code(path);
    test_that_memory_has_a_limit(path);
    test_a_checksum_that_is_wrong(path);
    test_damaged_files(path, count > 2 ? std::atoi(arguments[2]) : 3000);
    std::puts("engine: all tests passed");
}
