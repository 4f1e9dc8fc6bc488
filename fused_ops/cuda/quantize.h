/* The quantizer's two kernels on NVIDIA GPUs, as plain C: pointers to the device's memory, and a
   cudaStream_t as void*. core/quantize.h defines their results to the bit, except for the bits of
   NaN.

   Each function returns NULL, or a text that describes the error. Work is queued on the stream, and
   nothing waits for it. An error while it runs is reported by a later call, as in CUDA. */
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* NULL if there is a usable GPU and driver. */
const char* qgraph_cuda_check(void);

/* A quantizer. Its exponents are bits - ceil(log2_t), where log2_t is on the device: float32, one
   for each of `channels`. Where an exponent is beyond 126 or NaN, y and glog2t are NaN, because the
   host would have to wait to report an error. A function reads the struct before it returns.
   type: of tensors, 0 float32, 1 bfloat16, 2 float16. rounding: 0 half_even, 1 half_up, 2
   half_away, 3 floor, 4 double (as half_away). */
typedef struct {
    const float* log2_t;
    int64_t channels;
    int32_t bits;
    float low, high;
    int32_t type;
    int32_t rounding;
} qgraph_cuda_quantizer;

/* x, y: `count` elements. y may be x. */
const char* qgraph_cuda_quantize(const qgraph_cuda_quantizer* quantizer, const void* x, void* y,
                                 int64_t count, void* stream);

/* The bytes of device memory that the gradients need as a workspace, aligned to 8. */
int64_t qgraph_cuda_workspace(int64_t count, int64_t channels);

/* gx may be g or x. glog2t: one for each channel, float64, rounded to float32 if `narrow`. */
const char* qgraph_cuda_quantize_gradients(const qgraph_cuda_quantizer* quantizer, const void* x,
                                           const void* g, void* gx, void* glog2t, int narrow,
                                           int64_t count, void* workspace, void* stream);

#ifdef __cplusplus
}
#endif
