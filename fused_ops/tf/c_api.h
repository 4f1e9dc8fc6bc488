// The part of TensorFlow's C API that the ops use, declared as in its documentation
// (tensorflow/c/{c_api,kernels,ops,tf_status,tf_tensor}.h), so that the ops build without
// TensorFlow. The C API is stable, so one binary works with every TensorFlow from 2.12 on.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

struct TF_KernelBuilder;
struct TF_OpDefinitionBuilder;
struct TF_OpKernelConstruction;
struct TF_OpKernelContext;
struct TF_ShapeHandle;
struct TF_ShapeInferenceContext;
struct TF_Status;
struct TF_Tensor;

enum TF_Code { TF_OK = 0, TF_INVALID_ARGUMENT = 3 };
enum TF_DataType { TF_FLOAT = 1, TF_UINT8 = 4, TF_BFLOAT16 = 14, TF_HALF = 19 };

struct TF_AllocatorAttributes {
    size_t struct_size;
    unsigned char on_host;
};

TF_Status* TF_NewStatus();
void TF_DeleteStatus(TF_Status* status);
void TF_SetStatus(TF_Status* status, TF_Code code, const char* message);
TF_Code TF_GetCode(const TF_Status* status);

void TF_DeleteTensor(TF_Tensor* tensor);
int TF_NumDims(const TF_Tensor* tensor);
int64_t TF_Dim(const TF_Tensor* tensor, int index);
void* TF_TensorData(const TF_Tensor* tensor);

TF_OpDefinitionBuilder* TF_NewOpDefinitionBuilder(const char* name);
void TF_OpDefinitionBuilderAddAttr(TF_OpDefinitionBuilder* builder, const char* spec);
void TF_OpDefinitionBuilderAddInput(TF_OpDefinitionBuilder* builder, const char* spec);
void TF_OpDefinitionBuilderAddOutput(TF_OpDefinitionBuilder* builder, const char* spec);
void TF_OpDefinitionBuilderSetShapeInferenceFunction(TF_OpDefinitionBuilder* builder,
                                                     void (*infer)(TF_ShapeInferenceContext*,
                                                                   TF_Status*));
void TF_RegisterOpDefinition(TF_OpDefinitionBuilder* builder, TF_Status* status);

TF_ShapeHandle* TF_NewShapeHandle();
void TF_DeleteShapeHandle(TF_ShapeHandle* shape);
void TF_ShapeInferenceContextGetInput(TF_ShapeInferenceContext* context, int index,
                                      TF_ShapeHandle* shape, TF_Status* status);
void TF_ShapeInferenceContextSetOutput(TF_ShapeInferenceContext* context, int index,
                                       TF_ShapeHandle* shape, TF_Status* status);

TF_KernelBuilder* TF_NewKernelBuilder(const char* op, const char* device,
                                      void* (*create)(TF_OpKernelConstruction*),
                                      void (*compute)(void*, TF_OpKernelContext*),
                                      void (*destroy)(void*));
void TF_KernelBuilder_TypeConstraint(TF_KernelBuilder* builder, const char* attribute,
                                     TF_DataType type, TF_Status* status);
void TF_KernelBuilder_Priority(TF_KernelBuilder* builder, int32_t priority);
void TF_RegisterKernelBuilder(const char* name, TF_KernelBuilder* builder, TF_Status* status);

void TF_OpKernelConstruction_Failure(TF_OpKernelConstruction* construction, TF_Status* status);
void TF_OpKernelConstruction_GetAttrInt32(TF_OpKernelConstruction* construction, const char* name,
                                          int32_t* value, TF_Status* status);
void TF_OpKernelConstruction_GetAttrBool(TF_OpKernelConstruction* construction, const char* name,
                                         unsigned char* value, TF_Status* status);
void TF_OpKernelConstruction_GetAttrType(TF_OpKernelConstruction* construction, const char* name,
                                         TF_DataType* value, TF_Status* status);
void TF_OpKernelConstruction_GetAttrString(TF_OpKernelConstruction* construction, const char* name,
                                           char* value, size_t size, TF_Status* status);

void TF_GetInput(TF_OpKernelContext* context, int index, TF_Tensor** tensor, TF_Status* status);
TF_Tensor* TF_AllocateOutput(TF_OpKernelContext* context, int index, TF_DataType type,
                             const int64_t* dims, int rank, size_t bytes, TF_Status* status);
TF_Tensor* TF_ForwardInputOrAllocateOutput(TF_OpKernelContext* context, const int* candidates,
                                           int count, int output, const int64_t* dims, int rank,
                                           int* forwarded, TF_Status* status);
TF_Tensor* TF_AllocateTemp(TF_OpKernelContext* context, TF_DataType type, const int64_t* dims,
                           int rank, TF_AllocatorAttributes* attributes, TF_Status* status);
void TF_OpKernelContext_Failure(TF_OpKernelContext* context, TF_Status* status);

}  // extern "C"
