/* The epilogue's two kernels on NVIDIA GPUs, as plain C, with the conventions of cuda/quantize.h.
   core/epilogue.h defines their results to the bit. Tensors are float32. */
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* log2_t: one number on the device. */
typedef struct {
    const float* log2_t;
    int32_t bits;
    float low, high;
} qgraph_cuda_codes;

/* bias: on the device, one for each channel. high: the same, for clip and relu6. activation: 0
   none, 1 relu, 2 relu6, 3 clip. The last two differ where a value equals high: relu6 has no
   gradient there. */
typedef struct {
    qgraph_cuda_codes inner, outer;
    const float* bias;
    const float* high;
    int64_t channels;
    int32_t rounding;
    int32_t activation;
} qgraph_cuda_epilogue;

/* y may be x. */
const char* qgraph_cuda_epilogue_forward(const qgraph_cuda_epilogue* epilogue, const float* x,
                                         float* y, int64_t count, void* stream);

/* The bytes of device memory that the gradients need as a workspace, aligned to 8. */
int64_t qgraph_cuda_epilogue_workspace(int64_t count, int64_t channels, int activation);

/* gx may be g or x. The other gradients are float64, rounded to float32 if `narrow`. */
typedef struct {
    float* x;
    void* inner_log2_t;
    void* log2_t;
    void* bias;
    void* high; /* for clip and relu6 */
    int32_t narrow;
} qgraph_cuda_epilogue_results;

const char* qgraph_cuda_epilogue_gradients(const qgraph_cuda_epilogue* epilogue, const float* x,
                                           const float* g,
                                           const qgraph_cuda_epilogue_results* gradients,
                                           int64_t count, void* workspace, void* stream);

#ifdef __cplusplus
}
#endif
