"""Model -> Graph: find the ends, import the nodes between, remove those no longer needed."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from qgraph.errors import GraphError, UnsupportedError, UsageError
from qgraph.frontends.onnx.builder import OnnxGraphBuilder
from qgraph.frontends.onnx.model import Model
from qgraph.frontends.onnx.node import INPUT, OnnxNode
from qgraph.frontends.onnx.opaque import EXCLUDE_HINT
from qgraph.frontends.onnx.ops import EVALUATORS, IMPORTERS
from qgraph.frontends.site import Ref
from qgraph.frontends.tf.ends import needed, no_outputs
from qgraph.frontends.tf.importing import given_shapes, sweep, with_shape_hint
from qgraph.ir.graph import Graph
from qgraph.ir.narrow_floats import note
from qgraph.ir.types import Shape, TensorType
from qgraph.ir.verify import verify


def import_model(
    model: Model,
    *,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    input_shapes: Mapping[str, Shape] | None = None,
    name: str = "graph",
) -> Graph:
    """A model as a verified Graph.

    `inputs` and `outputs` name tensors (or nodes, by their first output); without them they are
    the model's, less the inputs that no output needs. Shapes are as in the model: images in NCHW.
    Float types narrower than float32 become float32, which is noted (`Graph.notes`).
    Raises UsageError for names that do not exist, GraphError, LoadError or UnsupportedError naming
    the node.
    """
    ends = _ends(model, outputs)
    cut = [_input(model, i) for i in inputs or ()]
    order = needed(model.nodes, list(ends.values()), cut)
    found = {n.name for n in order if n.op == INPUT}
    starts = cut or [model.tensors[t][0] for t in model.inputs if model.tensors[t][0] in found]
    missing = sorted(found - set(starts))
    if missing:
        raise UsageError(
            f"the outputs also need {', '.join(f'`{m}`' for m in missing)}",
            hint="name every input that is needed, or none",
        )
    shapes = given_shapes(starts, input_shapes)
    builder = OnnxGraphBuilder(name, model.nodes, model.folder, IMPORTERS, EVALUATORS, model.grids)
    for start in starts:
        kind = _input_type(model, start, shapes)
        builder.add_input(start, kind.dtype, kind.shape)
    try:
        for node in _without_unused(order, ends.values()):
            builder.add(node)
    except UnsupportedError as error:
        if error.hint == EXCLUDE_HINT:
            error.hint = _outputs_without(model, error.node, ends, cut) or EXCLUDE_HINT
        raise
    except GraphError as error:
        raise with_shape_hint(error, builder.graph) from None
    graph = builder.graph
    graph.notes += [*([note(model.narrow)] if model.narrow else []), *model.notes]
    graph.outputs = {public: builder.value(ref, public) for public, ref in ends.items()}
    sweep(graph, keep=cut)
    verify(graph)
    return graph


def _outputs_without(
    model: Model, refused: str | None, ends: Mapping[str, Ref], cut: Sequence[str]
) -> str:
    """A hint that names the outputs that do not need the refused node; empty if none does."""
    others = []
    for public, ref in ends.items():
        names = {node.name: node.op for node in needed(model.nodes, [ref], cut)}
        if refused not in names and INPUT in names.values():
            others.append(public)
    if not others or refused not in model.nodes:
        return ""
    return f"choose outputs that do not need it: --outputs {','.join(others)}"


def _without_unused(order: Sequence[OnnxNode], ends: Iterable[Ref]) -> Iterator[OnnxNode]:
    """The nodes without unused outputs: exporters often list all outputs."""
    used = {*ends, *(ref for node in order for ref in node.inputs)}
    for node in order:
        outputs = tuple(o if (node.name, i) in used else "" for i, o in enumerate(node.outputs))
        yield replace(node, outputs=outputs)


def _ends(model: Model, outputs: Sequence[str] | None) -> dict[str, Ref]:
    """Public name -> tensor."""
    if outputs is not None:
        return {o: _resolved(model, o, "output", model.outputs) for o in outputs}
    if not model.outputs:
        raise no_outputs()
    refs = {t: model.tensors.get(t) for t in model.outputs}
    for tensor, ref in refs.items():
        if ref is None:
            raise GraphError(
                "no node produces this output", node=tensor, hint="the graph is damaged"
            )
    return {tensor: ref for tensor, ref in refs.items() if ref is not None}


def _resolved(model: Model, name: str, what: str, candidates: Sequence[str]) -> Ref:
    """The tensor that a user named, with or without `:0`, or the first output of that node."""
    for spelled in (name, f"{name}:0", name.removesuffix(":0")):
        if spelled in model.tensors:
            return model.tensors[spelled]
    for node in model.nodes.values():
        if name in (*node.outputs, node.label):
            return node.name, node.outputs.index(name) if name in node.outputs else 0
    near = difflib.get_close_matches(name, list(model.tensors), n=3)
    listed = ", ".join(f"`{c}`" for c in dict.fromkeys([*candidates[:12], *near]))
    raise UsageError(f"the model has no {what} `{name}`", hint=f"candidates: {listed}")


def _input(model: Model, name: str) -> str:
    node, index = _resolved(model, name, "input", model.inputs)
    if index:
        raise UsageError(f"only a node's first output can become an input, not `{name}`")
    return node


def _input_type(model: Model, start: str, shapes: Mapping[str, Shape]) -> TensorType:
    node = model.nodes[start]
    tensor = next(t for t, ref in model.tensors.items() if ref == (start, 0))
    known = node.attrs["type"] if node.op == INPUT else model.types.get(tensor)
    if start in shapes:
        return TensorType("float32" if known is None else known.dtype, shapes[start])
    if known is None:
        raise UsageError(
            f"`{start}` ({node.op}) is named as an input, but its shape is unknown",
            hint=f"give it: --input-shape {start}=1,3,224,224",
        )
    result: TensorType = known
    return result
