"""Random networks and targets, every choice of them drawn: failures shrink to small ones."""

from collections.abc import Callable

import numpy as np
from hypothesis import strategies as st

from qgraph.ir.graph import Graph
from qgraph.ir.types import ROUNDINGS
from qgraph.quant.profile import Bits, Profile
from tests.helpers.random_graphs import Network, Value

LAYERS = 6
BITS = st.sampled_from([8, 8, 8, 4, 2, 3, 6, 12, 16])
WIDE = st.sampled_from([16, 16, 12, 8, 10])
MAYBE_WIDE = st.one_of(st.none(), WIDE)
POINTWISE = ("abs", "sigmoid", "tanh", "swish", "hard_sigmoid", "elu", "gelu", "softplus")


class Drawn(Network):
    """The layers of `Network`, and more: tables, layer norms, products, moves."""

    def __init__(self, draw: Callable) -> None:
        self.draw = draw
        super().__init__(draw(st.integers(0, 1000)), "float32")
        self.graph = Graph("drawn")
        shape = draw(st.tuples(st.integers(1, 7), st.integers(1, 7), st.integers(1, 5)))
        self.live = [self.graph.input("x", "float32", (None, *shape))]

    def chance(self, probability: float) -> bool:
        return self.draw(st.booleans())

    def choose(self, *options):
        return options[self.draw(st.integers(0, len(options) - 1))]

    def window(self, x: Value, kernel: int, strides: tuple, dilations: tuple) -> dict:
        span, sizes = (kernel - 1) * max(dilations) + 1, self.shape(x)[1:3]
        pads = st.tuples(*[st.tuples(*[st.integers(0, kernel)] * 2)] * 2)
        explicit = self.draw(pads)
        options = ["same", *(["valid"] if min(sizes) >= span else [])]
        if all(size + sum(p) >= span for size, p in zip(sizes, explicit, strict=True)):
            options.append(explicit)
        return {"strides": strides, "dilations": dilations, "padding": self.choose(*options)}

    # -- layers ------------------------------------------------------------------------------

    def table(self, x: Value) -> Value:
        return self.op(self.choose(*POINTWISE), x)

    def layer_norm(self, x: Value) -> Value:
        channels = self.shape(x)[-1]
        gamma = self.const(self.choose(self.normal(channels), np.ones(channels)), "gamma")
        beta = self.const(self.normal(channels), "beta")
        return self.op("layer_norm", x, gamma, beta, epsilon=self.choose(1e-5, 0.0, 1e-12, 0.1))

    def product(self, x: Value) -> Value:
        gate = self.op("sigmoid", self.op("mean", x, axes=(1, 2), keepdims=True))
        return self.op("mul", x, gate, name="gated")

    def difference(self, x: Value) -> Value:
        same = [v for v in self.live if self.shape(v) == self.shape(x)]
        return self.op(self.choose("sub", "minimum"), x, self.choose(*same))

    def move(self, x: Value) -> Value:
        _, h, w, c = self.shape(x)
        kind = self.choose("slice", "resize", "blocks", "mirror", "turn", "flat", "top")
        if kind == "slice":
            step = self.choose(1, -1)
            return self.op("slice", x, begin=(None, None, None, None), end=(None,) * 4,
                           strides=(1, step, 1, self.choose(1, 2)))  # fmt: skip
        if kind == "resize" and h * w < 40:
            return self.op("resize_nearest", x, size=(h + 1, 2 * w), half_pixel=self.chance(0.5))
        if kind == "blocks" and h % 2 == 0 and w % 2 == 0 and c < 8:
            return self.op("space_to_depth", x, block=2)
        if kind == "blocks" and c % 4 == 0:
            return self.op("depth_to_space", x, block=2)
        if kind == "mirror" and h > 1 and w > 1:
            paddings = ((0, 0), (1, 0), (0, 1), (0, 0))
            return self.op("pad", x, paddings=paddings, mode=self.choose("reflect", "symmetric"))
        if kind == "turn":
            return self.op("transpose", x, perm=(0, 2, 1, 3))
        if kind == "flat":
            return self.op("reshape", x, shape=(-1, 1, h * w, c))
        return self.op("reduce_max", x, axes=(1,), keepdims=True)

    def dense(self, x: Value) -> Value:
        flat = self.op("reshape", x, shape=(-1, int(np.prod(self.shape(x)[1:]))))
        inputs, outputs = self.shape(flat)[1], self.choose(1, 3, 8)
        w = self.const(self.normal(inputs, outputs, scale=inputs**-0.5), "dense_weights")
        y = self.op("matmul", flat, w, name="dense")
        return self.op("bias_add", y, self.const(self.normal(outputs), "dense_bias"))


@st.composite
def graphs(draw: Callable) -> Graph:
    """A float network on `x` [?, h, w, c] with one or two outputs."""
    net = Drawn(draw)
    kinds = (
        net.conv, net.conv, net.depthwise, net.batch_norm, net.activation, net.table, net.pool,
        net.scale, net.join, net.difference, net.product, net.move, net.noise, net.layer_norm,
    )  # fmt: skip
    for _ in range(draw(st.integers(1, LAYERS))):
        net.live.append(net.choose(*kinds)(net.choose(net.live[-1], *net.live)))
    net.graph.outputs["y"] = net.dense(net.live[-1]) if net.chance(0.5) else net.live[-1]
    if net.chance(0.3):
        net.graph.outputs["inner"] = net.choose(*net.live[1:])
    return net.graph


@st.composite
def profiles(draw: Callable) -> Profile:
    """A target: bits, roundings, saturation or wrapping, scales for each channel."""
    internal = draw(MAYBE_WIDE)
    bits = Bits(
        input=draw(BITS),
        activation=draw(BITS),
        weight=draw(BITS),
        weight_ends=draw(BITS),
        bias=32 if internal is None else draw(WIDE),
        internal=internal,
        output=draw(MAYBE_WIDE),
        table=draw(st.one_of(st.none(), st.sampled_from([8, 10, 16]))),
        norm=draw(MAYBE_WIDE),
    )
    wraps = draw(st.booleans())
    return Profile(
        "drawn",
        bits=bits,
        per_channel=draw(st.booleans()),
        signed_activations=draw(st.booleans()),
        rounding=draw(st.sampled_from(ROUNDINGS)),
        rounding_additions=draw(st.one_of(st.none(), st.sampled_from(ROUNDINGS))),
        rounding_constants=draw(st.one_of(st.none(), st.sampled_from(ROUNDINGS))),
        rounding_inputs=draw(st.one_of(st.none(), st.sampled_from(ROUNDINGS))),
        overflow=draw(st.sampled_from(["saturate", "saturate", "wrap"])),
        accumulator_bits=draw(st.sampled_from([12, 16, 24])) if wraps else 64,
        accumulator_wraps=wraps,
    )
