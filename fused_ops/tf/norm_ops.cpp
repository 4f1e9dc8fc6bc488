// TensorFlow ops QgraphMoments and QgraphAddNormalized on the CPU, for batch norms with the
// statistics of the batch (core/norm.h). Channels are the last axis of x.

#include "core/norm.h"
#include "tf/kernel.h"

namespace qgraph::tf {
namespace {

void* create(TF_OpKernelConstruction*) { return new char; }
void destroy(void* kernel) { delete static_cast<char*>(kernel); }

bool has_channels(Run& run, const Tensor& vector, const Shape& x) {
    if (run.fine() && (x.empty() || shape(vector) != Shape{x.back()})) {
        run.fail("vectors of channels must have the shape of the last axis of x");
    }
    return run.fine();
}

void compute_moments(void*, TF_OpKernelContext* context) {
    Run run(context);
    const Tensor x = run.input(0);
    const Tensor origin = run.input(1);
    if (!run.fine()) return;
    const Shape dims = shape(x);
    if (!has_channels(run, origin, dims)) return;
    std::vector<double> mean(static_cast<size_t>(dims.back())), variance(mean.size());
    moments(floats(x), size(dims), dims.back(), floats(origin), mean.data(), variance.data());
    run.output_sums(0, shape(origin), mean.data());
    run.output_sums(1, shape(origin), variance.data());
}

void compute_sum(void*, TF_OpKernelContext* context) {
    Run run(context);
    const Tensor g = run.input(0);
    const Tensor x = run.input(1);
    const Tensor centre = run.input(2);
    const Tensor scale = run.input(3);
    const Tensor shift = run.input(4);
    if (!run.fine()) return;
    const Shape dims = shape(x);
    run.check_gradient(g, dims);
    for (const Tensor* vector : {&centre, &scale, &shift}) {
        if (!has_channels(run, *vector, dims)) return;
    }
    const Tensor out = run.output_in_place(dims);
    if (!run.fine()) return;
    add_normalized(floats(g), floats(x), floats(out), size(dims), dims.back(),
                   {floats(centre), floats(scale), floats(shift)});
}

void infer_moments(TF_ShapeInferenceContext* context, TF_Status* status) {
    copy_shape(context, 0, 1, status);
    if (TF_GetCode(status) == TF_OK) copy_shape(context, 1, 1, status);
}

void infer_sum(TF_ShapeInferenceContext* context, TF_Status* status) {
    copy_shape(context, 0, 1, status);
}

const bool registered = [] {
    add({"QgraphMoments",
         {"x: float", "origin: float"},
         {"mean: float", "variance: float"},
         {},
         infer_moments,
         {{}, create, compute_moments, destroy}});
    add({"QgraphAddNormalized",
         {"g: float", "x: float", "centre: float", "scale: float", "shift: float"},
         {"y: float"},
         {},
         infer_sum,
         {{}, create, compute_sum, destroy}});
    return true;
}();

}  // namespace
}  // namespace qgraph::tf
