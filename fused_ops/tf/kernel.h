// Code that the ops share: attributes, tensors, thresholds, registration.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "core/quantize.h"
#include "tf/c_api.h"

namespace qgraph::tf {

constexpr int kMaxExponent = 126;

struct StatusDeleter {
    void operator()(TF_Status* status) const { TF_DeleteStatus(status); }
};
struct TensorDeleter {
    void operator()(TF_Tensor* tensor) const { TF_DeleteTensor(tensor); }
};
using Status = std::unique_ptr<TF_Status, StatusDeleter>;
using Tensor = std::unique_ptr<TF_Tensor, TensorDeleter>;
using Shape = std::vector<int64_t>;

inline bool ok(const Status& status) { return TF_GetCode(status.get()) == TF_OK; }

// The levels of a quantizer; its exponent is bits - signed + offset - ceil(log2_t).
struct Levels {
    int32_t bits = 0;
    unsigned char is_signed = 0;
    int32_t offset = 0;

    float low() const { return is_signed != 0 ? -std::ldexp(1.0F, bits - 1) : 0.0F; }
    float high() const { return std::ldexp(1.0F, bits - is_signed) - 1.0F; }
};

// The attributes of a node, read one by one until one is missing.
class Reader {
  public:
    explicit Reader(TF_OpKernelConstruction* construction)
        : construction_(construction), status_(TF_NewStatus()) {}

    void read(const char* name, int32_t* value) {
        if (ok(status_))
            TF_OpKernelConstruction_GetAttrInt32(construction_, name, value, status_.get());
    }
    void read(const char* name, unsigned char* value) {
        if (ok(status_))
            TF_OpKernelConstruction_GetAttrBool(construction_, name, value, status_.get());
    }
    void read(const char* name, TF_DataType* value) {
        if (ok(status_))
            TF_OpKernelConstruction_GetAttrType(construction_, name, value, status_.get());
    }
    // The index of the attribute's value in `names`.
    template <typename Enum, size_t Count>
    void read(const char* name, const char* const (&names)[Count], Enum* value) {
        char found[16] = {};
        if (!ok(status_)) return;
        TF_OpKernelConstruction_GetAttrString(construction_, name, found, sizeof(found) - 1,
                                              status_.get());
        for (size_t i = 0; i < Count; ++i) {
            if (std::strcmp(found, names[i]) == 0) *value = static_cast<Enum>(i);
        }
    }

    void require(bool condition, const char* message) {
        if (ok(status_) && !condition) TF_SetStatus(status_.get(), TF_INVALID_ARGUMENT, message);
    }

    // True if all attributes were valid; otherwise the kernel is not created.
    bool done() {
        if (!ok(status_)) TF_OpKernelConstruction_Failure(construction_, status_.get());
        return ok(status_);
    }

  private:
    TF_OpKernelConstruction* construction_;
    Status status_;
};

constexpr const char* kRoundingNames[kRoundings] = {"half_even", "half_up", "half_away", "floor",
                                                    "double"};
constexpr const char* kRoundingAttribute =
    "rounding: {'half_even', 'half_up', 'half_away', 'floor', 'double'} = 'half_even'";

inline void* data(const Tensor& tensor) { return TF_TensorData(tensor.get()); }

inline float* floats(const Tensor& tensor) { return static_cast<float*>(data(tensor)); }

inline uint8_t* bytes(const Tensor& tensor) { return static_cast<uint8_t*>(data(tensor)); }

inline Shape shape(const Tensor& tensor) {
    Shape dims(static_cast<size_t>(TF_NumDims(tensor.get())));
    for (size_t i = 0; i < dims.size(); ++i) dims[i] = TF_Dim(tensor.get(), static_cast<int>(i));
    return dims;
}

inline int64_t size(const Shape& dims) {
    int64_t product = 1;
    for (const int64_t dim : dims) product *= dim;
    return product;
}

// One run of a kernel: inputs, outputs, and the first error.
class Run {
  public:
    explicit Run(TF_OpKernelContext* context) : context_(context), status_(TF_NewStatus()) {}
    ~Run() {
        if (!fine()) TF_OpKernelContext_Failure(context_, status_.get());
    }
    Run(const Run&) = delete;
    Run& operator=(const Run&) = delete;

    bool fine() const { return ok(status_); }

    Tensor input(int index) {
        TF_Tensor* tensor = nullptr;
        if (fine()) TF_GetInput(context_, index, &tensor, status_.get());
        return Tensor(tensor);
    }

    // Uses the memory of the first input if no other op needs it.
    Tensor output_in_place(const Shape& dims) {
        const int candidate = 0;
        int forwarded = -1;
        return Tensor(TF_ForwardInputOrAllocateOutput(context_, &candidate, 1, 0, dims.data(),
                                                      static_cast<int>(dims.size()), &forwarded,
                                                      status_.get()));
    }

    Tensor float_output(int index, const Shape& dims) {
        return output(index, TF_FLOAT, sizeof(float), dims);
    }

    Tensor byte_output(int index, const Shape& dims) { return output(index, TF_UINT8, 1, dims); }

