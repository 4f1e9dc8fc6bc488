"""High-bias absorption: move an offset that a ReLU nearly always passes into the next bias.

A channel far above 0 carries its whole offset through ReLU, so that the activation needs a range
that includes it. The offset can bypass the ReLU: `relu(x) = relu(x - c) + c` wherever x >= c
(Nagel et al., 2019, "Data-Free Quantization", section 4.1.3).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from qgraph.ir.graph import Graph, Node
from qgraph.ir.ops.attributes import AxesAttrs
from qgraph.ir.reading import marks_of
from qgraph.ir.types import Array, Moments
from qgraph.passes import Pass, option
from qgraph.quant.moments import clipped, moments_of
from qgraph.rewrite.channels import flattened
from qgraph.rewrite.constants import Affine, Float64, is_layer, is_unpadded, only_user, other_users
from qgraph.rewrite.layers import add_to_bias, scaled_inputs
from qgraph.rewrite.rewriter import Rewriter

_SAME = frozenset({"max_pool", "identity", "squeeze", "mean"})


@dataclass(frozen=True)
class AbsorbBiases(Pass):
    """Move `c = max(0, mean - deviations * deviation)` from a bias through ReLU to the next bias.

    It passes ReLU, ReLU6, clips per channel, pools and flatten. Mean and deviation come from batch
    norms. The result is not exact where a value is below c: the log states the error of the mean
    output. Refusals: a user that is not a layer; zero padding, whose zeros would have to become -c.
    """

    deviations: float = option(
        "Standard deviations below its mean that a channel is assumed to reach.",
        low=0,
        default=3.0,
    )
    name: ClassVar[str] = "absorb-biases"
    requires: ClassVar[frozenset[str]] = frozenset({"batch-norm-folded"})

    def apply(self, rewriter: Rewriter) -> None:
        rewriter.rule = "absorb"
        for node in list(rewriter.graph.topological()):
            if node.op == "bias_add" and node.name in rewriter.graph.nodes:
                self._absorb(rewriter, rewriter.graph.nodes[node.name])

    def _absorb(self, rewriter: Rewriter, bias: Node) -> bool:
        graph = rewriter.graph
        moments, offset = moments_of(graph, bias.name), graph.constant(bias.inputs[1])
        relu = only_user(graph, bias.name)
        if moments is None or offset is None or relu is None or relu.op not in ("relu", "relu6"):
            return False
        c = np.maximum(moments.mean - self.deviations * moments.deviation, 0)
        clip = _clip_after(graph, relu)
        highest = graph.constant(clip.inputs[1]) if clip is not None else None
        usual = np.asarray(6.0 if relu.op == "relu6" else np.inf)
        bound = np.broadcast_to(usual if highest is None else highest, c.shape)
        c = np.minimum(c, bound)
        if not c.any():
            return False
        way = _OffsetPath(graph)
        last = (clip or relu).name
        reason = way.follow(last, c)
        if reason is not None:
            return rewriter.refuse(bias, reason)

        for layer, shift in way.layers:
            add_to_bias(rewriter, layer, shift)
        lower = rewriter.const((offset - c).astype(offset.dtype), f"{bias.inputs[1]}/absorbed")
        graph.replace(replace(bias, inputs=(bias.inputs[0], lower)))
        rewriter.prune(bias.inputs[1])
        _lower_clip(rewriter, relu, clip, (bound - c).astype(offset.dtype))
        for value, shift in ((bias.name, c), (relu.name, c), *way.values):
            if value in graph.moments:
                graph.moments[value] = graph.moments[value].shifted(-shift)
        missing = clipped(moments, 0, bound).mean - c - clipped(
            Moments(moments.mean - c, moments.deviation), 0, bound - c
        ).mean  # fmt: skip
        worst = float(np.abs(missing[c > 0]).max())
        return rewriter.log(
            bias,
            f"up to {c.max():.3g} of {int((c > 0).sum())} of {c.size} channels goes to "
            f"{', '.join(f'`{layer.name}`' for layer, _ in way.layers)}; "
            f"the mean of a channel moves by at most {worst:.2g}",
        )


def _clip_after(graph: Graph, relu: Node) -> Node | None:
    """The `minimum(relu, constant)` that is the only user of a ReLU."""
    user = only_user(graph, relu.name)
    if user is None or user.op != "minimum" or user.inputs[0] != relu.name:
        return None
    bound = graph.constant(user.inputs[1])
    return user if bound is not None and bound.ndim <= 1 and relu.op == "relu" else None


def _lower_clip(rewriter: Rewriter, relu: Node, clip: Node | None, bound: Array) -> None:
    graph = rewriter.graph
    if clip is not None:
        lower = rewriter.const(bound, f"{clip.inputs[1]}/absorbed")
        graph.replace(replace(clip, inputs=(relu.name, lower)))
        rewriter.prune(clip.inputs[1])
    elif relu.op == "relu6":
        positive = rewriter.add("relu", relu.inputs[0], name=f"{relu.name}/relu")
        lower = rewriter.const(bound, f"{relu.name}/six")
        graph.replace(Node(relu.name, "minimum", (positive, lower), control=relu.control))


@dataclass
class _OffsetPath:
    """Destination of an offset: layers whose biases take it, and values that lose it."""

    graph: Graph
    layers: list[tuple[Node, Float64]] = field(default_factory=list)
    values: list[tuple[str, Float64]] = field(default_factory=list)

    def follow(self, value: str, c: Float64) -> str | None:
        """Follow `value`, which carries the offset `c`, to layers; return the obstacle if any."""
        graph = self.graph
        self.values.append((value, c))
        if graph.is_output(value) or not graph.users(value):
            return other_users(graph, value) or f"nothing uses `{value}`"
        for user in graph.users(value):
            reason = self._into(user, value, c)
            if reason is not None:
                return reason
        return None

    def _into(self, user: Node, value: str, c: Float64) -> str | None:
        graph = self.graph
        weights = graph.constant(user.inputs[1]) if len(user.inputs) > 1 else None
        pads = f"`{user.name}` pads with zeros, which cannot take the offset"
        if is_layer(user) and user.inputs[0] == value and weights is not None:
            if not is_unpadded(graph, user):
                return pads
            _, shift = scaled_inputs(user.op, weights, Affine(np.ones_like(c), c))
            self.layers.append((user, shift))
            return None
        if marks_of(user).pool and user.op == "depthwise_conv2d" and weights is not None:
            if not is_unpadded(graph, user):
                return pads
            return self.follow(user.name, c * weights.sum(axis=(0, 1), dtype=np.float64)[:, 0])
        if user.op in _SAME and _keeps_channels(graph, user):
            return self.follow(user.name, c)
        if user.op == "reshape" and (tiled := flattened(graph, user, c)) is not None:
            return self.follow(user.name, tiled)
        return f"it is used by `{user.name}` ({user.op}), which is not a layer"


def _keeps_channels(graph: Graph, node: Node) -> bool:
    rank, attrs = graph.types[node.inputs[0]].rank, node.attributes
    axes = attrs.axes if isinstance(attrs, AxesAttrs) else ()
    return not axes or (rank is not None and all(axis % rank != rank - 1 for axis in axes))
