// All code that is compiled once for each instruction set. quantize_<set>.cpp includes this, and
// its compiler flags select the set.
#pragma once

#include "core/codes_body.h"
#include "core/conv_body.h"
#include "core/epilogue_body.h"
#include "core/norm_body.h"
#include "core/quantize_body.h"
#include "core/rounding_body.h"

namespace qgraph {
namespace {

constexpr TileKernels kKernels{
    {kByRounding<Type::float32, false>, kByRounding<Type::bfloat16, false>,
     kByRounding<Type::float16, false>},
    {kByRounding<Type::float32, true>, kByRounding<Type::bfloat16, true>,
     kByRounding<Type::float16, true>},
    kEpilogues<false>,
    kEpilogues<true>,
    kConvKernels,
    add_products,
    kNormKernels,
    kCodeKernels};

}  // namespace
}  // namespace qgraph
