"""An actor program as a calibrated graph: the network that is trained in few bits."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from qgraph.choices import WeightMethod
from qgraph.ir.graph import Graph, Node
from qgraph.ir.reading import spec_if_any, spec_of
from qgraph.ir.types import Array, Role
from qgraph.numerics import frozen_exponent
from qgraph.ops.lowerings import LoweringRefusal, Lowerings
from qgraph.quant.plan import Plan
from qgraph.rl.actor import ActorProgram, ActorStep
from qgraph.rl.actor.ops import ACTIVATIONS as OF_ACTORS
from qgraph.rl.actor.ops import OPS, Activation, LayerNormAttrs
from qgraph.rl.policy.build import profile_for
from qgraph.transforms.strip_unused import StripUnused

# Thresholds of weights that clip the largest ones are nearer to the trained ones (TQT, table 2).
START = Plan(weights=WeightMethod.DEVIATIONS)
ROOM = 2  # bits


def calibrated(
    program: ActorProgram, weights: Mapping[str, Array], observations: Array, bits: int
) -> Graph:
    """The policy with quantizers, whose first thresholds fit observations [n, *shape].

    Constants have the names of weights, and are not changed by passes. bits: of weights; the other
    bits are those of a static policy (`profile_for`). Raises UnsupportedError for a step that is
    not trained in few bits.
    """
    from qgraph.compiler import quantize

    graph = policy_graph(program, weights)
    feed = {program.observation: np.ascontiguousarray(observations, np.float32)}
    # Without the float recipe: it would merge weights, which the learner has apart.
    steps = (StripUnused(),)
    profile = profile_for(bits)
    return _with_room(quantize(graph, feed, profile=profile, plan=START, passes=steps).graph)


def _with_room(graph: Graph) -> Graph:
    """A copy whose sums may grow by ROOM bits, and whose tables hold all results.

    A policy's outputs grow while it learns, and clipped numbers have no gradient. Sums have 16
    bits, more than they need. Results of tanh and sigmoid are at most 1.
    """
    made = graph.copy()
    wide = [node for node in graph.topological() if _is_sum(node)]
    groups = {spec_of(node).group for node in wide} - {None}
    for node in graph.topological():
        spec = spec_if_any(node)
        if spec is None:
            continue
        exponent = np.asarray(spec.exponent)
        if node in wide or spec.group in groups:
            exponent = exponent - ROOM
        elif node.op == "lookup":
            exponent = np.minimum(exponent, spec.bits - spec.signed)
        made.set_attrs(node.name, spec=spec.with_exponent(frozen_exponent(exponent)))
    return made


def _is_sum(node: Node) -> bool:
    """Whether a quantizer rounds sums of a layer to 16 bits."""
    roles = (Role.INTERNAL, Role.ACTIVATION)
    return node.op == "quantize" and spec_of(node).bits == 16 and spec_of(node).role in roles


def policy_graph(program: ActorProgram, weights: Mapping[str, Array]) -> Graph:
    """The float graph of a program. Raises UnsupportedError for a step that it cannot have."""
    graph = Graph("policy")
    values = {
        program.observation: graph.input(program.observation, "float32", (None, *program.shape))
    }
    for step in program.steps:
        inputs = [values[name] for name in step.inputs]
        own = [graph.const(np.asarray(weights[name], np.float32), name) for name in step.weights]
        values[step.output] = STEPS.of(step.op, step.output)(graph, step, *inputs, *own)
    graph.outputs.update({name: values[name] for name in program.outputs})
    return graph


def check_steps(program: ActorProgram) -> None:
    """Raise UnsupportedError for a step that is not trained in few bits."""
    for step in program.steps:
        STEPS.of(step.op, step.output)


def _dense(graph: Graph, step: ActorStep, x: str, kernel: str, bias: str) -> str:
    product = graph.add("matmul", x, kernel, name=f"{step.output}/product")
    return _activated(graph, step, graph.add("bias_add", product, bias, name=f"{step.output}/sum"))


def _layer_norm(graph: Graph, step: ActorStep, x: str, gamma: str, beta: str) -> str:
    attrs = {"epsilon": step.attrs_as(LayerNormAttrs).epsilon}
    return graph.add("layer_norm", x, gamma, beta, name=step.output, attrs=attrs)


def _activated(graph: Graph, step: ActorStep, x: str) -> str:
    if step.activation is Activation.LINEAR:
        return x
    op = ACTIVATIONS.of(step.activation, step.output)
    return graph.add(op, x, name=step.output)


REFUSED = LoweringRefusal(
    "a policy with this step is not trained in few bits", "train it in float, and quantize it"
)
STEPS: Lowerings[Callable[..., str]] = Lowerings(
    "rl/trained_bits/policy_graph",
    OPS,
    {"dense": _dense, "layer_norm": _layer_norm, "activate": _activated},
    dict.fromkeys(
        (
            "conv", "affine", "clip", "center", "softmax", "max_pool", "add", "multiply",
            "concat", "flatten", "slice", "reshape", "transpose", "sum", "matmul",
            "avg_pool",
        ),
        REFUSED,
    ),
)  # fmt: skip
ACTIVATIONS: Lowerings[str] = Lowerings(
    "rl/trained_bits/policy_graph",
    OF_ACTORS,
    {name: name for name in ("relu", "tanh", "sigmoid")},
    dict.fromkeys(
        ("linear", "leaky_relu", "elu", "softplus", "swish", "exp", "sign", "erf"), REFUSED
    ),
)
