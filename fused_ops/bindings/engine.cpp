// qgraph._native.engine. Its only caller, qgraph/backends/engine/engine.py, has checked dtypes and
// shapes; the content of a file is checked here.

#include "bindings/engine.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/members.h"
#include "engine/engine.h"
#include "engine/kernels/kernels.h"

namespace nb = nanobind;

namespace {

using namespace qgraph::engine;
using Codes = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;
using Buffer = nb::ndarray<nb::c_contig, nb::device::cpu>;

nb::bytes text(std::string_view name) { return nb::bytes(name.data(), name.size()); }

// Name, storage, kind, shape, low, high.
using Row =
    std::tuple<nb::bytes, int, int, nb::typed<nb::tuple, int64_t, nb::ellipsis>, int64_t, int64_t>;

Row described(const Tensor& tensor) {
    return {text(tensor.name),
            static_cast<int>(tensor.storage),
            static_cast<int>(tensor.kind),
            nb::tuple(nb::cast(tensor.shape)),
            tensor.low,
            tensor.high};
}

std::vector<Row> tensors(const Engine& engine) {
    std::vector<Row> rows;
    for (const Tensor& tensor : engine.network().tensors) rows.push_back(described(tensor));
    return rows;
}

// The op and the output of each step.
std::vector<std::pair<std::string, uint32_t>> steps(const Engine& engine) {
    std::vector<std::pair<std::string, uint32_t>> rows;
    for (const Step& step : engine.network().steps) {
        rows.emplace_back(name_of(step.op), step.output);
    }
    return rows;
}

void run_engine(Engine& engine, int64_t samples, const std::vector<Codes>& entries,
                const std::vector<uint32_t>& wanted, const std::vector<Buffer>& results) {
    std::vector<const void*> read;
    for (const Codes& codes : entries) read.push_back(codes.data());
    std::vector<void*> written;
    for (const Buffer& buffer : results) written.push_back(buffer.data());
    nb::gil_scoped_release unlocked;
    engine.run(samples, read, wanted, written);
}

using Floats = nb::ndarray<const float, nb::c_contig, nb::device::cpu>;
using FloatBuffer = nb::ndarray<float, nb::c_contig, nb::device::cpu>;

void run_floats(Engine& engine, int64_t samples, const Floats& x, int32_t exponent, float low,
                float high, int rounding, const std::vector<uint32_t>& wanted,
                const std::vector<int32_t>& exponents, const std::vector<FloatBuffer>& results) {
    std::vector<float*> written;
    for (const FloatBuffer& buffer : results) written.push_back(buffer.data());
    nb::gil_scoped_release unlocked;
    const FloatEntry entry{exponent, low, high, qgraph::rounding_of(rounding)};
    engine.run_floats(samples, x.data(), entry, wanted, exponents, written);
}

std::unique_ptr<Engine> open(const std::string& path, int threads, int level, bool fuse,
                             int64_t memory) {
    nb::gil_scoped_release unlocked;
    const Options options{threads, qgraph::engine::supported_level(level), fuse, memory};
    return std::make_unique<Engine>(path, options);
}

}  // namespace

void bind_engine(nb::module_& module) {
    nb::exception<LoadFailure>(module, "LoadFailure");
    nb::class_<Engine>(module, "Engine")
        .def_prop_ro("tensors", &tensors)
        .def_prop_ro("steps", &steps)
        .def_prop_ro("entries", [](const Engine& e) { return e.network().entries; })
        .def_prop_ro("exits", [](const Engine& e) { return e.network().exits; })
        .def_prop_ro("batch_free", [](const Engine& e) { return e.network().batch_free; })
        .def("run", &run_engine)
        .def("run_floats", &run_floats)
        .def("profile", &Engine::profile, nb::call_guard<nb::gil_scoped_release>())
        .def("memory", &Engine::memory, nb::call_guard<nb::gil_scoped_release>());
    nb::list ops;
    for (const OpFacts& facts : kOpFacts) ops.append(facts.name);
    module.attr("OPS") = nb::tuple(ops);
    module.def("open", &open);
    module.def("supports", [](int level) { return supports(qgraph::engine::level_of(level)); });
    module.def("best_level", [] { return static_cast<int>(best_level()); });
}
