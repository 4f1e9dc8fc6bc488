#pragma once

#include <cstdint>

#include "engine/kernels/finish.h"
#include "engine/kernels/kernels.h"

namespace qgraph::engine::kernels {

// Where what has been packed begins: offsets are from here.
struct Layer {
    Level level;
    Conv conv;
    Map map;
    Finish finish;
    int64_t blocks;  // how many
    int64_t block_table;
    int64_t blocks_in_group;
    int64_t weights;
    int64_t scratch;  // bytes
    // Matrix form: a row of input codes for each pixel, in steps of 4 bytes.
    bool words;     // 16-bit codes, not bytes
    bool direct;    // rows are those of x itself; of a map: all channels are treated alike
    uint32_t flip;  // xor to each 4 bytes of x, which makes codes unsigned bytes or signed words
    int64_t steps;  // in a row
    int64_t row;    // bytes from row to row
    int64_t rows;   // that are gathered at a time
    int64_t chunk;  // steps that are added up in words (mends.h); 0: in sums, one by one
    int64_t mends;  // the first of each register of sums, their steps, and their weights
    int64_t mend_steps;
    int64_t mend_weights;
    // Depthwise form.
    int64_t taps;       // bytes of weights of a channel: a multiple of 4, the last to fill up
    bool columns;       // 3x3, in order of columns, three taps and one to fill up
    int64_t tap_table;  // bytes of each tap from the window's corner

    const char* at(int64_t offset) const { return reinterpret_cast<const char*>(this) + offset; }
    const Block* block(int64_t i) const {
        return reinterpret_cast<const Block*>(at(block_table)) + i;
    }
};

// What a level has. `part` is clipped to what there is.
struct Kernels {
    int lanes;
    int rows;    // of a tile
    bool pairs;  // bytes are multiplied two at a time
    void (*matrix)(const Layer& layer, const char* x, char* y, const Part& part, char* scratch);
    void (*depthwise)(const Layer& layer, const char* x, char* y, const Part& part, char* scratch);
    void (*map)(const Layer& layer, const char* a, const char* b, char* y, int64_t rows);
    void (*max_pool)(const Pool& pool, const char* x, char* y, int64_t begin, int64_t end);
};

// Each is null where it isn't compiled in.
const Kernels* plain_kernels();
const Kernels* avx2_kernels();
const Kernels* avx512vnni_kernels();

// Null where this CPU has no such level.
const Kernels* kernels_of(Level level);

using LookUp = void (*)(const uint8_t* x, const uint8_t* table, uint8_t* y, int64_t count);
LookUp vbmi_look_up();  // null where it isn't compiled in; not all with AVX-512 VNNI have it

constexpr int kTileRows = 16;  // of sums, at most

}  // namespace qgraph::engine::kernels
