#include "engine/pointwise.h"

#include "engine/network.h"

namespace qgraph::engine {
namespace {

PointwiseForm form_of(BinaryOp op) {
    const MicroForm alone = {static_cast<Op>(op), Side::other_input};
    switch (op) {
        case BinaryOp::add:
            return {{alone}, Stage::Kind::add};
        case BinaryOp::sub:
        case BinaryOp::mul:
        case BinaryOp::maximum:
        case BinaryOp::minimum:
            return {{alone}, std::nullopt};
    }
    no_case(static_cast<Op>(op), "engine/pointwise.cpp, BinaryOp");
}

PointwiseForm form_of(UnaryOp op) {
    switch (op) {
        case UnaryOp::clip:
            return {{{Op::maximum, Side::lows}, {Op::minimum, Side::highs}}, Stage::Kind::clip};
        case UnaryOp::requantize:
            return {{{Op::requantize, Side::shifts}}, Stage::Kind::requantize};
        case UnaryOp::lookup:
            return {{{Op::lookup, Side::table}}, std::nullopt};
        case UnaryOp::abs:
            return {{{Op::abs, Side::none}}, std::nullopt};
    }
    no_case(static_cast<Op>(op), "engine/pointwise.cpp, UnaryOp");
}

}  // namespace

PointwiseForm pointwise_form(Op op) {
    if (family_of(op) == Family::binary) return form_of(as_binary(op));
    if (family_of(op) == Family::unary) return form_of(as_unary(op));
    no_case(op, "engine/pointwise.cpp");
}

}  // namespace qgraph::engine
