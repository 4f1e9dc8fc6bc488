#pragma once

#include <type_traits>
#include <utility>

namespace qgraph {

template <class Body, int... I>
__attribute__((always_inline)) inline void unrolled(Body body, std::integer_sequence<int, I...>) {
    (body(std::integral_constant<int, I>()), ...);
}

// body(0), body(1), ... The indices are constants from the beginning, so compilers keep arrays of
// sums in registers. In a loop that the compiler unrolls later, they go to memory in every step.
template <int count, class Body>
__attribute__((always_inline)) inline void unrolled(Body body) {
    unrolled(body, std::make_integer_sequence<int, count>());
}

}  // namespace qgraph
