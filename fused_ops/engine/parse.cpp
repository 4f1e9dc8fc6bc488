#include <array>
#include <cstring>
#include <string>
#include <unordered_set>

#include "engine/format.h"
#include "engine/network.h"

namespace qgraph::engine {
namespace {

constexpr int64_t kLargest = int64_t{1} << 53;    // of codes and of partial sums
constexpr int64_t kMostBytes = int64_t{1} << 40;  // of one tensor
constexpr uint32_t kMostTensors = 1 << 15;

void require(bool condition, const std::string& what) {
    if (!condition) throw LoadFailure(what);
}

// A section of the file, read item by item.
template <typename T>
class Items {
  public:
    Items(const void* data, uint64_t count) : data_(static_cast<const T*>(data)), left_(count) {}

    const T* take(uint64_t count, const char* what) {
        require(count <= left_, std::string("there are more ") + what + " than the file has");
        const T* taken = data_;
        data_ += count;
        left_ -= count;
        return taken;
    }
    uint64_t left() const { return left_; }

  private:
    const T* data_;
    uint64_t left_;
};

// Reads sections in order. Counts have 32 bits and items at most 80 bytes, so sizes cannot
// overflow.
class Sections {
  public:
    Sections(const void* file, uint64_t size)
        : file_(static_cast<const char*>(file)), size_(size), at_(sizeof(Header)) {}

    template <typename T>
    Items<T> next(uint64_t count, const char* what) {
        const uint64_t begin = at_, bytes = count * sizeof(T);
        require(begin <= size_ && bytes <= size_ - begin,
                std::string("the file ends within its ") + what);
        at_ = (begin + bytes + kAlignment - 1) / kAlignment * kAlignment;
        return {file_ + begin, count};
    }
    uint64_t at() const { return at_; }

