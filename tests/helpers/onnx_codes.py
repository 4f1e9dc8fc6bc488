"""Types of the codes in a QDQ file."""

from collections import Counter

import onnx
from onnx import TensorProto


def types_of(model: onnx.ModelProto) -> Counter:
    """Types of zero points, and of constants that are dequantized."""
    held = {one.name: TensorProto.DataType.Name(one.data_type) for one in model.graph.initializer}
    nodes = [n for n in model.graph.node if n.op_type in ("QuantizeLinear", "DequantizeLinear")]
    read = [(n.op_type, name) for n in nodes for name in (n.input[0], *n.input[2:])]
    return Counter(held[name] for _, name in read if name in held)
