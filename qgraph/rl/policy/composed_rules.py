"""Rules for activations that are several steps of an actor, and for ops with a better way."""

from __future__ import annotations

import numpy as np

from qgraph.ir.graph import Node
from qgraph.ir.ops.activation import SELU_ALPHA, SELU_SCALE, GeluAttrs, HardSigmoidAttrs
from qgraph.rl.actor.ops import Activation
from qgraph.rl.policy.writer import ActorProgramWriter, no_actor


def hard_sigmoid(writer: ActorProgramWriter, node: Node) -> None:
    _ramp(writer, node, node.name)


def hard_swish(writer: ActorProgramWriter, node: Node) -> None:
    writer.add(node.name, "multiply", node.inputs[0], _ramp(writer, node, f"{node.name}/ramp"))


def _ramp(writer: ActorProgramWriter, node: Node, name: str) -> str:
    """Add clip(alpha * x + beta, 0, 1), the value `name`."""
    attrs = node.typed(HardSigmoidAttrs)
    alpha = 1 / 6 if attrs.alpha is None else attrs.alpha
    beta = 1 / 2 if attrs.beta is None else attrs.beta
    line = _line(writer, node, f"{name}/line", node.inputs[0], alpha, beta)
    bounds = [np.full(_channels(writer, node), end, np.float32) for end in (0, 1)]
    writer.add(name, "clip", line, low=bounds[0], high=bounds[1])
    return name


def selu(writer: ActorProgramWriter, node: Node) -> None:
    attrs = {"activation": Activation.ELU, "alpha": SELU_ALPHA}
    curve = f"{node.name}/elu"
    writer.add(curve, "activate", node.inputs[0], attrs=attrs)
    _line(writer, node, node.name, curve, SELU_SCALE, 0)


def magnitude(writer: ActorProgramWriter, node: Node) -> None:
    attrs = {"activation": Activation.LEAKY_RELU, "alpha": -1.0}
    writer.add(node.name, "activate", node.inputs[0], attrs=attrs)


def square(writer: ActorProgramWriter, node: Node) -> None:
    writer.add(node.name, "multiply", node.inputs[0], node.inputs[0])


def gelu(writer: ActorProgramWriter, node: Node) -> None:
    """0.5 x (1 + erf(x / sqrt(2))); with r = sqrt(2 / pi), also
    0.5 x (1 + tanh(r x (1 + 0.044715 x^2))).
    """
    x, own, root = node.inputs[0], node.name, (2 / np.pi) ** 0.5
    if not node.typed(GeluAttrs).approximate:
        inner = _line(writer, node, f"{own}/inner", x, 0.5**0.5, 0)
        writer.add(f"{own}/erf", "activate", inner, attrs={"activation": Activation.ERF})
        writer.add(own, "multiply", x, _line(writer, node, f"{own}/share", f"{own}/erf", 0.5, 0.5))
        return
    writer.add(f"{own}/square", "multiply", x, x)
    factor = _line(writer, node, f"{own}/factor", f"{own}/square", 0.044715 * root, root)
    writer.add(f"{own}/inner", "multiply", x, factor)
    tanh = {"activation": Activation.TANH}
    writer.add(f"{own}/tanh", "activate", f"{own}/inner", attrs=tanh)
    writer.add(own, "multiply", x, _line(writer, node, f"{own}/share", f"{own}/tanh", 0.5, 0.5))


def _line(
    writer: ActorProgramWriter, node: Node, name: str, x: str, scale: float, offset: float
) -> str:
    """Add scale * x + offset, the value `name`."""
    one = np.ones(_channels(writer, node), np.float32)
    writer.add(name, "affine", x, scale=np.float32(scale) * one, offset=np.float32(offset) * one)
    return name


def _channels(writer: ActorProgramWriter, node: Node) -> int:
    return int((writer.sample(node.name) or (1,))[-1] or 1)


def choice(writer: ActorProgramWriter, node: Node) -> None:
    hint = "end the policy at its logits, one choice after the other: the head chooses"
    raise no_actor(node, "", hint)


def condition(writer: ActorProgramWriter, node: Node) -> None:
    raise no_actor(
        node,
        "",
        "if it applies a mask of valid actions, end the policy at the logits: a head with masks "
        "applies it",
    )
