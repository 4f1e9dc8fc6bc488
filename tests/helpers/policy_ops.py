"""A small policy with each op that policies may have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from qgraph.ir.graph import Graph

OBSERVATION, UNITS, ACTIONS = 6, 8, 4
Middle = Callable[["SmallPolicy", str], str]
PLAIN = {"strides": (1, 1), "dilations": (1, 1), "padding": "valid"}


class SmallPolicy:
    """Two layers, [n, 6] -> [n, 8] and [n, m] -> [n, 4], with what `middle` adds between them."""

    def __init__(self, middle: Middle) -> None:
        self.graph, self.rng = Graph("policy"), np.random.default_rng(5)
        self.seen = self.graph.input("seen", "float32", (None, OBSERVATION))
        x = middle(self, self.dense(self.seen, OBSERVATION, UNITS))
        shape = self.graph.types[x].shape or ()
        size = int(np.prod([d or 1 for d in shape[1:]]))
        x = x if len(shape) == 2 else self.add("reshape", x, shape=(-1, size))
        self.graph.outputs = {"actions": self.dense(x, size, ACTIONS)}

    def add(self, op: str, *inputs: str, **attrs: object) -> str:
        return self.graph.add(op, *inputs, attrs=attrs)

    def const(self, *shape: int, scale: float = 1.0) -> str:
        return self.graph.const(self.rng.normal(0, scale, shape).astype(np.float32))

    def dense(self, x: str, rows: int, columns: int) -> str:
        made = self.add("matmul", x, self.const(rows, columns, scale=rows**-0.5))
        return self.add("bias_add", made, self.const(columns, scale=0.3))

    def other(self, columns: int = UNITS) -> str:
        """Another layer of the observation."""
        return self.dense(self.seen, OBSERVATION, columns)

    def image(self, x: str) -> str:
        return self.add("reshape", x, shape=(-1, 2, 2, 2))


def _unary(op: str, **attrs: object) -> Middle:
    return lambda p, x: p.add(op, x, **attrs)


def _on_image(op: str, *kernel: int, **attrs: object) -> Middle:
    def middle(p: SmallPolicy, x: str) -> str:
        weights = [p.const(*kernel, scale=0.4)] if kernel else []
        return p.add(op, p.image(x), *weights, **attrs)

    return middle


def _attention(p: SmallPolicy, x: str) -> str:
    tokens = p.add("reshape", x, shape=(-1, 2, 4))
    keys = p.add("transpose", p.add("reshape", p.other(), shape=(-1, 2, 4)), perm=(0, 2, 1))
    return p.add("batch_matmul", p.add("batch_matmul", tokens, keys), tokens)


def _centered(p: SmallPolicy, x: str) -> str:
    x = p.add("tanh", x)
    return p.add("sub", x, p.add("mean", x, axes=(1,), keepdims=True))


def _turned(p: SmallPolicy, x: str) -> str:
    turned = p.add("transpose", p.add("reshape", x, shape=(-1, 2, 4)), perm=(0, 2, 1))
    return p.add("softmax", turned, axis=-1)


def _padded(p: SmallPolicy, x: str) -> str:
    image = p.add("pad", p.add("tanh", p.image(x)), paddings=((0, 0), (1, 0), (1, 3), (0, 0)))
    return p.add("conv2d", image, p.const(2, 2, 2, 3, scale=0.4), **PLAIN)


def _part(p: SmallPolicy, x: str) -> str:
    shape = {"begin": (None, 1), "end": (None, 7), "strides": (1, 2)}
    return p.add("slice", p.add("tanh", x), **shape)


WINDOW = {"ksize": (2, 1), "strides": (1, 1), "padding": "valid"}
# By op; a rule without a case fails by its name.
MIDDLES: Mapping[str, Middle] = MappingProxyType(
    {
        **{
            op: _unary(op)
            for op in (
                "relu", "elu", "tanh", "sigmoid", "softplus", "swish", "sign", "erf",
                "relu6", "abs", "square", "hard_sigmoid", "hard_swish", "selu", "identity",
            )
        },
        "gelu": lambda p, x: p.add("gelu", p.add("gelu", x), approximate=True),
        "leaky_relu": _unary("leaky_relu", alpha=0.3),
        "exp": lambda p, x: p.add("exp", p.add("tanh", x)),
        "matmul": lambda p, x: p.dense(p.add("tanh", x), UNITS, UNITS),
        "batch_matmul": _attention,
        "bias_add": lambda p, x: p.add("bias_add", p.add("tanh", x), p.const(UNITS)),
        "conv2d": _on_image("conv2d", 2, 2, 2, 5, **PLAIN),
        "depthwise_conv2d": _on_image("depthwise_conv2d", 2, 1, 2, 1, **PLAIN),
        "max_pool": _on_image("max_pool", **WINDOW),
        "avg_pool": _on_image("avg_pool", **WINDOW),
        "reduce_max": _on_image("reduce_max", axes=(1, 2), keepdims=False),
        "add": lambda p, x: p.add("add", x, p.other()),
        "sub": lambda p, x: p.add("sub", p.add("tanh", x), p.add("tanh", p.other())),
        "mul": lambda p, x: p.add("mul", x, p.add("sigmoid", p.other())),
        "maximum": lambda p, x: p.add("maximum", x, p.const(UNITS)),
        "minimum": lambda p, x: p.add("minimum", x, p.const(UNITS)),
        "layer_norm": lambda p, x: p.add(
            "layer_norm", x, p.const(UNITS), p.const(UNITS), epsilon=1e-5
        ),
        "mean": _centered,
        "sum": lambda p, x: p.add(
            "sum", p.add("reshape", p.add("tanh", x), shape=(-1, 2, 4)), axes=(1,), keepdims=False
        ),
        "softmax": _unary("softmax", axis=-1),
        "concat": lambda p, x: p.add("concat", p.add("tanh", x), p.other(3), axis=-1),
        "pad": _padded,
        "reshape": lambda p, x: p.add(
            "softmax", p.add("reshape", x, shape=(-1, 4, 2)), axis=-1
        ),
        "expand_dims": lambda p, x: p.add("tanh", p.add("expand_dims", x, axis=1)),
        "squeeze": lambda p, x: p.add(
            "squeeze", p.add("tanh", p.add("reshape", x, shape=(-1, 1, UNITS))), axes=(1,)
        ),
        "slice": _part,
        "take": lambda p, x: p.add("take", p.add("softmax", x, axis=-1), axis=1, indices=(5, 0, 2)),
        "transpose": _turned,
    }
)  # fmt: skip
