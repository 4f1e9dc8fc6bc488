#pragma once

// The file format of the engine: little-endian, with the following sections, each aligned to 64
// bytes.
//
//   header
//   tensors     TensorRecord
//   steps       StepRecord
//   indices     uint32: the entries, the exits, then the inputs of each step
//   numbers     int64: the attributes of each step, in order
//   names       UTF-8
//   constants   each at a multiple of 64
//
// qgraph/backends/engine/file.py writes it and lists the numbers of each op.

#include <cstdint>

namespace qgraph::engine {

constexpr char kMagic[8] = {'\x89', 'Q', 'G', 'I', '\r', '\n', '\x1a', '\n'};
constexpr uint32_t kVersion = 1;
constexpr uint64_t kAlignment = 64;
constexpr uint32_t kBatchFree = 1;

struct Header {
    char magic[8];
    uint32_t version;
    uint32_t checksum;  // CRC-32 (that of zlib) of the file, with 0 in this place
    uint64_t size;      // of the file
    uint32_t flags;
    uint32_t tensors;
    uint32_t steps;
    uint32_t entries;
    uint32_t exits;
    uint32_t indices;
    uint32_t numbers;
    uint32_t names;  // bytes
    uint32_t reserved[2];
};
static_assert(sizeof(Header) == 64);

struct TensorRecord {
    uint32_t name;  // where its name begins in `names`
    uint32_t name_size;
    uint8_t storage;
    uint8_t kind;
    uint8_t rank;
    uint8_t reserved[5];
    int64_t low;
    int64_t high;
    int64_t magnitude;
    uint64_t data;  // position of a constant in the file; else 0
    uint32_t shape[8];
};
static_assert(sizeof(TensorRecord) == 80);

struct StepRecord {
    uint32_t op;
    uint32_t output;
    uint32_t inputs;  // number of indices that are inputs
    uint32_t numbers;
};
static_assert(sizeof(StepRecord) == 16);

// CRC-32 as in zlib. To compute it in parts, pass the previous result; begin with 0.
uint32_t crc32(uint32_t crc, const void* bytes, uint64_t size);

}  // namespace qgraph::engine
