// Stands in for libtensorflow_framework.so.2 when the ops are linked: its names, none of its code.
// It is not installed; at run time the library that TensorFlow has loaded serves.

#define QGRAPH_STUB(name) \
    extern "C" __attribute__((visibility("default"))) void name() {}

QGRAPH_STUB(TF_NewStatus)
QGRAPH_STUB(TF_DeleteStatus)
QGRAPH_STUB(TF_SetStatus)
QGRAPH_STUB(TF_GetCode)
QGRAPH_STUB(TF_DeleteTensor)
QGRAPH_STUB(TF_NumDims)
QGRAPH_STUB(TF_Dim)
QGRAPH_STUB(TF_TensorData)
QGRAPH_STUB(TF_NewOpDefinitionBuilder)
QGRAPH_STUB(TF_OpDefinitionBuilderAddAttr)
QGRAPH_STUB(TF_OpDefinitionBuilderAddInput)
QGRAPH_STUB(TF_OpDefinitionBuilderAddOutput)
QGRAPH_STUB(TF_OpDefinitionBuilderSetShapeInferenceFunction)
QGRAPH_STUB(TF_RegisterOpDefinition)
QGRAPH_STUB(TF_NewShapeHandle)
QGRAPH_STUB(TF_DeleteShapeHandle)
QGRAPH_STUB(TF_ShapeInferenceContextGetInput)
QGRAPH_STUB(TF_ShapeInferenceContextSetOutput)
QGRAPH_STUB(TF_NewKernelBuilder)
QGRAPH_STUB(TF_RegisterKernelBuilder)
QGRAPH_STUB(TF_OpKernelConstruction_Failure)
QGRAPH_STUB(TF_OpKernelConstruction_GetAttrInt32)
QGRAPH_STUB(TF_OpKernelConstruction_GetAttrBool)
QGRAPH_STUB(TF_OpKernelConstruction_GetAttrString)
QGRAPH_STUB(TF_GetInput)
QGRAPH_STUB(TF_AllocateOutput)
QGRAPH_STUB(TF_ForwardInputOrAllocateOutput)
QGRAPH_STUB(TF_OpKernelContext_Failure)
