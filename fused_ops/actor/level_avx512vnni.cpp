#include "actor/kernels.h"

#ifdef __AVX512VNNI__

#include "actor/vnni_body.h"

namespace qgraph::actor {
namespace {

template <>
struct Unpacked<Storage::int4> {
    static constexpr bool kPays = true;

    static bool pays(int64_t, int64_t rows) { return rows >= 9; }

    static int64_t bytes(int64_t values) { return kPanel * values; }

    static void unpack(Tile& tile, char* scratch) { unpack_int4(tile, scratch); }

    static int rows(int64_t rows, int vectors) {
        return integer_rows<Storage::int8>(rows, vectors);
    }

    static void multiply(const Tile& tile, int rows, int vectors, char*) {
        multiply_integers<Storage::int8>(tile, rows, vectors);
    }
};

}  // namespace
}  // namespace qgraph::actor

#include "actor/level_body.h"
#endif

namespace qgraph::actor {

const Kernels* avx512vnni_kernels() {
#ifdef __AVX512VNNI__
    return &kKernels;
#else
    return nullptr;
#endif
}

}  // namespace qgraph::actor
