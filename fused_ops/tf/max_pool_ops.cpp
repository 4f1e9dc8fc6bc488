// TensorFlow op QgraphMaxPoolCodesGrad on the CPU: the gradient of a max pool whose input is kept
// as codes in bytes (core/max_pool.h). Windows do not overlap and have no padding.

#include "core/max_pool.h"
#include "tf/kernel.h"

namespace qgraph::tf {
namespace {

constexpr int32_t kLargestWindow = 255;

struct Window {
    int32_t height = 0, width = 0, row_stride = 0, column_stride = 0;
    unsigned char is_signed = 0;
};

void* create(TF_OpKernelConstruction* construction) {
    auto window = std::make_unique<Window>();
    Reader reader(construction);
    reader.read("height", &window->height);
    reader.read("width", &window->width);
    reader.read("row_stride", &window->row_stride);
    reader.read("column_stride", &window->column_stride);
    reader.read("signed", &window->is_signed);
    reader.require(window->row_stride >= window->height && window->column_stride >= window->width,
                   "windows must not overlap");
    reader.require(int64_t{window->height} * window->width <= kLargestWindow,
                   "windows must have at most 255 elements");
    return reader.done() ? window.release() : nullptr;
}

void destroy(void* window) { delete static_cast<Window*>(window); }

void compute(void* kernel, TF_OpKernelContext* context) {
    const Window& window = *static_cast<const Window*>(kernel);
    Run run(context);
    const Tensor g = run.input(0);
    const Tensor codes = run.input(1);
    if (!run.fine()) return;
    const Shape dims = shape(codes);
    if (dims.size() != 4 || dims[1] < window.height || dims[2] < window.width) {
        return run.fail("the codes must be images that are not smaller than a window");
    }
    const Pool pool{dims[0],       dims[1],      dims[2],           dims[3],
                    window.height, window.width, window.row_stride, window.column_stride};
    if (shape(g) != Shape{dims[0], pool.out_rows(), pool.out_columns(), dims[3]}) {
        return run.fail("the gradient must have the shape of the result");
    }
    const Tensor gx = run.float_output(0, dims);
    if (!run.fine()) return;
    max_pool_gradient(bytes(codes), window.is_signed != 0, floats(g), floats(gx), pool);
}

void infer(TF_ShapeInferenceContext* context, TF_Status* status) {
    copy_shape(context, 0, 1, status);
}

const bool registered = [] {
    add({"QgraphMaxPoolCodesGrad",
         {"g: float", "codes: uint8"},
         {"gx: float"},
         {"height: int >= 1", "width: int >= 1", "row_stride: int >= 1", "column_stride: int >= 1",
          "signed: bool"},
         infer,
         {{}, create, compute, destroy}});
    return true;
}();

}  // namespace
}  // namespace qgraph::tf
