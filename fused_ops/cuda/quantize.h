/* The quantizer's two kernels on NVIDIA GPUs, as plain C: pointers to the device's memory, and a
   cudaStream_t as void*. What they compute, to the bit, is in core/quantize.h; a NaN that is
   computed may be another NaN.

   Each function returns NULL, or a text that describes the error. Work is queued on the stream, and
   nothing waits for it: what fails while it runs shows at a later call, as in CUDA. */
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* NULL if there is a GPU and a driver that serve. */
const char* qgraph_cuda_check(void);

/* x, y: `count` elements of `type` (0 float32, 1 bfloat16, 2 float16). f: int32, one for each of
   `channels`, |f| <= 126. rounding: 0 half_even, 1 half_up, 2 half_away, 3 floor, 4 double (as
   half_away). y may be x. */
const char* qgraph_cuda_quantize(const void* x, void* y, int type, int64_t count, const int32_t* f,
                                 int64_t channels, float low, float high, int rounding,
                                 void* stream);

/* Bytes of device memory, aligned to 8, that the gradients need to work in. */
int64_t qgraph_cuda_workspace(int64_t count, int64_t channels);

/* gx may be g or x. glog2t: float64, one for each channel. */
const char* qgraph_cuda_quantize_gradients(const void* x, const void* g, void* gx, double* glog2t,
                                           int type, int64_t count, const int32_t* f,
                                           int64_t channels, float low, float high, int rounding,
                                           void* workspace, void* stream);

#ifdef __cplusplus
}
#endif
