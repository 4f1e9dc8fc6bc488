#include "engine/pointwise.h"

#include "engine/network.h"

namespace qgraph::engine {
namespace {

using Kind = Micro::Kind;

PointwiseForm binary(Kind kind) { return {{{kind, Side::other_input}}, std::nullopt}; }

PointwiseForm form_of(BinaryOp op, bool swapped) {
    switch (op) {
        case BinaryOp::add:
            return {{{Kind::add, Side::other_input}}, Stage::Kind::add};
        case BinaryOp::sub:
            return binary(swapped ? Kind::sub_from : Kind::sub);
        case BinaryOp::mul:
            return binary(Kind::mul);
        case BinaryOp::maximum:
            return binary(Kind::maximum);
        case BinaryOp::minimum:
            return binary(Kind::minimum);
    }
    no_case(static_cast<Op>(op), "engine/pointwise.cpp, BinaryOp");
}

PointwiseForm form_of(UnaryOp op) {
    switch (op) {
        case UnaryOp::clip:
            return {{{Kind::maximum, Side::lows}, {Kind::minimum, Side::highs}}, Stage::Kind::clip};
        case UnaryOp::requantize:
            return {{{Kind::requantize, Side::shifts}}, Stage::Kind::requantize};
        case UnaryOp::lookup:
            return {{{Kind::lookup, Side::table}}, std::nullopt};
    }
    no_case(static_cast<Op>(op), "engine/pointwise.cpp, UnaryOp");
}

}  // namespace

PointwiseForm pointwise_form(Op op, bool swapped) {
    if (family_of(op) == Family::binary) return form_of(as_binary(op), swapped);
    if (family_of(op) == Family::unary) return form_of(as_unary(op));
    no_case(op, "engine/pointwise.cpp");
}

}  // namespace qgraph::engine
