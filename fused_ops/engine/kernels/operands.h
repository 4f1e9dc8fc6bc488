// What the products of a level work on. Each level includes this once.

#pragma once

#include "engine/kernels/vectors.h"

namespace qgraph::engine::kernels {
namespace {

// The corrections of products in pairs (extra_steps.h).
struct ExtraRange {
    int64_t chunk;         // steps summed in words
    const int32_t* begin;  // steps
    const int32_t* end;
    const int8_t* rest;  // two registers per step
};

struct Operands {
    const uint8_t* a;     // rows of input codes
    int64_t row;          // bytes between rows
    int64_t steps;        // of 4 bytes
    const int8_t* w;      // N registers per step, with 4 bytes for each sum
    const int8_t* ahead;  // weights to prefetch, 64 bytes per step
    const int32_t* start;
    int32_t* sums;  // M rows of N registers
    int64_t sums_row;
    ExtraRange extra;
};

using Dot = Ints (*)(Ints sums, Ints codes, Ints weights);

}  // namespace
}  // namespace qgraph::engine::kernels
