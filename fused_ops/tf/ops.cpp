// TensorFlow ops QgraphQuantize and QgraphQuantizeGrad on the CPU, registered when the library is
// loaded. Exponents come from thresholds: f = bits - signed + offset - ceil(log2_t), one for each
// element of log2_t, whose shape is that of the last axes of x.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "core/parallel.h"
#include "core/quantize.h"
#include "tf/c_api.h"

namespace {

constexpr int kMaxExponent = 126;
constexpr const char* kRoundingNames[qgraph::kRoundings] = {"half_even", "half_up", "half_away",
                                                            "floor"};

// In the order of qgraph::Type.
constexpr TF_DataType kTypes[qgraph::kTypes] = {TF_FLOAT, TF_BFLOAT16, TF_HALF};

struct StatusDeleter {
    void operator()(TF_Status* status) const { TF_DeleteStatus(status); }
};
struct TensorDeleter {
    void operator()(TF_Tensor* tensor) const { TF_DeleteTensor(tensor); }
};
using Status = std::unique_ptr<TF_Status, StatusDeleter>;
using Tensor = std::unique_ptr<TF_Tensor, TensorDeleter>;

bool ok(const Status& status) { return TF_GetCode(status.get()) == TF_OK; }

// The attributes of a node.
struct Attributes {
    int32_t bits = 0;
    int32_t offset = 0;
    unsigned char is_signed = 0;
    qgraph::Rounding rounding = qgraph::Rounding::half_even;
    qgraph::Type type = qgraph::Type::float32;