    // Temporary memory on the device.
    Tensor workspace(int64_t bytes) {
        TF_AllocatorAttributes attributes{};
        attributes.struct_size = sizeof(attributes);
        return Tensor(TF_AllocateTemp(context_, TF_UINT8, &bytes, 1, &attributes, status_.get()));
    }

    // A float64 sum as float32.
    void output_sums(int index, const Shape& dims, const double* sums) {
        const Tensor out = float_output(index, dims);
        if (!fine()) return;
        std::transform(sums, sums + size(dims), floats(out),
                       [](double sum) { return static_cast<float>(sum); });
    }

    void fail(const std::string& message) {
        TF_SetStatus(status_.get(), TF_INVALID_ARGUMENT, message.c_str());
    }

    // An error unless each element of log2_t has its channel of x.
    void check_thresholds(const Tensor& log2_t, const Shape& x) {
        if (!fine()) return;
        const Shape dims = shape(log2_t);
        if (dims.size() > x.size() || !std::equal(dims.rbegin(), dims.rend(), x.rbegin())) {
            fail("log2_t must have the shape of the last axes of x, or none");
        }
    }

    void check_gradient(const Tensor& g, const Shape& x) {
        if (fine() && shape(g) != x) fail("the gradient must have the shape of x");
    }

    // The exponents of thresholds. An error if their shape does not fit x or float32 does not hold
    // a scale.
    std::vector<int32_t> exponents(const Tensor& log2_t, const Shape& x_shape,
                                   const Levels& levels) {
        std::vector<int32_t> f;
        check_thresholds(log2_t, x_shape);
        if (!fine()) return f;
        f.resize(static_cast<size_t>(size(shape(log2_t))));
        for (size_t i = 0; i < f.size(); ++i) {
            const float threshold = floats(log2_t)[i];
            const float exponent =
                static_cast<float>(levels.bits - levels.is_signed + levels.offset) -
                std::ceil(threshold);
            if (!(std::fabs(exponent) <= kMaxExponent)) {  // NaN too
                fail("a threshold of log2 t = " + std::to_string(threshold) +
                     " gives a scale that float32 does not hold");
                return f;
            }
            f[i] = static_cast<int32_t>(exponent);
        }
        return f;
    }

  private:
    Tensor output(int index, TF_DataType type, size_t bytes, const Shape& dims) {
        return Tensor(TF_AllocateOutput(context_, index, type, dims.data(),
                                        static_cast<int>(dims.size()),
                                        static_cast<size_t>(size(dims)) * bytes, status_.get()));
    }

    TF_OpKernelContext* context_;
    Status status_;
};

// Output i has the shape of input `from`.
inline void copy_shape(TF_ShapeInferenceContext* context, int i, int from, TF_Status* status) {
    TF_ShapeHandle* shape = TF_NewShapeHandle();
    TF_ShapeInferenceContextGetInput(context, from, shape, status);
    if (TF_GetCode(status) == TF_OK) {
        TF_ShapeInferenceContextSetOutput(context, i, shape, status);
    }
    TF_DeleteShapeHandle(shape);
}

using Compute = void (*)(void*, TF_OpKernelContext*);

// The code of an op on a device.
struct Kernel {
    std::vector<TF_DataType> types;  // the types that attribute T allows; empty if the op has no T
    void* (*create)(TF_OpKernelConstruction*);
    Compute compute;
    void (*destroy)(void*);
};

struct Op {
    const char* name;
    std::vector<const char*> inputs;
    std::vector<const char*> outputs;
    std::vector<const char*> attributes;
    void (*infer)(TF_ShapeInferenceContext*, TF_Status*);
    Kernel kernel;
};

// TensorFlow takes the kernel with the highest priority for a device.
inline void add_kernel(const char* op, const Kernel& kernel, const char* device, int priority) {
    const Status status(TF_NewStatus());
    const auto builder = [&] {
        TF_KernelBuilder* made =
            TF_NewKernelBuilder(op, device, kernel.create, kernel.compute, kernel.destroy);
        TF_KernelBuilder_Priority(made, priority);
        return made;
    };
    if (kernel.types.empty()) TF_RegisterKernelBuilder(op, builder(), status.get());
    for (const TF_DataType type : kernel.types) {
        TF_KernelBuilder* of_type = builder();
        TF_KernelBuilder_TypeConstraint(of_type, "T", type, status.get());
        TF_RegisterKernelBuilder(op, of_type, status.get());
    }
}

// Defines an op, with its kernel for the CPU.
inline void add(const Op& op) {
    const Status status(TF_NewStatus());
    TF_OpDefinitionBuilder* definition = TF_NewOpDefinitionBuilder(op.name);
    for (const char* spec : op.inputs) TF_OpDefinitionBuilderAddInput(definition, spec);
    for (const char* spec : op.outputs) TF_OpDefinitionBuilderAddOutput(definition, spec);
    for (const char* spec : op.attributes) TF_OpDefinitionBuilderAddAttr(definition, spec);
    TF_OpDefinitionBuilderSetShapeInferenceFunction(definition, op.infer);
    TF_RegisterOpDefinition(definition, status.get());
    if (!ok(status)) return;  // TensorFlow reports it when the op is requested
    add_kernel(op.name, op.kernel, "CPU", 0);
}

}  // namespace qgraph::tf
