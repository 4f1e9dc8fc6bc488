"""A graph as differentiable TensorFlow calls, node by node, with the ops that inference emits."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from qgraph.backends.tf.emit import emit_graph_def
from qgraph.backends.tf.program import as_tensorflow
from qgraph.errors import UnsupportedError, UsageError
from qgraph.foreign import Tensor
from qgraph.ir.graph import Graph, Node
from qgraph.ir.ops import op_definition
from qgraph.ir.reading import kind_of, value_of
from qgraph.ir.types import TensorType
from qgraph.train.normed_epilogue import PendingNorm

# Replaces an op: called with a node and the tensor of its first input.
Override = Callable[[Node, Tensor], Tensor]
# Wraps a node: called with the node, a function of its inputs that runs it, and its inputs.
Around = Callable[[Node, "Piece", Sequence[Tensor]], Tensor]
Piece = Callable[..., Sequence[Tensor]]


@dataclass(frozen=True)
class Chain:
    """Nodes in order that run as one op; the values between them have no other users.

    x: the input value. run: computes the value of the last node from the values by name. normed:
    the same for the output of a layer whose batch norm was left out; it takes that norm. None if
    the fused op is not available. layer: the value before the first quantizer, which is x or the
    first node. without_layer: the chain without this node; None if it is not one of the nodes.
    """

    x: str
    nodes: tuple[str, ...]
    run: Callable[[Mapping[str, Tensor]], Tensor]
    normed: Callable[[PendingNorm, Mapping[str, Tensor]], Tensor] | None = None
    layer: str = ""
    without_layer: Chain | None = None


# Points at which a derivative is checked: on both sides of 0, of all sizes, no whole numbers.
FLAT_POINTS = np.sinh(np.linspace(-10, 10, 100))
FLAT_STEP = 1e-9
NOTHING: Mapping[str, Tensor] = MappingProxyType({})


def piece_of(graph: Graph, node: Node, dtype: str | None = None) -> Piece:
    """`node` as a function of its inputs. dtype: type of all inputs instead of their own.

    It is a function because a gradient tape does not see ops that are imported directly.
    """
    import tensorflow as tf

    alone = Graph(node.name)
    feeds = [f"feed{i}" for i in range(len(node.inputs))]
    for name, value in zip(feeds, node.inputs, strict=True):
        kind: TensorType = graph.types[value]
        alone.input(name, dtype or kind.dtype, kind.shape)
    alone.insert(Node("node", node.op, tuple(feeds), node.attrs, (), node.outputs))
    results = [f"result{i}" for i in range(node.outputs)]
    alone.outputs.update(zip(results, alone.nodes["node"].values, strict=True))
    made = as_tensorflow(emit_graph_def(alone, {}))
    types = [alone.types[name] for name in feeds]
    signature = [tf.TensorSpec(kind.shape, kind.dtype) for kind in types]

    def imported(*inputs: Tensor) -> Tensor:
        fed = {f"{name}:0": tensor for name, tensor in zip(feeds, inputs, strict=True)}
        return tf.graph_util.import_graph_def(made, fed, [f"{r}:0" for r in results], name="")

    function: Piece = tf.compat.v1.wrap_function(imported, signature)
    known = node.op != "opaque" or _has_gradient(function, signature)
    return function if known and not _is_flat(node, types) else _without_gradient(function, node)


def _is_flat(node: Node, types: Sequence[TensorType]) -> bool:
    """Whether a node is a function of elements that rounds: its derivative is 0 everywhere."""
    definition = op_definition(node.op)
    if not definition.elementwise or len(types) != 1 or not types[0].is_float:
        return False
    if definition.evaluate is None:
        return False
    beside = FLAT_POINTS * (1 + FLAT_STEP)
    with np.errstate(all="ignore"):
        here, there = (definition.evaluate(node.attributes, [x]) for x in (FLAT_POINTS, beside))
    return np.array_equal(here, there, equal_nan=True)


def _has_gradient(piece: Piece, signature: Sequence[Tensor]) -> bool:
    """Whether all float results of `piece` have a gradient."""
    import tensorflow as tf

    def run(*inputs: Tensor) -> list[Tensor]:
        floats = [x for x in inputs if x.dtype.is_floating]
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(floats)
            results = [y for y in piece(*inputs) if y.dtype.is_floating]
        return [all(g is None for g in tape.gradient(y, floats)) for y in results]

    missing: list[bool] = []
    try:
        with tf.Graph().as_default():
            missing = run(*(tf.compat.v1.placeholder(s.dtype, s.shape) for s in signature))
    except LookupError:  # TensorFlow has no gradient for the op
        return False
    return not any(missing)


def _without_gradient(piece: Piece, node: Node) -> Piece:
    """`piece`, whose gradient raises UnsupportedError that names `node`."""
    import tensorflow as tf

    def run(*inputs: Tensor) -> tuple[Sequence[Tensor], Callable[..., Tensor]]:
        def gradient(*upstream: Tensor) -> Tensor:
            raise UnsupportedError(
                f"`{kind_of(node)}` has no gradient, so nothing before it can be trained",
                node=node.name,
                hint="train an output that does not depend on it (--output), or cut the network "
                "before it (--outputs)",
            )

        return piece(*inputs), gradient

    made: Piece = tf.custom_gradient(run)
    return made


class Forward:
    """Runs a graph on tensors, node by node.

    replaced: ops that every call replaces by `overrides`.
    """

    def __init__(self, graph: Graph, replaced: Collection[str] = ()) -> None:
        self.graph = graph
        self.order = graph.topological()
        known = {"input", "const", *replaced}
        self.pieces = {n.name: piece_of(graph, n) for n in self.order if n.op not in known}
        self.wide_pieces: dict[str, Piece] = {}

    def __call__(
        self,
        inputs: Mapping[str, Tensor],
        constants: Mapping[str, Tensor] = NOTHING,
        overrides: Mapping[str, Override] = NOTHING,
        around: Mapping[str, Around] = NOTHING,
        wide: Collection[str] = (),
        chains: Iterable[Chain] = (),
        pieces: Mapping[str, Piece] = NOTHING,
    ) -> dict[str, Tensor]:
        """Every value by name, except those inside of chains that ran.

        constants: tensors to use instead of const nodes. overrides: functions to use instead of
        ops. around: by node with one output, a function that runs it. wide: nodes to compute in
        float64; nodes that use their values are computed in float64 too, up to an override.
        chains: nodes to run as one op, if their input is float32. pieces: by node, the function to
        run instead of it in float32.
        """
        import tensorflow as tf

        values: dict[str, Tensor] = dict(inputs)
        chained = {name: chain for chain in chains for name in chain.nodes}
        for node in self.order:
            if node.op == "input":
                continue
            chain = chained.get(node.name)
            if chain and chain.layer not in wide and values[chain.x].dtype == tf.float32:
                if node.name == chain.nodes[-1]:
                    values[node.name] = chain.run(values)
            elif node.op == "const":
                known = constants.get(node.name)
                values[node.name] = tf.constant(value_of(node)) if known is None else known
            elif node.op in overrides:
                values[node.name] = overrides[node.op](node, values[node.inputs[0]])
            else:
                fed = [values[v] for v in node.inputs]
                piece = pieces.get(node.name, self.pieces[node.name])
                if node.name in wide or any(x.dtype == tf.float64 for x in fed):
                    piece, fed = self._wide(node), [tf.cast(x, tf.float64) for x in fed]
                if node.name in around:
                    values[node.name] = around[node.name](node, piece, fed)
                else:
                    values.update(zip(node.values, piece(*fed), strict=True))
        return values

    def _wide(self, node: Node) -> Piece:
        if node.name not in self.wide_pieces:
            self.wide_pieces[node.name] = piece_of(self.graph, node, "float64")
        return self.wide_pieces[node.name]


def shaped(x: Tensor, graph: Graph, name: str) -> Tensor:
    """`x`, checked to have the shape of the input `name`: its batch size may be fixed.

    Raises UsageError, or InvalidArgumentError if the shape is known only when the graph runs.
    """
    import tensorflow as tf

    shape = graph.types[name].shape
    if shape is not None and not x.shape.is_compatible_with(shape):
        wanted, free = _text(shape), _text((None, *shape[1:]))
        raise UsageError(  # without a hint: Keras keeps only the message of an error
            f"`{name}` takes the shape {wanted}, not {_text(x.shape)}; for batches of any size, "
            f"quantize again with --input-shape {name}={free}"
        )
    return tf.ensure_shape(x, shape)


def _text(shape: Iterable[int | None]) -> str:
    return ",".join("?" if size is None else str(size) for size in shape)
