"""Random small networks with everything in them that is easy to get wrong."""

from collections.abc import Callable

import numpy as np

from qgraph.ir.graph import Graph

Value = str


class Network:
    """Grows a graph of NHWC layers; `value` ends are picked at random, so values are shared."""

    def __init__(self, seed: int, dtype: str) -> None:
        self.rng = np.random.default_rng(seed)
        self.dtype = dtype
        self.graph = Graph(f"random_{seed}")
        height, width, channels = (
            int(self.rng.integers(a, b)) for a, b in ((5, 9), (5, 9), (1, 5))
        )
        self.live = [self.graph.input("x", dtype, (None, height, width, channels))]
        self.weights: list[str] = []

    # -- pieces ------------------------------------------------------------------------------

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def choose(self, *options):
        return options[int(self.rng.integers(len(options)))]

    def shape(self, value: Value) -> tuple:
        return self.graph.types[value].shape

    def const(self, array, name: str) -> Value:
        return self.graph.const(np.asarray(array, self.dtype), name)

    def op(self, op: str, *inputs: Value, name: str | None = None, **attrs) -> Value:
        return self.graph.add(op, *inputs, name=name, attrs=attrs)

    def normal(self, *shape: int, scale: float = 1.0):
        return self.rng.normal(size=shape) * scale

    def window(self, x: Value, kernel: int, strides: tuple, dilations: tuple) -> dict:
        span = (kernel - 1) * max(dilations) + 1
        fits = min(self.shape(x)[1:3]) >= span + 1
        explicit = tuple((int(a), int(b)) for a, b in self.rng.integers(0, kernel, (2, 2)))
        padding = self.choose("same", "valid", explicit) if fits else "same"
        return {"strides": strides, "dilations": dilations, "padding": padding}

    def filter(self, *shape: int) -> Value:
        """Weights; sometimes those of an earlier layer, if they fit."""
        fitting = [w for w in self.weights if self.shape(w) == shape]
        if fitting and self.chance(0.5):
            return self.choose(*fitting)
        made = self.const(self.normal(*shape, scale=np.prod(shape[:3]) ** -0.5), "weights")
        self.weights.append(made)
        return made

    # -- layers ------------------------------------------------------------------------------

    def conv(self, x: Value) -> Value:
        channels, kernel = self.shape(x)[3], self.choose(1, 2, 3)
        strides = self.choose((1, 1), (1, 1), (2, 2), (1, 2))
        dilations = self.choose((1, 1), (1, 1), (2, 2)) if strides == (1, 1) else (1, 1)
        attrs = self.window(x, kernel, strides, dilations)
        groups = self.choose(1, *(g for g in (2, 3) if channels % g == 0))
        w = self.filter(kernel, kernel, channels // groups, groups * self.choose(1, 2))
        return self.maybe_bias(self.op("conv2d", x, w, name="conv", **attrs))

    def depthwise(self, x: Value) -> Value:
        stride, kernel = self.choose(1, 2), self.choose(1, 3)
        attrs = self.window(x, kernel, (stride, stride), (1, 1))
        multiplier = 1 if self.shape(x)[3] > 8 else self.choose(1, 1, 2)
        w = self.filter(kernel, kernel, self.shape(x)[3], multiplier)
        return self.maybe_bias(self.op("depthwise_conv2d", x, w, name="dw", **attrs))

    def maybe_bias(self, x: Value) -> Value:
        bias = self.normal(self.shape(x)[3])
        how = self.choose("bias_add", "add", "sub", None)
        if how is None:
            return x
        if how != "bias_add":
            bias = bias.reshape(self.choose((-1,), (1, 1, 1, -1)))
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
        if self.chance(0.5):
            return self.op("batch_norm", x, gamma, beta, mean, variance, name="bn", epsilon=1e-2)
        shifted = self.op("add", variance, self.const(1e-2, "epsilon"))
        m = self.op("mul", self.op("rsqrt", shifted), gamma)
        shift = self.op("sub", beta, self.op("mul", mean, m))
        return self.op("add", self.op("mul", x, m), shift, name="bn")

    def activation(self, x: Value) -> Value:
        kind = self.choose(
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
            return self.op("leaky_relu", x, name="leaky", alpha=self.choose(0.1, 0.25))
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
        size = min(3, *self.shape(x)[1:3])
        attrs = {
            "ksize": (size, size),
            "strides": self.choose((1, 1), (2, 2)),
            "padding": self.choose("same", "valid"),
        }
        return self.op(self.choose("avg_pool", "avg_pool", "max_pool"), x, name="pool", **attrs)

    def scale(self, x: Value) -> Value:
        factor = self.choose(0.5, self.normal(self.shape(x)[3]))
        return self.op(self.choose("mul", "div"), x, self.const(factor, "factor"))

    def join(self, x: Value) -> Value:
        """Concat or add of values of equal height and width, old ones too."""
        same_map = [v for v in self.live if self.shape(v)[:3] == self.shape(x)[:3]]
        other = self.choose(*same_map)
        if self.shape(other) == self.shape(x) and self.chance(0.6):
            return self.op(self.choose("add", "maximum"), x, other, name="sum")
        if self.shape(other)[3] + self.shape(x)[3] > 16:
            return self.activation(x)
        return self.op("concat", x, other, name="concat", axis=self.choose(3, -1))

    def noise(self, x: Value) -> Value:
        """Ops that change nothing, or only move."""
        if self.chance(0.5):
            return self.op("identity", x)
        if self.chance(0.5):
            return self.op("pad", x, paddings=((0, 0), (1, 0), (0, 1), (0, 0)))
        nchw = self.op("transpose", x, perm=(0, 3, 1, 2))
        return self.op("transpose", self.op("relu", nchw), perm=(0, 2, 3, 1))

    def head(self, x: Value) -> Value:
        pooled = self.op("mean", x, name="gap", axes=(1, 2), keepdims=False)
        w = self.const(self.normal(self.shape(x)[3], 3), "fc_weights")
        return self.op(
            "add", self.op("matmul", pooled, w, name="fc"), self.const(self.normal(3), "b")
        )


def random_cnn(seed: int, layers: int = 10, dtype: str = "float64") -> Graph:
    """A random network of about `layers` layers on an input `x` [?, h, w, c].

    Convolutions (grouped, dilated, strided, depthwise, with multipliers) that may share weights;
    batch norms fused and written out, before and after layers, with gammas and variances of 0;
    biases, activations, pools, concats, sums; values with several users; an output that is used
    inside, and sometimes one that is the input itself.
    """
    net = Network(seed, dtype)
    steps: tuple[Callable[[Value], Value], ...] = (
        net.conv,
        net.conv,
        net.conv,
        net.depthwise,
        net.batch_norm,
        net.batch_norm,
        net.batch_norm,
        net.activation,
        net.activation,
        net.pool,
        net.scale,
        net.join,
        net.join,
        net.noise,
    )
    for _ in range(layers):
        start = net.live[-1] if net.chance(0.8) else net.choose(*net.live)
        net.live.append(net.choose(*steps)(start))
    net.graph.outputs["map"] = net.live[-1]
    net.graph.outputs["logits"] = net.head(net.live[-1])
    if net.chance(0.3):
        net.graph.outputs["inner"] = net.choose(*net.live)
    if net.chance(0.2):
        net.graph.outputs["input"] = "x"
    return net.graph
