"""Model -> Graph: operators as nodes of TensorFlow ops, imported like those of a GraphDef."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from qgraph.frontends.site import Ref
from qgraph.frontends.tf.importing import import_nodes
from qgraph.frontends.tf.node import parse_ref
from qgraph.frontends.tflite.builder import LiteGraphBuilder
from qgraph.frontends.tflite.lite_node import LiteNode
from qgraph.frontends.tflite.model import LiteModel
from qgraph.frontends.tflite.quantizers import LiteQuantizers
from qgraph.frontends.tflite.subgraph_nodes import LiteFile, SubgraphNodes
from qgraph.frontends.tflite.variable_states import without_variables
from qgraph.ir.graph import Graph
from qgraph.ir.narrow_floats import NARROW
from qgraph.ir.order import inputs_first
from qgraph.ir.states import mark_states, states_of
from qgraph.ir.types import Shape


def import_tflite(
    model: LiteModel,
    *,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    input_shapes: Mapping[str, Shape] | None = None,
    name: str = "graph",
    keep_scales: bool = False,
) -> Graph:
    """A model as a verified Graph.

    `inputs` and `outputs` name tensors, as the file or as the graph calls them; without them they
    are the model's, less the inputs that no output needs. Images are in NHWC, as in the file.
    Variables that the network keeps from run to run are states: inputs and outputs that are added
    to these. Raises UsageError for names that do not exist, GraphError, LoadError or
    UnsupportedError naming the node.
    """
    model, variables = without_variables(model)
    quantizers = LiteQuantizers(keep_scales)
    file = LiteFile(model, quantizers)
    network = SubgraphNodes(file, model.network)
    nodes, refs = network.written(), network.refs
    tensors = model.network.tensors
    texts = {t.name: _text(refs[i]) for i, t in enumerate(tensors) if i in refs and t.name}
    signature = {public: _text(refs[index]) for public, index in model.outputs.items()}
    kept = {network.inputs[v.before]: refs[v.after] for v in variables} | network.states
    states = _States(nodes, {state: (f"{state}_next", ref) for state, ref in kept.items()})
    cut = None if inputs is None else [texts.get(i, i) for i in inputs]
    ends = None if outputs is None else [texts.get(o, o) for o in outputs]
    needed = states.needed([signature.get(e, e) for e in ends or signature], cut or ())
    signature |= {public: _text(ref) for public, ref in needed.values()}
    added = [public for public, _ in needed.values()]
    narrow = {t.kind.lower() for graph in model.subgraphs for t in graph.tensors} & set(NARROW)
    builder = LiteGraphBuilder(name, nodes, quantizers.grids, file.body)
    graph = import_nodes(
        nodes,
        builder,
        inputs=None if cut is None else [*cut, *(state for state in needed if state not in cut)],
        outputs=None if ends is None else [*ends, *(p for p in added if p not in ends)],
        input_shapes={texts.get(key, key): shape for key, shape in (input_shapes or {}).items()},
        signature=signature,
        narrow=narrow,
    )
    builder.check()
    mark_states(graph, {state: public for state, (public, _) in needed.items()})
    starts = {tensors[index].name: start for index, start in network.inputs.items()}
    named = {starts.get(state, state): output for state, output in model.states.items()}
    mark_states(graph, {s: o for s, o in named.items() if s in graph.inputs and o in graph.outputs})
    graph.notes += [*quantizers.notes(), *dict.fromkeys(file.remarks)]
    graph.notes += [
        f"`{state}` is kept from run to run: a state, whose next value is output `{public}`"
        for state, public in states_of(graph).items()
    ]
    return graph


def _text(ref: Ref) -> str:
    return ref[0] if not ref[1] else f"{ref[0]}:{ref[1]}"


@dataclass(frozen=True)
class _States:
    """All states of a file: for each input, the public name and place of its next value."""

    nodes: Mapping[str, LiteNode]
    states: Mapping[str, tuple[str, Ref]]

    def needed(self, ends: Iterable[str], cut: Iterable[str]) -> dict[str, tuple[str, Ref]]:
        """The states that outputs depend on, also through other states."""
        found: dict[str, tuple[str, Ref]] = {}
        starts, stops = [parse_ref(end)[0] for end in ends], {*cut}
        while True:
            order = {*inputs_first(starts, lambda name: self._before(name, stops))}
            fresh = {s: end for s, end in self.states.items() if s in order and s not in found}
            if not fresh:
                return found
            found |= fresh
            starts = [ref[0] for _, ref in fresh.values()]

    def _before(self, name: str, stops: set[str]) -> list[str]:
        node = self.nodes.get(name)
        return [] if node is None or name in stops else [ref[0] for ref in node.inputs]
