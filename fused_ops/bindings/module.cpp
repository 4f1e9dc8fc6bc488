// The module qgraph._native. It checks nothing that qgraph/kernels.py, its only caller, has
// already checked: shapes and sizes are taken on trust.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>

#include <array>

#include "core/depthwise_conv.h"
#include "core/fake_quant.h"
#include "core/histogram.h"
#include "core/parallel.h"

namespace nb = nanobind;

namespace {

using Input = nb::ndarray<const float, nb::c_contig, nb::device::cpu>;
using Output = nb::ndarray<float, nb::c_contig, nb::device::cpu>;
using Counts = nb::ndarray<int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Pair = std::array<int64_t, 2>;

nb::tuple minmax(const Input& x) {
    qgraph::Range range{};
    {
        nb::gil_scoped_release unlocked;
        range = qgraph::minmax(x.data(), static_cast<int64_t>(x.size()));
    }
    return nb::make_tuple(range.low, range.high);
}

bool histogram(const Input& x, double scale, int log2_bins, const Counts& bins) {
    nb::gil_scoped_release unlocked;
    return qgraph::histogram(x.data(), static_cast<int64_t>(x.size()), scale, log2_bins,
                             bins.data());
}

void fake_quant(const Input& x, int f, float low, float high, const Output& y) {
    nb::gil_scoped_release unlocked;
    qgraph::fake_quant(x.data(), y.data(), static_cast<int64_t>(x.size()), f, low, high);
}

void depthwise_conv2d(const Input& x, const Input& w, Pair strides, Pair dilations, Pair pads,
                      const Output& y) {
    const auto size = [](const auto& array, size_t axis) {
        return static_cast<int64_t>(array.shape(axis));
    };
    const qgraph::DepthwiseShape shape{
        size(x, 0), size(x, 1),   size(x, 2),   size(x, 3), size(w, 0), size(w, 1), strides[0],
        strides[1], dilations[0], dilations[1], pads[0],    pads[1],    size(y, 1), size(y, 2)};
    nb::gil_scoped_release unlocked;
    qgraph::depthwise_conv(x.data(), w.data(), y.data(), shape);
}

}  // namespace

NB_MODULE(_native, module) {
    module.def("minmax", &minmax);
    module.def("histogram", &histogram);
    module.def("fake_quant", &fake_quant);
    module.def("depthwise_conv2d", &depthwise_conv2d);
    module.def("set_threads", &qgraph::set_threads);
    module.def("threads", &qgraph::threads);
}
