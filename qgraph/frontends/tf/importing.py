"""GraphDef -> Graph: find the ends, import the nodes between, remove those no longer needed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from qgraph.errors import GraphError, LoadError, UsageError
from qgraph.foreign import Proto
from qgraph.frontends.site import Ref
from qgraph.frontends.tf.builder import GraphBuilder
from qgraph.frontends.tf.ends import (
    PLACEHOLDERS,
    check_whole,
    find_inputs,
    find_outputs,
    needed,
    no_outputs,
    resolve,
)
from qgraph.frontends.tf.inline import inline_calls
from qgraph.frontends.tf.node import TFNode, read_nodes
from qgraph.frontends.tf.ops import EVALUATORS, IMPORTERS
from qgraph.frontends.tf.refused import check_loops
from qgraph.frontends.tf.widening import widened
from qgraph.ir.graph import Graph
from qgraph.ir.narrow_floats import note
from qgraph.ir.order import inputs_first
from qgraph.ir.types import Shape
from qgraph.ir.verify import verify

# Below this producer version, a placeholder of rank 0 means that its shape is unknown.
FIRST_PRODUCER_WITH_SHAPES = 24


def import_graph_def(
    graph_def: Proto,
    *,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    input_shapes: Mapping[str, Shape] | None = None,
    signature: Mapping[str, str] | None = None,
    name: str = "graph",
) -> Graph:
    """A frozen GraphDef as a verified Graph.

    `inputs` and `outputs` name nodes or tensors (`x`, `x:0`); without them they are detected.
    `signature` maps public output names to tensors. Inputs that are named stay, used or not. Float
    types narrower than float32 become float32, which is noted (`Graph.notes`).
    Raises UsageError for names that do not exist, GraphError, LoadError or UnsupportedError
    naming the node.
    """
    graph_def, narrow = widened(graph_def)
    graph_def = inline_calls(graph_def)
    nodes = read_nodes(graph_def)
    library = graph_def.library.SerializeToString(deterministic=True)
    return import_nodes(
        nodes,
        GraphBuilder(name, nodes, library, IMPORTERS, EVALUATORS),
        inputs=inputs,
        outputs=outputs,
        input_shapes=input_shapes,
        signature=signature,
        shapes_known=graph_def.versions.producer >= FIRST_PRODUCER_WITH_SHAPES,
        narrow=narrow,
    )


def import_nodes(
    nodes: Mapping[str, TFNode],
    builder: GraphBuilder,
    *,
    inputs: Sequence[str] | None,
    outputs: Sequence[str] | None,
    input_shapes: Mapping[str, Shape] | None,
    signature: Mapping[str, str] | None,
    shapes_known: bool = True,
    narrow: Collection[str] = (),
) -> Graph:
    """Nodes as a verified Graph, made by `builder`; other arguments as in `import_graph_def`.

    shapes_known: Whether a placeholder of rank 0 is a scalar.
    narrow: Float types of the file that became float32.
    """
    ends = _output_refs(nodes, outputs, signature)
    cut = dict.fromkeys(_input_name(nodes, i) for i in inputs or ())
    order = needed(nodes, list(ends.values()), cut)
    check_loops(order)
    starts = list(cut) if inputs else find_inputs(nodes, order)
    if inputs:
        _refuse_unnamed(order, cut)
    shapes = given_shapes(starts, input_shapes)
    for start in starts:
        builder.add_input(start, *_input_type(nodes[start], shapes, shapes_known))
    try:
        for node in order:
            builder.add(node)
    except GraphError as error:
        raise with_shape_hint(error, builder.graph) from None
    graph = builder.graph
    graph.notes += [note(narrow)] if narrow else []
    graph.outputs = _outputs(builder, ends, explicit=bool(outputs or signature))
    sweep(graph, keep=cut)
    _add_control(graph, nodes)
    verify(graph)
    return graph


def _output_refs(
    nodes: Mapping[str, TFNode], outputs: Sequence[str] | None, signature: Mapping[str, str] | None
) -> dict[str, Ref]:
    """Public name -> tensor."""
    public = dict(signature or {})
    if outputs is None:
        if public:
            return {key: resolve(nodes, ref, "output", ()) for key, ref in public.items()}
        check_whole(nodes)
        found = find_outputs(nodes)
        if not found:
            raise no_outputs()
        return {sink: (sink, 0) for sink in found}
    candidates = [*public, *([] if public else find_outputs(nodes))]
    return {
        output.removesuffix(":0"): resolve(nodes, public.get(output, output), "output", candidates)
        for output in outputs
    }


def _input_name(nodes: Mapping[str, TFNode], name: str) -> str:
    candidates = [n.name for n in nodes.values() if n.op.startswith("Placeholder")]
    node, index = resolve(nodes, name, "input", candidates)
    if index:
        raise UsageError(f"only a node's first output can become an input, not `{name}`")
    return node


def _refuse_unnamed(order: Sequence[TFNode], cut: Collection[str]) -> None:
    missing = [n.name for n in order if n.op in PLACEHOLDERS and n.name not in cut]
    if missing:
        raise UsageError(
            f"the outputs also need {', '.join(f'`{m}`' for m in missing)}",
            hint="name every input that is needed, or none",
        )


def given_shapes(starts: Sequence[str], given: Mapping[str, Shape] | None) -> dict[str, Shape]:
    """Shapes by input. Raises UsageError for a shape whose name is not an input."""
    shapes = {
        key if key in starts else key.removesuffix(":0"): tuple(shape)
        for key, shape in (given or {}).items()
    }
    if len(starts) == 1 and "" in shapes:  # a shape without a name belongs to the only input
        shapes[starts[0]] = shapes.pop("")
    for key in shapes:
        if key not in starts:
            listed = ", ".join(f"`{s}`" for s in starts)
            raise UsageError(
                f"`{key}` is given a shape, but is not an input", hint=f"inputs: {listed}"
            )
    return shapes


def _input_type(
    node: TFNode, shapes: Mapping[str, Shape], shapes_known: bool
) -> tuple[str, Shape | None]:
    shape = node.shape()
    if shape == () and not shapes_known:
        shape = None
    if shape is None:
        shape = node.recorded_shape()
    if node.name in shapes:
        shape = shapes[node.name]
    elif not node.op.startswith("Placeholder") and shape is None:
        raise UsageError(
            f"`{node.name}` ({node.op}) is named as an input, but its shape is unknown",
            hint=f"give it: --input-shape {node.name}=1,224,224,3",
        )
    dtype = node.dtype("dtype", "") or node.dtype("DstT", "") or node.dtype("T")
    return dtype, shape


def with_shape_hint(error: GraphError, graph: Graph) -> GraphError:
    """`error`, with a hint to give the shape of an input where one is unknown."""
    unknown = [i for i in graph.inputs if graph.types[i].shape is None]
    if not unknown or error.hint:
        return error
    hint = (
        f"the shape of `{unknown[0]}` is unknown; give it: --input-shape {unknown[0]}=1,224,224,3"
    )
    return GraphError(error.message, node=error.node, hint=hint)


def _outputs(builder: GraphBuilder, ends: Mapping[str, Ref], *, explicit: bool) -> dict[str, str]:
    outputs: dict[str, str] = {}
    for public, ref in ends.items():
        value = builder.value(ref, public)
        if value is None:
            raise LoadError("this output is on a branch that is never taken", node=public)
        outputs[public] = value
        if not explicit:
            for i, other in enumerate(builder.values(ref[0])[1:], 1):
                outputs[f"{public}:{i}"] = other
    return outputs


def sweep(graph: Graph, keep: Collection[str]) -> None:
    """Remove nodes that no output needs, such as shape arithmetic that became attributes."""
    for node in reversed(graph.topological()):
        if node.name not in keep and not any(map(graph.is_used, node.values)):
            graph.remove(node.name)


def _add_control(graph: Graph, nodes: Mapping[str, TFNode]) -> None:
    """Add control edges between imported nodes, also through NoOps that were not imported.

    A node does not wait for one that its inputs are computed from.
    """
    for name, node in nodes.items():
        if node.control and name in graph.nodes:
            imported = graph.nodes[name]
            control = _control_sources(graph, nodes, node)
            if control and imported.op not in ("const", "input"):
                before = {*inputs_first(imported.inputs, lambda v: graph.producer(v).inputs)}
                left = tuple(c for c in control if before.isdisjoint(graph.nodes[c].values))
                graph.replace(replace(imported, control=left))


def _control_sources(graph: Graph, nodes: Mapping[str, TFNode], node: TFNode) -> tuple[str, ...]:
    found: dict[str, None] = {}
    queue, seen = list(reversed(node.control)), set(node.control)
    while queue:
        source = queue.pop()
        if source in graph.nodes:
            if not _is_constant(graph, source):
                found[source] = None
        elif source in nodes and nodes[source].op == "NoOp":
            fresh = [c for c in reversed(nodes[source].control) if c not in seen]
            seen.update(fresh)
            queue += fresh
    return tuple(found)


def _is_constant(graph: Graph, name: str) -> bool:
    """True for inputs and constants, for which no node has to wait."""
    node = graph.nodes[name]
    while node.op == "identity":
        node = graph.producer(node.inputs[0])
    return node.op in ("const", "input")
