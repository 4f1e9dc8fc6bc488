// The attributes of ops on codes in bytes: the levels of the quantizer whose grid they count on.
#pragma once

#include "core/codes.h"
#include "tf/kernel.h"

namespace qgraph::tf::code_op {

inline void* create(TF_OpKernelConstruction* construction) {
    auto levels = std::make_unique<Levels>();
    Reader reader(construction);
    reader.read("bits", &levels->bits);
    reader.read("signed", &levels->is_signed);
    reader.require(levels->bits <= 8, "codes of more than 8 bits do not fit into bytes");
    return reader.done() ? levels.release() : nullptr;
}

inline void destroy(void* levels) { delete static_cast<Levels*>(levels); }

inline Kernel kernel(Compute compute) { return {{}, create, compute, destroy}; }

inline std::vector<const char*> attributes() { return {"bits: int >= 1", "signed: bool"}; }

// The form of codes, by the threshold of their quantizer.
inline ByteCodes form(Run& run, const Tensor& log2_t, const void* kernel) {
    const Levels& levels = *static_cast<const Levels*>(kernel);
    if (!run.fine()) return {};
    const std::vector<int32_t> f = run.exponents(log2_t, {}, levels);
    return {run.fine() ? f[0] : 0, levels.bits, levels.is_signed != 0};
}

}  // namespace qgraph::tf::code_op
