"""Convert an op of an older opset to the newest opset.

ONNX's reference has most ops in their newest version only, whatever opset a model asks for.
"""

from __future__ import annotations

from qgraph.errors import UnsupportedError
from qgraph.foreign import Proto

DEFAULT_DOMAIN = ("", "ai.onnx")
# ONNX's converter gives the 2-D form of older opsets to `Softmax`, but not to `Hardmax`.
FLATTENED, FLATTENED_BEFORE = {"Hardmax": "Softmax"}, 13
INTERPOLATED_BEFORE = 11  # no coordinate_transformation_mode yet: asymmetric


def in_newest_opset(model: Proto, node: str) -> Proto:
    """`model`, which is one op, in the newest opset; see `in_opset`."""
    import onnx

    return in_opset(model, node, onnx.defs.onnx_opset_version())


def same_in(model: Proto, opset: int) -> bool:
    """True where `model`, which is one op, means the same in another opset."""
    op, own = model.graph.node[0], model.opset_import[0].version
    return op.domain not in DEFAULT_DOMAIN or _version(op.op_type, own) == _version(
        op.op_type, opset
    )


def in_opset(model: Proto, node: str, newest: int) -> Proto:
    """`model`, which is one op, in a newer opset: itself if its meaning is the same.

    Raises UnsupportedError where ONNX cannot convert it.
    """
    import onnx

    op, opset = model.graph.node[0], model.opset_import[0].version
    if same_in(model, newest):
        return model
    kind = op.op_type
    stands_for = FLATTENED.get(kind, kind) if opset < FLATTENED_BEFORE else kind
    before = type(model)()
    before.CopyFrom(model)
    before.graph.node[0].op_type = stands_for
    try:
        converted = onnx.version_converter.convert_version(before, newest)
    except Exception as error:  # the converter may raise anything
        lines = str(error).splitlines() or [type(error).__name__]
        raise UnsupportedError(
            f"`{kind}` of opset {opset} cannot be converted to opset {newest}: {lines[0]}",
            node=node,
            hint="convert the model: onnx.version_converter.convert_version(model, 19)",
        ) from None
    for made in converted.graph.node:
        if made.op_type == stands_for:
            made.op_type = kind
        if made.op_type == "Resize" and opset < INTERPOLATED_BEFORE:
            asymmetric = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
            made.attribute.extend(onnx.helper.make_attribute(k, v) for k, v in asymmetric.items())
    return converted


def _version(op: str, opset: int) -> int | None:
    """The opset in which the meaning of `op` in `opset` began; None for an unknown op."""
    import onnx

    try:
        return int(onnx.defs.get_schema(op, opset, "").since_version)
    except onnx.defs.SchemaError:
        return None
