"""Ops that are not supported, written as in their ONNX file."""

from __future__ import annotations

import onnx

from qgraph.backends.onnx.floats.emission import FloatEmission
from qgraph.errors import UnsupportedError
from qgraph.frontends.onnx.opaque import OnnxSource
from qgraph.frontends.onnx.opsets import DEFAULT_DOMAIN, in_opset, same_in
from qgraph.ir.graph import Graph, Node
from qgraph.ir.ops.structure import OpaqueAttrs
from qgraph.ir.reading import kind_of

OPSET = 18  # for models without ops that need a newer one


def opset_of(graph: Graph) -> int:
    """The opset of the model: 18, or the newest that an op from its file needs."""
    models = [_model(node) for node in graph.nodes.values() if node.op == "opaque"]
    needed: list[int] = [m.opset_import[0].version for m in models if not same_in(m, OPSET)]
    return max([OPSET, *needed])


def opaque(e: FloatEmission, node: Node) -> None:
    """The nodes of the op, with the values of this model."""
    model = in_opset(_model(node), node.name, e.model.opset)
    (op, *_), graph = model.graph.node, model.graph
    if op.domain not in DEFAULT_DOMAIN:
        version = model.opset_import[0].version
        if e.model.domains.setdefault(op.domain, version) != version:
            raise UnsupportedError(
                f"`{op.op_type}` is of version {version} of `{op.domain}`, another op of version "
                f"{e.model.domains[op.domain]}: one model holds one of them",
                node=node.name,
            )
    names = {"": ""}
    for feed, value in zip(graph.input, node.inputs, strict=True):
        names[feed.name] = e.get(value)
    for held in graph.initializer:
        names[held.name] = e.model.constant(onnx.numpy_helper.to_array(held), node.name)
    results = {output.name: value for output, value in zip(graph.output, node.values, strict=True)}
    for part in graph.node:
        made = onnx.NodeProto()
        made.CopyFrom(part)
        for output in part.output:
            if output:
                names[output] = e.model.fresh(results.get(output, node.name))
        del made.input[:], made.output[:]
        made.input.extend(names[name] for name in part.input)
        made.output.extend(names[name] for name in part.output)
        made.name = next(name for name in made.output if name)
        e.model.nodes.append(made)
    for output, value in results.items():
        e.put(value, names[output])


def _model(node: Node) -> onnx.ModelProto:
    source = node.typed(OpaqueAttrs).source
    if not isinstance(source, OnnxSource):
        raise UnsupportedError(
            f"`{kind_of(node)}` is not supported and not an ONNX op, so it cannot be written",
            node=node.name,
            hint="write a .pb; or exclude it: choose --inputs and --outputs that do not need it",
        )
    return onnx.load_model_from_string(source.model)
