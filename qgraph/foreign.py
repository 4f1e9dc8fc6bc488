"""Names for types of libraries without type annotations; each stands for one kind of object.

Objects of the compiler have their own types.
"""

from __future__ import annotations

from typing import Any, TypeAlias

# TensorFlow and Keras.
Tensor: TypeAlias = Any  # symbolic or eager; where arithmetic is generic, a numpy array too
Variable: TypeAlias = Any
TFModule: TypeAlias = Any  # `tensorflow` itself, a library of ops, a concrete function
DatasetLike: TypeAlias = Any
TensorDType: TypeAlias = Any
KerasModel: TypeAlias = Any  # or another object of Keras: a layer, an optimizer, a loss
# Messages of protocol buffers: GraphDef, NodeDef, AttrValue, ONNX's ModelProto and its parts.
Proto: TypeAlias = Any
# A value of an attribute of a TensorFlow or ONNX node, as their helpers give and take it.
AttrValue: TypeAlias = Any
# Parts of onnx-graphsurgeon, onnxruntime and qonnx.
OnnxObject: TypeAlias = Any
# The packages `tflite` and `flatbuffers`, and interpreters of `.tflite` files.
FlatObject: TypeAlias = Any
# h5py's groups and datasets.
Hdf5Object: TypeAlias = Any
# PyTorch and stable-baselines3: tensors, modules, policies, models.
TorchTensor: TypeAlias = Any
TorchModule: TypeAlias = Any
# gymnasium, dm_control, Ray, matplotlib.
GymObject: TypeAlias = Any
RayObject: TypeAlias = Any
PlotObject: TypeAlias = Any
# Contexts, commands and formatters of click, which typer has under a name that its version chooses.
ClickObject: TypeAlias = Any
# The namespace of array functions: numpy, or a module that has the same names for tensors.
Namespace: TypeAlias = Any
