// qgraph._native.actor. Its only caller, qgraph/rl/actor, has checked dtypes and sizes; the content
// of a block is checked here.

#include "actor/actor.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "actor/format.h"
#include "bindings/engine.h"
#include "bindings/members.h"
#include "bindings/numpy_array.h"

namespace nb = nanobind;

namespace {

using namespace qgraph::actor;
using Bytes = nb::ndarray<nb::ro, const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Buffer = nb::ndarray<uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Floats = nb::ndarray<nb::ro, const float, nb::c_contig, nb::device::cpu>;

const char* bytes_of(const Bytes& block) { return reinterpret_cast<const char*>(block.data()); }

int64_t size_of(const Bytes& block) { return static_cast<int64_t>(block.size()); }

// Packs weight number `index` into a block that has its tables. Returns its part of the checksum,
// or nothing if a number is not finite.
std::optional<uint64_t> pack(const Buffer& buffer, size_t index, const Floats& values, int number) {
    nb::gil_scoped_release unlocked;
    auto* block = reinterpret_cast<char*>(buffer.data());
    const auto level = qgraph::engine::supported_level(number);
    const Program program = parse(block, static_cast<int64_t>(buffer.size()));
    const Weight& weight = program.weights.at(index);
    const int64_t channels = padded(weight.shape.last());
    std::vector<float> inverse(static_cast<size_t>(channels));
    Panels to = weight.in(block);
    if (!weight.is_kernel()) to.segments = to.length = 1;
    const int high = weight.exact() ? (1 << (weight.bits - 1)) - 1 : 0;
    if (!kernels_of(level)->pack(values.data(), to, high, block + weight.data,
                                 const_cast<float*>(to.scale), const_cast<int32_t*>(to.sums),
                                 inverse.data())) {
        return {};
    }
    const auto packed = [&](int64_t at, int64_t size) {  // beginning at this byte
        const int64_t filled = -(at + size) & (kAlignment - 1);
        std::memset(block + at + size, 0, static_cast<size_t>(filled));
        return part_of_checksum(block, at, at + size + filled, level);
    };
    uint64_t sum = packed(weight.data, channels * bytes_of(to.storage, to.segments, to.length));
    if (weight.exact())
        sum += packed(weight.scale, channels * 4) + packed(weight.sums, channels * 4);
    return sum;
}

// Completes the block; `sum` is the sum of the checksum parts of all weights.
void seal(const Buffer& buffer, uint64_t sum, int level) {
    auto* block = reinterpret_cast<char*>(buffer.data());
    const Program program = parse(block, static_cast<int64_t>(buffer.size()));
    std::memcpy(block, kMagic, sizeof kMagic);
    std::memset(block + offsetof(Header, checksum), 0, sizeof sum);
    sum += part_of_checksum(block, 0, program.tables, qgraph::engine::supported_level(level));
    std::memcpy(block + offsetof(Header, checksum), &sum, sizeof sum);
}

uint64_t checksum_of(const Bytes& block) {
    return checksum(bytes_of(block), size_of(block), qgraph::engine::best_level());
}

class BoundActor {
  public:
    BoundActor(const Bytes& block, int level)
        : actor_(bytes_of(block), size_of(block), qgraph::engine::supported_level(level)),
          block_(block),
          floats_("float32"),
          images_("uint8") {
        const Program& program = actor_.program();
        for (int i = 0; i < program.values[0].rank; ++i) {
            shape_.push_back(program.values[0].dims[static_cast<size_t>(i)]);
        }
        for (size_t i = 0; i < program.outputs.size(); ++i) {
            const Shape& shape = program.values[program.outputs[i]];
            outputs_.emplace_back();
            for (int j = 0; j < shape.rank; ++j) {
                outputs_[i].push_back(shape.dims[static_cast<size_t>(j)]);
            }
        }
    }

    void use(const Bytes& block) {
        actor_.use(bytes_of(block), size_of(block));
        block_ = block;
    }

