// The module qgraph._native. Shapes and sizes are not checked here, because its only caller,
// qgraph/kernels, has checked them.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>

#include <array>
#include <optional>
#include <utility>

#include "bindings/engine.h"
#include "bindings/interface.h"
#include "bindings/members.h"
#include "bindings/rl_broadcast.h"
#include "core/channel_sums.h"
#include "core/conv.h"
#include "core/depthwise_conv.h"
#include "core/histogram.h"
#include "core/parallel.h"
#include "core/quantize.h"
#include "core/rounding.h"
#include "core/significand.h"
#include "core/stage.h"

namespace nb = nanobind;

namespace {

using Input = nb::ndarray<const float, nb::c_contig, nb::device::cpu>;
using Output = nb::ndarray<float, nb::c_contig, nb::device::cpu>;
using ConstDoubles = nb::ndarray<const double, nb::ndim<3>, nb::c_contig, nb::device::cpu>;
using ConstNumbers = nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Doubles = nb::ndarray<double, nb::c_contig, nb::device::cpu>;
using Exponents = nb::ndarray<const int32_t, nb::c_contig, nb::device::cpu>;
using Counts = nb::ndarray<int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Pair = std::array<int64_t, 2>;

std::pair<float, float> minmax(const Input& x) {
    nb::gil_scoped_release unlocked;
    const qgraph::Range range = qgraph::minmax(x.data(), static_cast<int64_t>(x.size()));
    return {range.low, range.high};
}

bool histogram(const Input& x, double scale, int log2_bins, const Counts& bins) {
    nb::gil_scoped_release unlocked;
    return qgraph::histogram(x.data(), static_cast<int64_t>(x.size()), scale, log2_bins,
                             bins.data());
}

void channel_sums(const Input& x, const Doubles& sums) {
    nb::gil_scoped_release unlocked;
    const int64_t channels = static_cast<int64_t>(sums.size());
    qgraph::channel_sums(x.data(), static_cast<int64_t>(x.size()) / channels, channels,
                         sums.data());
}

void channel_squares(const Input& x, const ConstNumbers& centre, const Doubles& sums) {
    nb::gil_scoped_release unlocked;
    const int64_t channels = static_cast<int64_t>(sums.size());
    qgraph::channel_squares(x.data(), centre.data(), static_cast<int64_t>(x.size()) / channels,
                            channels, sums.data());
}

std::pair<double, double> squares(const Input& x, const Input& y) {
    nb::gil_scoped_release unlocked;
    const qgraph::Squares found =
        qgraph::squares(x.data(), y.data(), static_cast<int64_t>(x.size()));
    return {found.signal, found.noise};
}

std::array<int64_t, 3> tails(const Input& x, double low, double high, double small) {
    nb::gil_scoped_release unlocked;
    const qgraph::Tails found =
        qgraph::tails(x.data(), static_cast<int64_t>(x.size()), low, high, small);
    return {found.below, found.above, found.small};
}

qgraph::Quantizer quantizer(const Exponents& f, float low, float high, int rounding) {
    return {f.data(), static_cast<int64_t>(f.size()), low, high, qgraph::rounding_of(rounding)};
}

void quantize(const Input& x, const Exponents& f, float low, float high, int rounding,
              const Output& y) {
    nb::gil_scoped_release unlocked;
    qgraph::quantize(x.data(), y.data(), static_cast<int64_t>(x.size()),
                     quantizer(f, low, high, rounding));
}

std::pair<float, float> stage(const Input& x, const std::optional<Exponents>& f, float least,
                              float most, int rounding, const std::optional<Input>& bias, float low,
                              float high, const std::optional<Input>& ceiling, const Output& y) {
    nb::gil_scoped_release unlocked;
    const std::optional<Input>& by_channel = bias ? bias : ceiling;
    const int64_t channels = by_channel ? static_cast<int64_t>(by_channel->size()) : 1;
    qgraph::Quantizer inner{};
    if (f) inner = quantizer(*f, least, most, rounding);
    const qgraph::Range range =
        qgraph::stage(x.data(), y.data(), static_cast<int64_t>(x.size()),
                      {f ? &inner : nullptr, bias ? bias->data() : nullptr, channels, low, high,
                       ceiling ? ceiling->data() : nullptr});
    return {range.low, range.high};
}

void quantize_gradients(const Input& x, const Input& g, const Exponents& f, float low, float high,
                        int rounding, const Output& gx, const Doubles& glog2t) {
    nb::gil_scoped_release unlocked;
    qgraph::quantize_gradients(x.data(), g.data(), gx.data(), glog2t.data(),
                               static_cast<int64_t>(x.size()), quantizer(f, low, high, rounding));
}

bool choose(int set) { return qgraph::choose(qgraph::instruction_set_of(set)); }

int chosen() { return static_cast<int>(qgraph::chosen()); }

void round_significand(const Input& x, int bits, const Output& y) {
    nb::gil_scoped_release unlocked;
    qgraph::round_significand(x.data(), y.data(), static_cast<int64_t>(x.size()), bits);
}

template <class Array>
int64_t size(const Array& array, size_t axis) {
    return static_cast<int64_t>(array.shape(axis));
}

void conv2d(const Input& x, const Input& w, Pair strides, Pair dilations, Pair pads,
            const Output& y) {
    const qgraph::ConvShape shape{size(x, 0), size(x, 1), size(x, 2),   size(x, 3),
                                  size(w, 0), size(w, 1), size(w, 3),   size(x, 3) / size(w, 2),
                                  strides[0], strides[1], dilations[0], dilations[1],
                                  pads[0],    pads[1],    size(y, 1),   size(y, 2)};
    nb::gil_scoped_release unlocked;
    qgraph::conv2d(x.data(), w.data(), y.data(), shape);
}

void depthwise_conv2d(const Input& x, const Input& w, Pair strides, Pair dilations, Pair pads,
                      const Output& y) {
    const qgraph::DepthwiseShape shape{
        size(x, 0), size(x, 1),   size(x, 2),   size(x, 3), size(w, 0), size(w, 1), strides[0],
        strides[1], dilations[0], dilations[1], pads[0],    pads[1],    size(y, 1), size(y, 2)};
    nb::gil_scoped_release unlocked;
    qgraph::depthwise_conv(x.data(), w.data(), y.data(), shape);
}

qgraph::RoundingShape rounding_shape(const ConstDoubles& v, double low, double high) {
    return {size(v, 0), size(v, 1), size(v, 2), low, high};
}

void round_in_turn(const ConstDoubles& v, const ConstDoubles& lower, double low, double high,
                   const Doubles& codes) {
    nb::gil_scoped_release unlocked;
    qgraph::round_in_turn(v.data(), lower.data(), codes.data(), rounding_shape(v, low, high));
}

void descend(const ConstDoubles& v, const ConstDoubles& hessian, double low, double high,
             int64_t sweeps, const Doubles& codes) {
    nb::gil_scoped_release unlocked;
    qgraph::descend(codes.data(), v.data(), hessian.data(), sweeps, rounding_shape(v, low, high));
}

}  // namespace

