#pragma once

#include <cstdint>

#include "engine/kernels/extra_steps.h"
#include "engine/kernels/finish.h"
#include "engine/kernels/kernels.h"

namespace qgraph::engine::kernels {

// The header of a packed layer; offsets are relative to it.
struct Layer {
    Level level;
    Conv conv;
    Map map;
    Finish finish;
    int64_t blocks;  // number of blocks
    int64_t block_table;
    int64_t blocks_in_group;
    int64_t weights;
    int64_t scratch;  // bytes of scratch memory
    // Matrix form: a row of input codes for each pixel, in steps of 4 bytes.
    bool words;     // 16-bit codes, not bytes
    bool direct;    // rows are those of x itself; for a map: all channels have the same stages
    bool split;     // weights of the level are split in halves (Products)
    uint32_t flip;  // xor with each 4 bytes of x gives codes the sign that products need
    int64_t steps;  // steps in a row
    int64_t row;    // bytes between rows
    int64_t rows;   // rows gathered at a time
    int64_t chunk;  // steps added up in words (extra_steps.h); 0: each step is added to 32-bit sums
    int64_t extra_first;  // of each register of sums
    int64_t extra_steps;
    int64_t extra_weights;
    // Depthwise form.
    int64_t taps;       // bytes of weights per channel, padded to a multiple of 4
    bool columns;       // 3x3 in order of columns: three taps and one of padding
    int64_t tap_table;  // bytes of each tap from the window's corner

    const char* at(int64_t offset) const { return reinterpret_cast<const char*>(this) + offset; }
    const Block* block(int64_t i) const {
        return reinterpret_cast<const Block*>(at(block_table)) + i;
    }
};

// How a level multiplies. Layers are packed accordingly.
struct Products {
    PairForm pairs;     // of bytes that are multiplied two at a time; kNoPairs if they are not
    bool signed_codes;  // codes of bytes are made signed, not unsigned
    // A register of weights has four bytes for each sum: four codes, or two words. They are next to
    // each other, or split in halves: the first two bytes of all sums, then the last two.
    bool split_bytes;
    bool split_words;
};
constexpr Products kAdjacentPairs{kUnsignedPairs, false, false, false};

// The kernels of a level. `part` is clipped to the size of the output.
struct Kernels {
    int lanes;
    int rows;  // rows of a tile
    Products products;
    void (*matrix)(const Layer& layer, const char* x, char* y, const Part& part, char* scratch);
    void (*depthwise)(const Layer& layer, const char* x, char* y, const Part& part, char* scratch);
    void (*map)(const Layer& layer, const char* a, const char* b, char* y, int64_t rows);
    void (*max_pool)(const Pool& pool, const char* x, char* y, int64_t begin, int64_t end);
};

// Each returns null if this build does not contain it.
const Kernels* plain_kernels();
const Kernels* avx2_kernels();
const Kernels* avx512vnni_kernels();
const Kernels* neon_kernels();
const Kernels* neon_dotprod_kernels();

// Null if this CPU does not support the level.
const Kernels* kernels_of(Level level);

using LookUp = void (*)(const uint8_t* x, const uint8_t* table, uint8_t* y, int64_t count);
LookUp vbmi_look_up();  // null if not compiled in; some CPUs with AVX-512 VNNI lack VBMI
LookUp neon_look_up();  // null if not compiled in

constexpr int kTileRows = 16;  // most rows of sums in a tile

}  // namespace qgraph::engine::kernels
