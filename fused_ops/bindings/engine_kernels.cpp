// The engine's kernels one by one: convolutions of codes for runs of graphs, the others for tests.
// Arguments are not checked.

#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <tuple>
#include <vector>

#include "bindings/engine.h"
#include "bindings/members.h"
#include "engine/coded_conv.h"
#include "engine/kernels/kernels.h"

namespace nb = nanobind;

namespace {

using namespace qgraph::engine;
using Codes = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;
using Buffer = nb::ndarray<nb::c_contig, nb::device::cpu>;
using Integers = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
// Kind and rounding; then shift, term, low and high, one for all channels or one for each.
using GivenStage = std::tuple<int, int, Integers, Integers, Integers, Integers>;

class Aligned {
  public:
    explicit Aligned(size_t size) : bytes_(size + 64) {}
    void* get() {
        return reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(bytes_.data()) + 63) / 64 * 64);
    }

  private:
    std::vector<char> bytes_;
};

Allocate into(Aligned& memory) {
    return [&memory](size_t bytes) {
        memory = Aligned(bytes);
        return memory.get();
    };
}

Numbers numbers(const Integers& given) {
    return given.size() == 1 ? Numbers{*given.data()} : Numbers{0, given.data()};
}

std::vector<Stage> stages(const std::vector<GivenStage>& given) {
    std::vector<Stage> made;
    for (const auto& [kind, rounding, shift, term, low, high] : given) {
        made.push_back({stage_kind(kind), numbers(shift), qgraph::rounding_of(rounding),
                        numbers(term), numbers(low), numbers(high)});
    }
    return made;
}

Conv conv_of(const std::array<int64_t, 20>& n) {
    Conv s;
    s.x = code_number(n[0]);
    s.w = code_number(n[1]);
    s.y = code_number(n[2]);
    int64_t* fields[] = {&s.height,         &s.width,         &s.channels,     &s.kernel_height,
                         &s.kernel_width,   &s.stride_height, &s.stride_width, &s.dilation_height,
                         &s.dilation_width, &s.pad_top,       &s.pad_left,     &s.out_height,
                         &s.out_width,      &s.out_channels,  &s.groups};
    for (size_t i = 0; i < 15; ++i) *fields[i] = n[3 + i];
    s.depthwise = n[18] != 0;
    s.bound = n[19];
    return s;
}

// Computes the parts in sequence.
void conv(int level, const std::array<int64_t, 20>& fields, const Codes& x, const Codes& w,
          const std::vector<GivenStage>& given, const std::vector<std::array<int64_t, 4>>& parts,
          const Buffer& y) {
    const Conv s = conv_of(fields);
    const std::vector<Stage> chain = stages(given);
    const Stages list{chain.data(), static_cast<int>(chain.size())};
    const auto at = qgraph::engine::supported_level(level);
    Aligned packed(0);
    pack(s, w.data(), list, at, into(packed));
    Aligned scratch(scratch_size(packed.get()));
    for (const auto& [begin, end, first, last] : parts) {
        run(packed.get(), x.data(), y.data(), {begin, end, first, last}, scratch.get());
    }
}

void map(int level, const std::array<int64_t, 4>& fields, const Codes& a, const Codes& b, bool two,
         const std::vector<GivenStage>& given, const Buffer& y) {
    const Map s{code_number(fields[0]), code_number(fields[1]), code_number(fields[2]), fields[3],
                two};
    const std::vector<Stage> chain = stages(given);
    const Stages list{chain.data(), static_cast<int>(chain.size())};
    Aligned packed(0);
    pack(s, list, qgraph::engine::supported_level(level), into(packed));
    run_map(packed.get(), a.data(), b.data(), y.data(),
            static_cast<int64_t>(a.size()) / s.channels);
}

using Weights = nb::ndarray<const int8_t, nb::ndim<4>, nb::c_contig, nb::device::cpu>;
using Floats = nb::ndarray<const float, nb::ndim<4>, nb::c_contig, nb::device::cpu>;
using FloatBuffer = nb::ndarray<float, nb::ndim<4>, nb::c_contig, nb::device::cpu>;

bool run_coded(const CodedConv& conv, const Floats& x, float scale, const FloatBuffer& y,
               float unit) {
    nb::gil_scoped_release unlocked;
    return conv.run(static_cast<int64_t>(x.shape(0)), x.data(), scale, y.data(), unit);
}

}  // namespace

void bind_engine_kernels(nb::module_& module) {
    nb::class_<CodedConv>(module, "CodedConv")
        .def("__init__", [](CodedConv* self, const std::array<int64_t, 20>& fields,
                            const Weights& w) { new (self) CodedConv(conv_of(fields), w.data()); })
        .def("run", &run_coded);
    module.def("conv", &conv);
    module.def("map", &map);
}