NB_MODULE(_native, module) {
    module.attr("INTERFACE") = kInterface;  // qgraph/kernels/extension.py expects the same
    module.def("minmax", &minmax);
    module.def("histogram", &histogram);
    module.def("channel_sums", &channel_sums);
    module.def("channel_squares", &channel_squares);
    module.def("squares", &squares);
    module.def("tails", &tails);
    module.def("quantize", &quantize);
    module.def("quantize_gradients", &quantize_gradients);
    module.def("stage", &stage, nb::arg("x"), nb::arg("f").none(), nb::arg("least"),
               nb::arg("most"), nb::arg("rounding"), nb::arg("bias").none(), nb::arg("low"),
               nb::arg("high"), nb::arg("ceiling").none(), nb::arg("y"));
    module.def("round_significand", &round_significand);
    module.def("conv2d", &conv2d);
    module.def("depthwise_conv2d", &depthwise_conv2d);
    module.def("round_in_turn", &round_in_turn);
    module.def("descend", &descend);
    module.def("choose", &choose);
    module.def("chosen", &chosen);
    module.def("set_threads", &qgraph::set_threads);
    module.def("threads", &qgraph::threads);
    module.def("stay_on_calling_thread", &qgraph::stay_on_calling_thread);
    nb::module_ engine = module.def_submodule("engine");
    bind_engine(engine);
    nb::module_ kernels = engine.def_submodule("kernels");
    bind_engine_kernels(kernels);
    nb::module_ broadcast = module.def_submodule("broadcast");
    bind_broadcast(broadcast);
    nb::module_ actor = module.def_submodule("actor");
    bind_actor(actor);
}