  private:
    const char* file_;
    uint64_t size_;
    uint64_t at_;
};

Header checked_header(const void* file, uint64_t size) {
    Header header;
    require(size >= sizeof header, "the file is too short for an engine");
    std::memcpy(&header, file, sizeof header);
    require(std::memcmp(header.magic, kMagic, sizeof kMagic) == 0, "this is not an engine file");
    require(header.version == kVersion, "the file has version " + std::to_string(header.version) +
                                            " of the format, this build reads " +
                                            std::to_string(kVersion));
    require(header.size == size, "the file has " + std::to_string(size) +
                                     " bytes, it should have " + std::to_string(header.size));
    Header blank = header;
    blank.checksum = 0;
    uint32_t crc = crc32(0, &blank, sizeof blank);
    crc = crc32(crc, static_cast<const char*>(file) + sizeof blank, size - sizeof blank);
    require(crc == header.checksum, "the checksum is wrong: the file is damaged");
    require(header.tensors <= kMostTensors, "there are too many tensors");
    require(header.flags <= kBatchFree && header.reserved[0] == 0 && header.reserved[1] == 0,
            "the header has reserved bits that are not 0");
    return header;
}

template <typename T>
void check_codes(const Tensor& tensor, int64_t count) {
    const T* codes = static_cast<const T*>(tensor.data);
    T low = codes[0], high = codes[0];
    for (int64_t i = 0; i < count; ++i) {
        low = codes[i] < low ? codes[i] : low;
        high = codes[i] > high ? codes[i] : high;
    }
    require(static_cast<int64_t>(low) >= tensor.low && static_cast<int64_t>(high) <= tensor.high,
            "constant `" + std::string(tensor.name) + "` leaves its range");
}

Tensor read_tensor(const TensorRecord& record, std::string_view names, const char* file,
                   uint64_t size, uint64_t constants) {
    require(record.name <= names.size() && record.name_size <= names.size() - record.name,
            "a name lies outside the section of names");
    Tensor tensor{};
    tensor.name = names.substr(record.name, record.name_size);
    const auto check = [&](bool condition, const char* what) {
        if (!condition) throw LoadFailure("tensor `" + std::string(tensor.name) + "` " + what);
    };
    for (const uint8_t byte : record.reserved) check(byte == 0, "has reserved bits that are not 0");
    check(record.storage < kStorages, "has an unknown type");
    check(record.kind <= static_cast<uint8_t>(Kind::entry), "has an unknown kind");
    check(record.rank <= kMaxRank, "has too many dimensions");
    tensor.storage = static_cast<Storage>(record.storage);
    tensor.kind = static_cast<Kind>(record.kind);
    tensor.low = record.low;
    tensor.high = record.high;
    tensor.magnitude = record.magnitude;
    check(-kLargest <= tensor.low && tensor.low <= tensor.high && tensor.high <= kLargest &&
              lowest(tensor.storage) <= tensor.low && tensor.high <= highest(tensor.storage),
          "has a range that does not fit its type");
    check(0 <= tensor.magnitude && tensor.magnitude <= kLargest, "has sums that are too large");
    int64_t bytes = size_of(tensor.storage);
    for (int i = 0; i < kMaxRank; ++i) {
        const int64_t dim = record.shape[i];
        if (i >= record.rank) {
            check(dim == 0, "has reserved bits that are not 0");
            continue;
        }
        check(dim >= 1 && dim <= INT32_MAX && dim <= kMostBytes / bytes, "has an impossible shape");
        bytes *= dim;
        tensor.shape.push_back(dim);
    }
    if (tensor.kind == Kind::constant) {
        check(record.data % kAlignment == 0 && record.data >= constants && record.data <= size &&
                  static_cast<uint64_t>(bytes) <= size - record.data,
              "has its constants outside of the file");
        tensor.data = file + record.data;
        with_type(tensor.storage,
                  [&](auto type) { check_codes<decltype(type)>(tensor, product(tensor.shape)); });
    } else {
        check(record.data == 0, "has reserved bits that are not 0");
    }
    return tensor;
}

// Checks that all inputs of a step exist before it runs and that each tensor is computed once.
void check_order(const Network& network) {
    std::vector<bool> there(network.tensors.size());
    for (size_t i = 0; i < there.size(); ++i) {
        there[i] = network.tensors[i].kind != Kind::computed;
    }
    for (const Step& step : network.steps) {
        for (const uint32_t input : step.inputs) {
            require(there[input], "tensor `" + std::string(network.tensors[input].name) +
                                      "` is used before it is computed");
        }
        require(!there[step.output], "tensor `" + std::string(network.tensors[step.output].name) +
                                         "` is computed twice");
        there[step.output] = true;
    }
    for (const uint32_t exit : network.exits) {
        require(there[exit], "no step computes an exit");
    }
}

void check_names(const Network& network) {
    std::unordered_set<std::string_view> seen;
    for (const Tensor& tensor : network.tensors) {
        require(seen.insert(tensor.name).second,
                "two tensors are named `" + std::string(tensor.name) + "`");
    }
}

uint32_t index_of(uint32_t index, const Network& network) {
    require(index < network.tensors.size(), "the index of a tensor is out of range");
    return index;
}

void read_entries(Network& network, const uint32_t* indices, uint32_t count) {
    std::vector<bool> seen(network.tensors.size());
    for (uint32_t i = 0; i < count; ++i) {
        const uint32_t entry = index_of(indices[i], network);
        require(network.tensors[entry].kind == Kind::entry && !seen[entry],
                "an entry is not an entry tensor, or is listed twice");
        seen[entry] = true;
        network.entries.push_back(entry);
    }
    size_t all = 0;
    for (const Tensor& tensor : network.tensors) all += tensor.kind == Kind::entry;
    require(all == count, "an entry is missing");
}

}  // namespace

uint32_t crc32(uint32_t crc, const void* bytes, uint64_t size) {
    static const auto tables = [] {
        std::array<std::array<uint32_t, 256>, 8> made{};
        for (uint32_t i = 0; i < 256; ++i) {
            uint32_t value = i;
            for (int bit = 0; bit < 8; ++bit) value = value >> 1 ^ (value & 1 ? 0xedb88320u : 0);
            made[0][i] = value;
        }
        for (uint32_t i = 0; i < 256; ++i) {
            for (int t = 1; t < 8; ++t) {
                made[t][i] = made[t - 1][i] >> 8 ^ made[0][made[t - 1][i] & 255];
            }
        }
        return made;
    }();
    const auto* at = static_cast<const uint8_t*>(bytes);
    crc = ~crc;
    for (; size >= 8; size -= 8, at += 8) {  // eight bytes per step
        uint64_t word;
        std::memcpy(&word, at, 8);
        word ^= crc;
        crc = 0;
        for (int i = 0; i < 8; ++i) crc ^= tables[7 - i][word >> (8 * i) & 255];
    }
    for (; size > 0; --size, ++at) crc = crc >> 8 ^ tables[0][(crc ^ *at) & 255];
    return ~crc;
}

int64_t product(const Shape& shape) {
    int64_t count = 1;
    for (const int64_t dim : shape) {
        if (dim < 0 || (dim > 0 && count > (int64_t{1} << 48) / dim)) {
            throw LoadFailure("a tensor is too large");
        }
        count *= dim;
    }
    return count;
}

Shape Network::shape(uint32_t tensor, int64_t samples) const {
    Shape found = tensors[tensor].shape;
    if (batch_free && tensors[tensor].kind != Kind::constant) found[0] = samples;
    return found;
}

Network parse(const void* file, uint64_t size) {
    const Header header = checked_header(file, size);
    Sections sections(file, size);
    auto tensors = sections.next<TensorRecord>(header.tensors, "tensors");
    auto steps = sections.next<StepRecord>(header.steps, "steps");
    auto indices = sections.next<uint32_t>(header.indices, "indices");
    auto numbers = sections.next<int64_t>(header.numbers, "numbers");
    auto names = sections.next<char>(header.names, "names");
    const std::string_view all_names(names.take(header.names, "names"), header.names);

    Network network{};
    network.batch_free = header.flags & kBatchFree;
    network.tensors.reserve(header.tensors);
    const TensorRecord* records = tensors.take(header.tensors, "tensors");
    for (uint32_t i = 0; i < header.tensors; ++i) {
        network.tensors.push_back(read_tensor(records[i], all_names, static_cast<const char*>(file),
                                              size, sections.at()));
    }
    check_names(network);
    for (const Tensor& tensor : network.tensors) {
        require(!network.batch_free || tensor.kind == Kind::constant ||
                    (!tensor.shape.empty() && tensor.shape[0] == 1),
                "tensor `" + std::string(tensor.name) + "` has no place for samples");
    }
    read_entries(network, indices.take(header.entries, "indices"), header.entries);
    const uint32_t* exits = indices.take(header.exits, "indices");
    for (uint32_t i = 0; i < header.exits; ++i) {
        network.exits.push_back(index_of(exits[i], network));
    }
    const StepRecord* rows = steps.take(header.steps, "steps");
    network.steps.resize(header.steps);
    std::vector<int64_t> own;
    for (uint32_t i = 0; i < header.steps; ++i) {
        Step& step = network.steps[i];
        require(rows[i].op < kOps, "a step has an unknown op");
        step.op = static_cast<Op>(rows[i].op);
        step.output = index_of(rows[i].output, network);
        const uint32_t* inputs = indices.take(rows[i].inputs, "indices");
        for (uint32_t j = 0; j < rows[i].inputs; ++j) {
            step.inputs.push_back(index_of(inputs[j], network));
        }
        const int64_t* first = numbers.take(rows[i].numbers, "numbers");
        own.assign(first, first + rows[i].numbers);
        read_attributes(step, own, network);
    }
    require(indices.left() == 0 && numbers.left() == 0, "the file has numbers that no step uses");
    check_order(network);
    return network;
}

}  // namespace qgraph::engine
