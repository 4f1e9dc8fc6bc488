// The stream of a GPU that TensorFlow runs an op on. Compiled against the TensorFlow that is
// installed, by `qgraph doctor --build-cuda`: its C API gives streams of plug-ins only.

#include "tensorflow/core/framework/op_kernel.h"
#include "xla/stream_executor/stream.h"

// context: a TF_OpKernelContext*, which is an OpKernelContext* (tensorflow/c/kernels.cc).
extern "C" __attribute__((visibility("default"))) void* qgraph_stream(void* context) {
    auto* device = static_cast<tensorflow::OpKernelContext*>(context)->op_device_context();
    return device == nullptr ? nullptr : device->stream()->platform_specific_handle().stream;
}
