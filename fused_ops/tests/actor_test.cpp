// Tests of the actor without Python, for the sanitizers. A block with every op gives the same bits
// at each level. A block with damaged bytes is refused, or it runs within its memory.
//
//   actor_test every_op.qga [number of damaged blocks]

#include "actor/actor.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <string>

#include "actor/format.h"
#include "tests/check.h"

namespace {

using namespace qgraph;
using namespace qgraph::actor;

constexpr int64_t kMostWork = 1 << 18;  // a damaged block with more numbers is not run: too slow

// Bytes at a multiple of 64. No memory follows them, so a sanitizer finds reads past the end.
class Bytes {
  public:
    explicit Bytes(const std::vector<char>& from) : size_(static_cast<int64_t>(from.size())) {
        bytes_.reset(static_cast<char*>(std::aligned_alloc(64, from.size())));
        std::memcpy(bytes_.get(), from.data(), from.size());
    }
    char* data() { return bytes_.get(); }
    int64_t size() const { return size_; }

    template <typename T>
    void put(int64_t at, T value) {
        if (at + static_cast<int64_t>(sizeof value) <= size_) {
            std::memcpy(data() + at, &value, sizeof value);
        }
    }

  private:
    struct Free {
        void operator()(char* bytes) const { std::free(bytes); }
    };
    std::unique_ptr<char, Free> bytes_;
    int64_t size_;
};

std::vector<char> read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    CHECK(file.good());
    return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<float> run(Actor& actor, int64_t samples) {
    const Program& program = actor.program();
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    std::vector<float> x(static_cast<size_t>(samples * program.values[0].size())), found;
    for (float& number : x) number = normal(random);
    if (!actor.run(x.data(), samples)) return found;
    for (size_t i = 0; i < program.outputs.size(); ++i) {
        const float* y = actor.output(i);
        found.insert(found.end(), y, y + samples * program.values[program.outputs[i]].size());
    }
    return found;
}

void test_that_all_levels_give_the_same_bits(const std::vector<char>& whole) {
    Bytes block(whole);
    for (const int64_t samples : {1, 3, 20}) {
        Actor plain(block.data(), block.size(), Level::plain);
        const std::vector<float> expected = run(plain, samples);
        CHECK(!expected.empty());
        for (const Level level : engine::kLevels) {
            if (kernels_of(level) == nullptr) continue;
            Actor actor(block.data(), block.size(), level);
            CHECK(same(run(actor, samples), expected));
        }
    }
}

// The sums of the codes of each channel.
std::vector<int32_t> sums_of(Storage storage, int64_t lines, int64_t outputs,
                             const AlignedVector<char>& data) {
    std::vector<int32_t> sums;
    for (int64_t c = 0; c < padded(outputs); ++c) {
        const int64_t panel = c / kPanel * kPanel;
        const int64_t width = std::min<int64_t>(padded(outputs) - panel, kPanel);
        const char* at = data.data() + panel * lines * 4 + c % kPanel * 4;
        int32_t sum = 0;
        for (int64_t i = 0; i < 4 * lines; ++i) {
            const int byte = static_cast<signed char>(at[i / 4 * width * 4 + i % 4]);
            const int low = (byte & 15) - (byte & 8) * 2;
            sum += storage == Storage::int8 ? byte : low + (byte >> 4);
        }
        sums.push_back(sum);
    }
    return sums;
}

// Multiplies numbers of all kinds, in panels of every width. Rows are adjacent or apart.
void test_that_all_levels_multiply_alike(Storage storage, int64_t segments, int64_t length,
                                         int64_t outputs, int64_t samples) {
    std::mt19937 random(static_cast<unsigned>(length * 64 + samples));
    const auto any = [&](auto& numbers, unsigned many) {
        for (auto& number : numbers) number = static_cast<int>(random() % many) - 128;
    };
    constexpr int64_t kSlack = 64;
    const int64_t channels = (outputs + 63) / 64 * 64, row = rows_of(storage, length);
    const std::vector<int64_t> pixels =
        segments > 1 ? std::vector<int64_t>{0, 8, 24} : std::vector<int64_t>{0};
    const int64_t segment = row + 16, sample = (segments * segment + 24 + 63) / 64 * 64;
    AlignedVector<char> x(static_cast<size_t>(samples * sample + 2 * kSlack));
    AlignedVector<char> data(static_cast<size_t>(channels * bytes_of(storage, segments, length)));
    std::vector<float> scale(static_cast<size_t>(channels), 0.01f), bias(scale.size(), -1.0f);
    std::vector<Range> ranges(static_cast<size_t>(samples));
    any(x, 256), any(data, 256);
    std::vector<int32_t> sums =
        sums_of(storage, bytes_of(storage, segments, length) / 4, outputs, data);
    sums.resize(scale.size());
    for (Range& range : ranges) range = {0.25f, 4.0f, static_cast<int32_t>(random() % 256)};
    const int64_t rows = samples * static_cast<int64_t>(pixels.size());

    std::vector<float> expected;
    for (const Level level : engine::kLevels) {
        const Kernels* kernels = kernels_of(level);
        if (kernels == nullptr) continue;
        AlignedVector<char> unpacked(
            static_cast<size_t>(kernels->unpacked(storage, segments * row, rows)));
        std::vector<float> y(static_cast<size_t>(rows * outputs + 16));
        Product product{};
        product.kernel = {storage,     segments,     length,     outputs,
                          data.data(), scale.data(), sums.data()};
        product.bias = bias.data();
        product.activation = Activation::relu;
        product.x = x.data();
        product.sample = sample;
        product.segment = segment;
        product.pixels = pixels.data();
        product.pixel_count = static_cast<int64_t>(pixels.size());
        product.samples = samples;
        product.ranges = ranges.data();
        product.y = y.data();
        product.unpacked = unpacked.empty() ? nullptr : unpacked.data();
        kernels->product(product);
        y.resize(static_cast<size_t>(rows * outputs));
        if (level == Level::plain) expected = y;
        CHECK(same(y, expected));
    }
}

void test_that_all_levels_multiply_alike() {
    for (const Storage storage : {Storage::int8, Storage::int4}) {
        for (const int64_t segments : {1, 3}) {
            for (const int64_t length : {3, 24, 32, 40, 128, 130, 192, 250}) {
                for (const int64_t outputs : {1, 16, 40, 64, 130}) {
                    for (const int64_t samples : {1, 5, 8, 16, 17, 32, 39}) {
                        test_that_all_levels_multiply_alike(storage, segments, length, outputs,
                                                            samples);
                    }
                }
            }
        }
    }
}

void test_that_all_levels_have_the_same_checksum(const std::vector<char>& whole) {
    Bytes block(whole);
    uint64_t recorded;
    std::memcpy(&recorded, block.data() + offsetof(Header, checksum), sizeof recorded);
    for (const Level level : engine::kLevels) {
        if (kernels_of(level) == nullptr) continue;
        CHECK(checksum(block.data(), block.size(), level) == recorded);
    }
}

// A number that code often handles wrongly: powers of two, limits of types and their neighbours.
uint32_t odd_number(std::mt19937& random) {
    const uint32_t many[] = {0,   1,   2,      3,       4,          5,          7,          16,
                             255, 256, 0xffff, 1 << 16, 0x7fffffff, 0x80000000, 0xffffffff, 64};
    return many[random() % 16] + (random() % 4 == 0 ? random() % 64 : 0);
}

void damage(Bytes& block, int64_t tables, std::mt19937& random) {
    const auto within = [&](int64_t size) { return static_cast<int64_t>(random() % size); };
    const int64_t size = random() % 4 == 0 ? block.size() : tables;
    const int64_t at = within(size) / 4 * 4;
    uint32_t there;
    std::memcpy(&there, block.data() + at, sizeof there);
    switch (random() % 5) {
        case 0:
            return block.put(within(size), static_cast<char>(random()));
        case 1:
            return block.put(at, odd_number(random));
        case 2:
            return block.put(at, there + static_cast<uint32_t>(random() % 5) - 2);
        case 3:
            return block.put(at, there ^ (1u << random() % 32));
        default:  // copies one record over another
            const int64_t from = within(tables) / 32 * 32, to = within(tables) / 32 * 32;
            const int64_t length = std::min<int64_t>(32 << random() % 2, block.size() - 64);
            std::memmove(block.data() + std::min(to, block.size() - length),
                         block.data() + std::min(from, block.size() - length),
                         static_cast<size_t>(length));
    }
}

void test_damaged_blocks(const std::vector<char>& whole, int count) {
    Bytes first(whole);
    const int64_t tables = parse(first.data(), first.size()).tables;
    std::vector<Level> levels;
    for (const Level level : engine::kLevels) {
        if (kernels_of(level) != nullptr) levels.push_back(level);
    }
    int ran = 0;
    for (int seed = 0; seed < count; ++seed) {
        std::mt19937 random(static_cast<unsigned>(seed));
        std::vector<char> bytes = whole;
        if (random() % 16 == 0) bytes.resize(bytes.size() / 64 * 32 / 64 * 64);
        Bytes block(bytes);
        for (unsigned i = 0; i < 1 + random() % 3; ++i) damage(block, tables, random);
        block.put(offsetof(Header, size), static_cast<uint64_t>(block.size()));
        const Level level = levels[static_cast<size_t>(seed) % levels.size()];
        try {
            const Program program = parse(block.data(), block.size());
            int64_t work = 0;
            for (const Shape& shape : program.values) work += shape.size();
            if (work > kMostWork) continue;
            Actor actor(block.data(), block.size(), level);
            run(actor, 1 + seed % 5);
            ++ran;
        } catch (const Refusal&) {
        }
    }
    std::printf("actor: %d of %d damaged blocks could be run\n", ran, count);
    CHECK(ran > 0 && ran < count);
}

}  // namespace

int main(int count, char** arguments) {
    CHECK(count > 1);
    const std::vector<char> whole = read(arguments[1]);
    test_that_all_levels_give_the_same_bits(whole);
    test_that_all_levels_multiply_alike();
    test_that_all_levels_have_the_same_checksum(whole);
    test_damaged_blocks(whole, count > 2 ? std::atoi(arguments[2]) : 10000);
    std::puts("actor: all tests passed");
}
