"""The layers of random networks, each of a few ops, with attributes that are often handled
wrongly.
"""

import numpy as np

from qgraph.ir.graph import Graph
from tests.helpers.generators.choices import Choices

Value = str


class Network:
    """A graph of NHWC layers that grows; a layer may read any earlier value, so values are
    shared.
    """

    def __init__(self, choices: Choices, dtype: str, name: str, *shape: int) -> None:
        self.choices, self.rng, self.dtype = choices, choices.rng, dtype
        self.graph = Graph(name)
        self.live = [self.graph.input("x", dtype, (None, *shape))]
        self.weights: list[str] = []

    # -- pieces ------------------------------------------------------------------------------

    def shape(self, value: Value) -> tuple:
        return self.graph.types[value].shape

    def const(self, array, name: str) -> Value:
        return self.graph.const(np.asarray(array, self.dtype), name)

    def op(self, op: str, *inputs: Value, name: str | None = None, **attrs) -> Value:
        return self.graph.add(op, *inputs, name=name, attrs=attrs)

    def normal(self, *shape: int, scale: float = 1.0):
        return self.rng.normal(size=shape) * scale

    def window(self, x: Value, kernel: int, strides: tuple, dilations: tuple) -> dict:
        span, sizes = (kernel - 1) * max(dilations) + 1, self.shape(x)[1:3]
        c = self.choices
        explicit = tuple((c.number(0, kernel), c.number(0, kernel)) for _ in sizes)
        options = ["same", *(["valid"] if min(sizes) >= span else [])]
        if all(size + sum(p) >= span for size, p in zip(sizes, explicit, strict=True)):
            options.append(explicit)
        return {"strides": strides, "dilations": dilations, "padding": c.pick(*options)}

    def filter(self, *shape: int) -> Value:
        """Weights; sometimes those of an earlier layer if they fit."""
        fitting = [w for w in self.weights if self.shape(w) == shape]
        if fitting and self.choices.chance(0.5):
            return self.choices.pick(*fitting)
        made = self.const(self.normal(*shape, scale=np.prod(shape[:3]) ** -0.5), "weights")
        self.weights.append(made)
        return made

    # -- layers ------------------------------------------------------------------------------

    def conv(self, x: Value) -> Value:
        channels, kernel = self.shape(x)[3], self.choices.pick(1, 2, 3)
        strides = self.choices.pick((1, 1), (1, 1), (2, 2), (1, 2))
        dilations = self.choices.pick((1, 1), (1, 1), (2, 2)) if strides == (1, 1) else (1, 1)
        attrs = self.window(x, kernel, strides, dilations)
        groups = self.choices.pick(1, *(g for g in (2, 3) if channels % g == 0))
        w = self.filter(kernel, kernel, channels // groups, groups * self.choices.pick(1, 2))
        return self.maybe_bias(self.op("conv2d", x, w, name="conv", **attrs))

    def depthwise(self, x: Value) -> Value:
        stride, kernel = self.choices.pick(1, 2), self.choices.pick(1, 3)
        attrs = self.window(x, kernel, (stride, stride), (1, 1))
        multiplier = 1 if self.shape(x)[3] > 8 else self.choices.pick(1, 1, 2)
        w = self.filter(kernel, kernel, self.shape(x)[3], multiplier)
        return self.maybe_bias(self.op("depthwise_conv2d", x, w, name="dw", **attrs))

    def maybe_bias(self, x: Value) -> Value:
        bias = self.normal(self.shape(x)[3])
        how = self.choices.pick("bias_add", "add", "sub", None)
        if how is None:
            return x
        if how != "bias_add":
            bias = bias.reshape(self.choices.pick((-1,), (1, 1, 1, -1)))
        return self.op(how, x, self.const(bias, "bias"), name="biased")

    def batch_norm(self, x: Value) -> Value:
        channels = self.shape(x)[3]
        gamma = self.normal(channels)
        gamma[self.rng.random(channels) < 0.2] = 0
        variance = self.rng.uniform(0.5, 2, channels)
        variance[self.rng.random(channels) < 0.1] = 0
        arrays = (gamma, self.normal(channels), self.normal(channels), variance)
        names = ("gamma", "beta", "mean", "variance")
        gamma, beta, mean, variance = map(self.const, arrays, names)
        if self.choices.chance(0.5):
            return self.op("batch_norm", x, gamma, beta, mean, variance, name="bn", epsilon=1e-2)
        shifted = self.op("add", variance, self.const(1e-2, "epsilon"))
        m = self.op("mul", self.op("rsqrt", shifted), gamma)
        shift = self.op("sub", beta, self.op("mul", mean, m))
        return self.op("add", self.op("mul", x, m), shift, name="bn")

    def activation(self, x: Value) -> Value:
        kind = self.choices.pick(
            "relu",
            "relu",
            "relu6",
            "leaky",
            "swish",
            "hard_swish",
            "sigmoid",
            "tanh",
            "written_relu6",
        )
        if kind == "leaky":
            return self.op("leaky_relu", x, name="leaky", alpha=self.choices.pick(0.1, 0.25))
        if kind == "swish":
            return self.op("mul", x, self.op("sigmoid", x), name="swish")
        if kind == "hard_swish":
            gate = self.op("relu6", self.op("add", x, self.const(3, "three")))
            return self.op("mul", x, self.op("div", gate, self.const(6, "six")), name="hard_swish")
        if kind == "written_relu6":
            positive = self.op("maximum", x, self.const(0, "zero"))
            return self.op("minimum", positive, self.const(6, "six"))
        return self.op(kind, x)

    def pool(self, x: Value) -> Value:
        c, size = self.choices, min(3, *self.shape(x)[1:3])
        attrs = {
            "ksize": (size, size),
            "strides": c.pick((1, 1), (2, 2)),
            "padding": c.pick("same", "valid"),
        }
        return self.op(c.pick("avg_pool", "avg_pool", "max_pool"), x, name="pool", **attrs)

    def scale(self, x: Value) -> Value:
        factor = self.choices.pick(0.5, self.normal(self.shape(x)[3]))
        return self.op(self.choices.pick("mul", "div"), x, self.const(factor, "factor"))

    def join(self, x: Value) -> Value:
        """Concat or add of values of equal height and width, including old ones."""
        same_map = [v for v in self.live if self.shape(v)[:3] == self.shape(x)[:3]]
        other = self.choices.pick(*same_map)
        if self.shape(other) == self.shape(x) and self.choices.chance(0.6):
            return self.op(self.choices.pick("add", "maximum"), x, other, name="sum")
        if self.shape(other)[3] + self.shape(x)[3] > 16:
            return self.activation(x)
        return self.op("concat", x, other, name="concat", axis=self.choices.pick(3, -1))

    def noise(self, x: Value) -> Value:
        """Ops that change nothing, or that only move values."""
        kind = self.choices.pick("identity", "pad", "nchw", "axis")
        if kind == "identity":
            return self.op("identity", x)
        if kind == "pad":
            return self.op("pad", x, paddings=((0, 0), (1, 0), (0, 1), (0, 0)))
        if kind == "axis":
            axis = self.choices.number(1, 4)
            return self.op("squeeze", self.op("expand_dims", x, axis=axis), axes=(axis,))
        nchw = self.op("transpose", x, perm=(0, 3, 1, 2))
        return self.op("transpose", self.op("relu", nchw), perm=(0, 2, 3, 1))

    def head(self, x: Value) -> Value:
        """A matrix product of means over the image."""
        pooled = self.op("mean", x, name="gap", axes=(1, 2), keepdims=False)
        return self.biased_product(pooled, 3, "add")

    def flat_head(self, x: Value) -> Value:
        """A matrix product of all elements of the image."""
        flat = self.op("reshape", x, shape=(-1, int(np.prod(self.shape(x)[1:]))))
        return self.biased_product(flat, self.choices.pick(1, 3, 8), "bias_add")

    def biased_product(self, x: Value, outputs: int, bias: str) -> Value:
        inputs = self.shape(x)[1]
        w = self.const(self.normal(inputs, outputs, scale=inputs**-0.5), "fc_weights")
        y = self.op("matmul", x, w, name="fc")
        return self.op(bias, y, self.const(self.normal(outputs), "fc_bias"))