    float low() const { return is_signed != 0 ? -std::ldexp(1.0F, bits - 1) : 0.0F; }
    float high() const { return std::ldexp(1.0F, bits - is_signed) - 1.0F; }
};

void* create(TF_OpKernelConstruction* construction) {
    const Status status(TF_NewStatus());
    auto attributes = std::make_unique<Attributes>();
    char name[16] = {};
    TF_DataType type = TF_FLOAT;
    TF_OpKernelConstruction_GetAttrInt32(construction, "bits", &attributes->bits, status.get());
    if (ok(status)) {
        TF_OpKernelConstruction_GetAttrInt32(construction, "offset", &attributes->offset,
                                             status.get());
    }
    if (ok(status)) {
        TF_OpKernelConstruction_GetAttrBool(construction, "signed", &attributes->is_signed,
                                            status.get());
    }
    if (ok(status)) {
        TF_OpKernelConstruction_GetAttrString(construction, "rounding", name, sizeof(name) - 1,
                                              status.get());
    }
    if (ok(status)) {
        TF_OpKernelConstruction_GetAttrType(construction, "T", &type, status.get());
    }
    if (!ok(status)) {
        TF_OpKernelConstruction_Failure(construction, status.get());
        return nullptr;
    }
    for (int i = 0; i < qgraph::kRoundings; ++i) {
        if (std::strcmp(name, kRoundingNames[i]) == 0) {
            attributes->rounding = static_cast<qgraph::Rounding>(i);
        }
    }
    for (int i = 0; i < qgraph::kTypes; ++i) {
        if (type == kTypes[i]) attributes->type = static_cast<qgraph::Type>(i);
    }
    return attributes.release();
}

void destroy(void* attributes) { delete static_cast<Attributes*>(attributes); }

void* data(const Tensor& tensor) { return TF_TensorData(tensor.get()); }

float* floats(const Tensor& tensor) { return static_cast<float*>(data(tensor)); }

std::vector<int64_t> shape(const Tensor& tensor) {
    std::vector<int64_t> dims(static_cast<size_t>(TF_NumDims(tensor.get())));
    for (size_t i = 0; i < dims.size(); ++i) dims[i] = TF_Dim(tensor.get(), static_cast<int>(i));
    return dims;
}

int64_t size(const std::vector<int64_t>& dims) {
    int64_t product = 1;
    for (const int64_t dim : dims) product *= dim;
    return product;
}

bool is_tail(const std::vector<int64_t>& tail, const std::vector<int64_t>& dims) {
    return tail.size() <= dims.size() && std::equal(tail.rbegin(), tail.rend(), dims.rbegin());
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

    // In the memory of the first input, where nobody else needs that.
    Tensor output_in_place(const std::vector<int64_t>& dims) {
        const int candidate = 0;
        int forwarded = -1;
        return Tensor(TF_ForwardInputOrAllocateOutput(context_, &candidate, 1, 0, dims.data(),
                                                      static_cast<int>(dims.size()), &forwarded,
                                                      status_.get()));
    }

    Tensor float_output(int index, const std::vector<int64_t>& dims) {
        return Tensor(
            TF_AllocateOutput(context_, index, TF_FLOAT, dims.data(), static_cast<int>(dims.size()),
                              static_cast<size_t>(size(dims)) * sizeof(float), status_.get()));
    }

    void fail(const std::string& message) {
        TF_SetStatus(status_.get(), TF_INVALID_ARGUMENT, message.c_str());
    }

    // The exponents of thresholds. An error if they don't fit x or leave float32's scales.
    std::vector<int32_t> exponents(const Tensor& log2_t, const std::vector<int64_t>& x_shape,
                                   const Attributes& attributes) {
        const std::vector<int64_t> dims = shape(log2_t);
        std::vector<int32_t> f;
        if (!is_tail(dims, x_shape)) {
            fail("log2_t must have the shape of the last axes of x, or none");
            return f;
        }
        f.resize(static_cast<size_t>(size(dims)));
        for (size_t i = 0; i < f.size(); ++i) {
            const float threshold = floats(log2_t)[i];
            const float exponent =
                static_cast<float>(attributes.bits - attributes.is_signed + attributes.offset) -
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
    TF_OpKernelContext* context_;
    Status status_;
};

qgraph::Quantizer quantizer(const std::vector<int32_t>& f, const Attributes& attributes) {
    return {f.data(), static_cast<int64_t>(f.size()), attributes.low(), attributes.high(),
            attributes.rounding};
}

void quantize(void* kernel, TF_OpKernelContext* context) {
    const Attributes& attributes = *static_cast<const Attributes*>(kernel);
    Run run(context);
    const Tensor x = run.input(0);
    const Tensor log2_t = run.input(1);
    if (!run.fine()) return;
    const std::vector<int64_t> dims = shape(x);
    const std::vector<int32_t> f = run.exponents(log2_t, dims, attributes);
    if (!run.fine()) return;
    const Tensor y = run.output_in_place(dims);
    if (!run.fine()) return;
    qgraph::quantize(data(x), data(y), size(dims), quantizer(f, attributes), attributes.type);
}

void quantize_grad(void* kernel, TF_OpKernelContext* context) {
    const Attributes& attributes = *static_cast<const Attributes*>(kernel);
    Run run(context);
    const Tensor g = run.input(0);
    const Tensor x = run.input(1);
    const Tensor log2_t = run.input(2);
    if (!run.fine()) return;
    const std::vector<int64_t> dims = shape(x);
    if (shape(g) != dims) run.fail("the gradient must have the shape of x");
    if (!run.fine()) return;
    const std::vector<int32_t> f = run.exponents(log2_t, dims, attributes);
    if (!run.fine()) return;
    const Tensor gx = run.output_in_place(dims);
    if (!run.fine()) return;
    const Tensor glog2_t = run.float_output(1, shape(log2_t));
    if (!run.fine()) return;
    std::vector<double> sums(f.size());
    qgraph::quantize_gradients(data(x), data(g), data(gx), sums.data(), size(dims),
                               quantizer(f, attributes), attributes.type);
    for (size_t i = 0; i < sums.size(); ++i) {
        floats(glog2_t)[i] = static_cast<float>(sums[i]);
    }
}

// Output i has the shape of input `from`.
void copy_shape(TF_ShapeInferenceContext* context, int i, int from, TF_Status* status) {
    TF_ShapeHandle* shape = TF_NewShapeHandle();
    TF_ShapeInferenceContextGetInput(context, from, shape, status);
    if (TF_GetCode(status) == TF_OK) {
        TF_ShapeInferenceContextSetOutput(context, i, shape, status);
    }
    TF_DeleteShapeHandle(shape);
}

void infer_quantize(TF_ShapeInferenceContext* context, TF_Status* status) {
    copy_shape(context, 0, 0, status);
}

void infer_quantize_grad(TF_ShapeInferenceContext* context, TF_Status* status) {
    copy_shape(context, 0, 1, status);
    if (TF_GetCode(status) == TF_OK) copy_shape(context, 1, 2, status);
}

struct Op {
    const char* name;
    std::vector<const char*> inputs;
    std::vector<const char*> outputs;
    void (*infer)(TF_ShapeInferenceContext*, TF_Status*);
    void (*compute)(void*, TF_OpKernelContext*);
};

void add(const Op& op) {
    const Status status(TF_NewStatus());
    TF_OpDefinitionBuilder* definition = TF_NewOpDefinitionBuilder(op.name);
    for (const char* spec : op.inputs) TF_OpDefinitionBuilderAddInput(definition, spec);
    for (const char* spec : op.outputs) TF_OpDefinitionBuilderAddOutput(definition, spec);
    TF_OpDefinitionBuilderAddAttr(definition, "T: {float, bfloat16, half} = DT_FLOAT");
    TF_OpDefinitionBuilderAddAttr(definition, "bits: int >= 1");
    TF_OpDefinitionBuilderAddAttr(definition, "signed: bool");
    TF_OpDefinitionBuilderAddAttr(
        definition, "rounding: {'half_even', 'half_up', 'half_away', 'floor'} = 'half_even'");
    TF_OpDefinitionBuilderAddAttr(definition, "offset: int = 0");
    TF_OpDefinitionBuilderSetShapeInferenceFunction(definition, op.infer);
    TF_RegisterOpDefinition(definition, status.get());
    if (!ok(status)) return;  // TensorFlow says so when the op is asked for
    for (const TF_DataType type : kTypes) {
        TF_KernelBuilder* kernel = TF_NewKernelBuilder(op.name, "CPU", create, op.compute, destroy);
        TF_KernelBuilder_TypeConstraint(kernel, "T", type, status.get());
        TF_RegisterKernelBuilder(op.name, kernel, status.get());
    }
}

const bool registered = [] {
    add({"QgraphQuantize", {"x: T", "log2_t: float"}, {"y: T"}, infer_quantize, quantize});
    add({"QgraphQuantizeGrad",
         {"g: T", "x: T", "log2_t: float"},
         {"gx: T", "glog2_t: float"},
         infer_quantize_grad,
         quantize_grad});
    return true;
}();

}  // namespace

extern "C" __attribute__((visibility("default"))) void qgraph_set_threads(int count) {
    qgraph::set_threads(count);
}