    // The first output. None if the observations are not finite, contiguous float32 or uint8 of the
    // right shape: the caller then converts them or reports why.
    nb::object act(nb::handle observations) {
        bool alone;
        const int64_t samples = run(observations, alone);
        if (samples < 0) return nb::none();
        if (samples != samples_ || alone != alone_) {
            empty_shape_ = shape_of(0, samples, alone);
            samples_ = samples;
            alone_ = alone;
        }
        return output(0, empty_shape_, samples);
    }

    // All outputs, in order, or None.
    nb::object act_all(nb::handle observations) {
        bool alone;
        const int64_t samples = run(observations, alone);
        if (samples < 0) return nb::none();
        nb::list found;
        for (size_t i = 0; i < outputs_.size(); ++i) {
            found.append(output(i, shape_of(i, samples, alone), samples));
        }
        return found;
    }

  private:
    // The number of samples, or -1.
    int64_t run(nb::handle observations, bool& alone) {
        const NumpyArray* floats = floats_.look_into(observations);
        const NumpyArray* x = floats != nullptr ? floats : images_.look_into(observations);
        if (x == nullptr) return -1;
        const auto rank = static_cast<int>(shape_.size());
        alone = x->rank == rank;
        if (!alone && x->rank != rank + 1) return -1;
        for (int i = 0; i < rank; ++i) {
            if (x->shape[i + !alone] != shape_[static_cast<size_t>(i)]) return -1;
        }
        const int64_t samples = alone ? 1 : x->shape[0];
        if (samples < 1 || samples > kMostSamples) return -1;
        const bool finite = actor_.run(
            floats != nullptr ? reinterpret_cast<float*>(x->data) : as_floats(*x, samples),
            samples);
        return finite ? samples : -1;
    }

    const float* as_floats(const NumpyArray& image, int64_t samples) {
        const auto* from = reinterpret_cast<const uint8_t*>(image.data);
        const auto size = static_cast<size_t>(samples * actor_.program().values[0].size());
        converted_.resize(std::max(size, converted_.size()));
        std::copy(from, from + size, converted_.begin());
        return converted_.data();
    }

    nb::object shape_of(size_t i, int64_t samples, bool alone) const {
        nb::list shape;
        if (!alone) shape.append(samples);
        for (const int64_t size : outputs_[i]) shape.append(size);
        return nb::tuple(shape);
    }

    nb::object output(size_t i, const nb::object& shape, int64_t samples) {
        nb::object made = floats_.empty(shape);
        int64_t size = samples;
        for (const int64_t dim : outputs_[i]) size *= dim;
        std::memcpy(floats_.look_into(made)->data, actor_.output(i),
                    static_cast<size_t>(size) * sizeof(float));
        return made;
    }

    static constexpr int64_t kMostSamples = 256;

    Actor actor_;
    Bytes block_;
    NumpyArrays floats_;
    NumpyArrays images_;
    std::vector<float> converted_;
    std::vector<int64_t> shape_;
    std::vector<std::vector<int64_t>> outputs_;
    nb::object empty_shape_;
    int64_t samples_ = -1;
    bool alone_ = false;
};

}  // namespace

void bind_actor(nb::module_& module) {
    nb::exception<Refusal>(module, "Refusal");
    nb::class_<BoundActor>(module, "Actor")
        .def(nb::init<const Bytes&, int>())
        .def("use", &BoundActor::use)
        .def("act", &BoundActor::act, nb::arg().none(),
             nb::sig("def act(self, arg: object, /) -> numpy.typing.NDArray[numpy.float32] | None"))
        .def("act_all", &BoundActor::act_all, nb::arg().none(),
             nb::sig("def act_all(self, arg: object, /)"
                     " -> list[numpy.typing.NDArray[numpy.float32]] | None"));
    module.def("pack", &pack);
    module.def("seal", &seal);
    module.def("checksum", &checksum_of);
}
