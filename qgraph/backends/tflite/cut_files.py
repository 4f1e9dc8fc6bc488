"""A copy of a `.tflite` file that begins and ends at tensors inside of it."""

from __future__ import annotations

from collections.abc import Sequence

from qgraph.distribution import install_hint
from qgraph.errors import UnsupportedError
from qgraph.foreign import FlatObject
from qgraph.tflite_schema import EXTRA, IDENTIFIER


def cut(data: bytes, inputs: Sequence[int], outputs: Sequence[int], wanted: Sequence[int]) -> bytes:
    """The file with other inputs and outputs, and without operators that it no longer needs.

    wanted: numbers of further tensors that it computes. Raises UnsupportedError if LiteRT is not
    installed.
    """
    schema = _editable_schema()
    import flatbuffers

    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(data, 0))
    (graph,) = model.subgraphs
    needed, kept = {*outputs, *wanted} - {*inputs}, list[FlatObject]()
    for operator in reversed(graph.operators):
        if needed.intersection(int(n) for n in operator.outputs):
            kept.append(operator)
            needed.update(int(n) for n in operator.inputs if n not in inputs)
    graph.operators = kept[::-1]
    graph.inputs, graph.outputs = [*inputs], [*dict.fromkeys(outputs)]
    model.signatureDefs = []
    builder = flatbuffers.Builder(len(data))
    builder.Finish(model.Pack(builder), file_identifier=IDENTIFIER)
    return bytes(builder.Output())


def _editable_schema() -> FlatObject:
    """The schema with classes for editing, which LiteRT has."""
    try:
        from ai_edge_litert import schema_py_generated
    except ImportError:
        raise UnsupportedError(
            "LiteRT is not installed", hint=install_hint("ai-edge-litert", extra=EXTRA)
        ) from None
    return schema_py_generated
