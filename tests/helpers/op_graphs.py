"""Graphs of one op each: every op of the IR, with the attributes that matter to exporters."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from qgraph.ir.graph import Graph
from qgraph.ir.ops.activation import POINTWISE
from qgraph.ir.ops.arithmetic import COMPARISONS, FUNCTIONS
from tests.helpers.layers import WINDOW

RNG = np.random.default_rng(0)
Build = Callable[[Graph], str]


def normal(*shape: int) -> Any:
    return RNG.normal(size=shape).astype(np.float32)


def image(g: Graph, *shape: Any, name: str = "x", dtype: str = "float32") -> str:
    return g.input(name, dtype, shape or (None, 5, 6, 4))


def unary(op: str, g: Graph, change: str = "", **attrs: Any) -> str:
    x = image(g)
    return g.add(op, g.add(change, x) if change else x, attrs=attrs)


def binary(op: str, g: Graph) -> str:
    return g.add(op, image(g), g.add("exp", image(g, 6, 1, name="u")))


def in_nchw(build: Build) -> Build:
    """The case after a convolution, whose result is in NCHW."""

    def wrapped(g: Graph) -> str:
        kept = g.input

        def behind(name: str, dtype: str, shape: Any) -> str:
            x = kept(name, dtype, shape)
            if dtype != "float32" or len(shape) != 4:
                return x
            w = g.const(np.eye(shape[3], dtype=np.float32)[None, None], "eye")
            window = {"strides": (1, 1), "dilations": (1, 1), "padding": "valid"}
            return g.add("conv2d", x, w, attrs=window)

        g.input = behind  # type: ignore[method-assign]
        return build(g)

    return wrapped


def conv(g: Graph, shape: Any = (None, 7, 9, 4), kernel: Any = (3, 2, 4, 5), **attrs: Any) -> str:
    attrs = WINDOW | attrs
    return g.add("conv2d", image(g, *shape), g.const(normal(*kernel)), attrs=attrs)


def biased(g: Graph) -> str:
    return g.add("bias_add", conv(g), g.const(normal(5)))


def biased_twice(g: Graph) -> str:
    y = conv(g)
    return g.add("mul", y, g.add("bias_add", y, g.const(normal(5))))


def computed_filter(g: Graph) -> str:
    window = {"strides": (1, 1), "dilations": (1, 1), "padding": "valid"}
    return g.add("conv2d", image(g), g.add("abs", image(g, 3, 2, 4, 5, name="w")), attrs=window)


def depthwise(g: Graph, multiplier: int = 2, computed: bool = False, **attrs: Any) -> str:
    attrs = WINDOW | attrs
    w = image(g, 3, 3, 4, multiplier, name="w") if computed else ""
    return g.add(
        "depthwise_conv2d", image(g), w or g.const(normal(3, 3, 4, multiplier)), attrs=attrs
    )


def pool(op: str, g: Graph, **attrs: Any) -> str:
    attrs = {"ksize": (3, 2), "strides": (2, 2), "padding": "same"} | attrs
    return g.add(op, image(g, None, 7, 9, 4), attrs=attrs)


def padded_pool(g: Graph) -> str:
    """Zeros around negative numbers are the maximum, so they differ from the padding of the
    pool.
    """
    x = g.add("neg", g.add("exp", image(g)))
    x = g.add("pad", x, attrs={"paddings": ((0, 0), (1, 1), (1, 1), (0, 0))})
    return g.add("max_pool", x, attrs={"ksize": (2, 2), "strides": (1, 1), "padding": "valid"})


def reduce(op: str, axes: Any, keepdims: bool, g: Graph) -> str:
    return g.add(op, image(g), attrs={"axes": axes, "keepdims": keepdims})


def norm(op: str, g: Graph, shape: Any = (None, 5, 6, 4)) -> str:
    names = [g.const(normal(4)) for _ in range(2 if op == "layer_norm" else 3)]
    names += [] if op == "layer_norm" else [g.const(np.abs(normal(4)) + np.float32(0.1))]
    return g.add(op, image(g, *shape), *names, attrs={"epsilon": 0.01})


def resize(g: Graph, size: Any, **attrs: Any) -> str:
    return g.add("resize_nearest", image(g), attrs={"size": size, **attrs})


def cut(g: Graph, begin: Any, end: Any, strides: Any) -> str:
    return g.add("slice", image(g), attrs={"begin": begin, "end": end, "strides": strides})


def pad(g: Graph, paddings: Any, **attrs: Any) -> str:
    return g.add("pad", image(g), attrs={"paddings": paddings, **attrs})


def flags(op: str, g: Graph, count: int = 2) -> str:
    x = image(g)
    return g.add(op, *(g.add("greater", x, g.const(np.float32(i))) for i in range(count)))


def composed(g: Graph) -> str:
    steps = (
        ("mul", (0, 0.5), ()),
        ("leaky_relu", (1,), (("alpha", 0.3),)),
        ("greater", (0, 1.0), ()),
        ("select", (3, 2, 0), ()),
    )
    return g.add("composed", image(g), attrs={"steps": steps})


def small(op: str, g: Graph, lowest: float) -> str:
    """Numbers near 0 of both signs, down to 1e-7, beside large ones."""
    x = g.add("mul", g.add("tanh", image(g)), g.add("exp", image(g, 6, 1, name="u")))
    return g.add(op, g.add("maximum", x, g.const(np.float32(lowest))))


def joined(g: Graph) -> str:
    x = image(g)
    y = g.add("relu", x)
    return g.add("concat", x, g.const(normal(2, 5, 6, 3)), y, attrs={"axis": -1})


def biased_product(g: Graph) -> str:
    y = g.add("matmul", image(g, None, 4), g.const(normal(4, 3)))
    return g.add("bias_add", y, g.const(normal(3)))


def chosen(g: Graph) -> str:
    flag = image(g, 4, name="c", dtype="bool")
    return g.add("select", flag, image(g), g.const(normal(4)))


def embedding(g: Graph, kind: str, *row: int) -> str:
    """Rows of a table by the places of the largest channels."""
    found = unary("argmax", g, axis=-1, dtype="int64")
    if kind != "int64":
        found = g.add("cast", found, attrs={"dtype": kind})
    return g.add("embedding", g.const(normal(4, *row)), found)


def batch_to_space(g: Graph, **attrs: Any) -> str:
    return g.add("batch_to_space", image(g, 12, 3, 2, 4), attrs=attrs)


def opaque(g: Graph) -> str:
    raise AssertionError("has its own tests")


CASES: dict[str, list[Build]] = {
    "input": [image, lambda g: g.add("identity", image(g, 3, dtype="int64"))],
    "const": [
        lambda g: g.const(normal(3)),
        lambda g: g.add("add", image(g, 3), g.const(normal(3))),
    ],
    "conv2d": [
        conv,
        partial(conv, padding="valid", strides=(2, 3)),
        partial(conv, strides=(2, 2)),
        partial(conv, dilations=(2, 1)),
        partial(conv, padding=((1, 0), (2, 3))),
        partial(conv, kernel=(2, 3, 2, 6)),
        partial(conv, shape=(None, None, None, 4)),
        partial(conv, shape=(None, None, 9, 4), strides=(2, 1)),
        partial(conv, shape=(None, None, None, 4), dilations=(2, 2)),
        computed_filter,
    ],
    "depthwise_conv2d": [
        depthwise,
        partial(depthwise, multiplier=1, strides=(2, 2)),
        partial(depthwise, dilations=(2, 2), padding=((2, 1), (0, 3))),
        partial(depthwise, computed=True),
    ],
    "matmul": [
        lambda g: g.add("matmul", image(g, None, 4), g.const(normal(4, 3))),
        lambda g: g.add("matmul", image(g, None, 4), image(g, 4, 3, name="w")),
    ],
    "batch_matmul": [
        lambda g: g.add("batch_matmul", image(g, 2, 1, 3, 4), image(g, 5, 4, 2, name="u"))
    ],
    "bias_add": [
        biased,
        biased_twice,
        lambda g: g.add("bias_add", image(g, None, 4), g.const(normal(4))),
        lambda g: g.add("bias_add", image(g), image(g, 4, name="b")),
        biased_product,
    ],
    "layer_norm": [partial(norm, "layer_norm"), partial(norm, "layer_norm", shape=(None, 3, 4))],
    "batch_norm": [
        partial(norm, "batch_norm"),
        partial(norm, "batch_norm", shape=(None, 4)),
        partial(norm, "batch_norm", shape=(None, 3, 4)),
    ],
    "relu": [partial(unary, "relu"), lambda g: g.add("relu", image(g, 3, dtype="int32"))],
    "relu6": [lambda g: g.add("relu6", g.add("exp", image(g)))],
    "leaky_relu": [partial(unary, "leaky_relu", alpha=0.3)],
    **{op: [partial(unary, op)] for op in POINTWISE},
    "hard_sigmoid": [
        partial(unary, "hard_sigmoid"),
        partial(unary, "hard_sigmoid", alpha=0.3, beta=0.4),
    ],
    "elu": [partial(unary, "elu"), partial(unary, "elu", alpha=0.3)],
    "gelu": [partial(unary, "gelu"), partial(unary, "gelu", approximate=True)],
    "softmax": [partial(unary, "softmax"), partial(unary, "softmax", axis=1)],
    "log_softmax": [partial(unary, "log_softmax")],
    "composed": [composed],
    "tabulated": [
        partial(unary, "tabulated", log2_steps=2, first=-3, values=(0.5, -1.0, 2.0, 0.0, 3.5))
    ],
    **{
        op: [partial(binary, op)]
        for op in ("add", "sub", "mul", "maximum", "minimum", "div", "squared_difference")
    },
    "pow": [lambda g: g.add("pow", g.add("exp", image(g)), image(g, 6, 1, name="u"))],
    **{op: [partial(unary, op)] for op in ("neg", "abs", "exp", "square", "reciprocal")},
    **{op: [partial(unary, op)] for op in FUNCTIONS},
    **{op: [partial(unary, op, change="softsign")] for op in ("asin", "acos", "atanh")},
    "acosh": [lambda g: g.add("acosh", g.add("cosh", image(g)))],
    **{op: [partial(unary, op, change="exp")] for op in ("log", "sqrt", "rsqrt")},
    "expm1": [partial(unary, "expm1"), partial(small, "expm1", lowest=-5.0)],
    "log1p": [partial(unary, "log1p", change="exp"), partial(small, "log1p", lowest=-0.9)],
    **{
        op: [
            lambda g, op=op: g.add(op, g.add("relu", image(g)), g.const(np.float32([0] * 4))),
            lambda g, op=op: g.add(op, image(g, 9, dtype="int64"), g.const(np.int64(1))),
        ]
        for op in COMPARISONS
    },
    "logical_and": [partial(flags, "logical_and")],
    "logical_or": [partial(flags, "logical_or")],
    "logical_not": [partial(flags, "logical_not", count=1)],
    "select": [
        lambda g: g.add("select", flags("logical_or", g), g.const(normal(6, 4)), "x"),
        chosen,
    ],
    "cast": [
        partial(unary, "cast", dtype="int32"),
        lambda g: g.add("cast", image(g, 3, dtype="bool"), attrs={"dtype": "float32"}),
    ],
    "max_pool": [
        partial(pool, "max_pool"),
        partial(pool, "max_pool", padding="valid"),
        partial(pool, "max_pool", padding=((1, 2), (0, 1))),
        padded_pool,
    ],
    "avg_pool": [
        partial(pool, "avg_pool"),
        partial(pool, "avg_pool", padding="valid"),
        partial(pool, "avg_pool", padding=((1, 1), (0, 1))),
    ],
    **{
        op: [
            partial(reduce, op, axes, keepdims)
            for axes in ((1, 2), (3,), (-3,), (0, 3), (1, 2, 3), ())
            for keepdims in (True, False)
        ]
        for op in ("mean", "sum", "reduce_max")
    },
    "argmax": [
        partial(unary, "argmax", axis=-1, dtype="int64"),
        partial(unary, "argmax", axis=1, dtype="int32"),
    ],
    "identity": [partial(unary, "identity")],
    "concat": [joined, lambda g: g.add("concat", image(g), attrs={"axis": 1})],
    "pad": [
        partial(pad, paddings=((0, 0), (1, 2), (0, 3), (1, 0))),
        partial(pad, paddings=((1, 0), (1, 2), (0, 3), (0, 0)), value=-2.5),
        partial(pad, paddings=((0, 0), (1, 2), (3, 4), (0, 0)), mode="reflect"),
        partial(pad, paddings=((0, 0), (7, 2), (0, 8), (0, 0)), mode="reflect"),
        partial(pad, paddings=((0, 0), (1, 5), (3, 4), (0, 2)), mode="symmetric"),
    ],
    "reshape": [
        partial(unary, "reshape", shape=(-1, 120)),
        lambda g: g.add("reshape", image(g, 3, 4), attrs={"shape": (2, -1)}),
        lambda g: g.add("reshape", image(g, 0, 4), attrs={"shape": (2, 0)}),
        lambda g: g.add("reshape", image(g, 1), attrs={"shape": ()}),
    ],
    "transpose": [
        partial(unary, "transpose", perm=(0, 3, 1, 2)),
        partial(unary, "transpose", perm=(0, 2, 3, 1)),
        partial(unary, "transpose", perm=(2, 0, 1, 3)),
        lambda g: g.add("transpose", image(g, 3, 4), attrs={"perm": (1, 0)}),
    ],
    "slice": [
        partial(cut, begin=(None,) * 4, end=(None,) * 4, strides=(1, 1, 1, 1)),
        partial(cut, begin=(None, 1, -3, 0), end=(None, -1, None, 3), strides=(1, 2, 1, 2)),
        partial(cut, begin=(None, None, 4, -1), end=(None, None, 0, None), strides=(1, -1, -2, -1)),
        partial(cut, begin=(1, 0, 0, 0), end=(99, 99, 99, 99), strides=(1, 1, 1, 1)),
    ],
    "squeeze": [
        lambda g: g.add("squeeze", image(g, None, 1, 1, 4), attrs={"axes": (1, 2)}),
        lambda g: g.add("squeeze", image(g, None, 5, 1, 4), attrs={"axes": (-2,)}),
        lambda g: g.add("squeeze", image(g, None, 5, 6, 1), attrs={"axes": (3,)}),
        partial(unary, "squeeze", axes=()),
    ],
    "expand_dims": [partial(unary, "expand_dims", axis=a) for a in (0, 2, -1)],
    "take": [
        partial(unary, "take", axis=axis, indices=(1, 0, 1, 3, 3, 3, 2)) for axis in (1, 2, 3)
    ],
    "embedding": [
        partial(embedding, kind="int64"),
        lambda g: embedding(g, "int32", 3),
        lambda g: embedding(g, "float32", 2, 3),
    ],
    "resize_nearest": [
        partial(resize, size=(10, 24)),
        partial(resize, size=(10, 24), half_pixel=True),
        *(
            partial(resize, size=size, **{flag: True} if flag else {})
            for size in ((15, 7), (3, 1), (5, 18))
            for flag in ("", "half_pixel", "align_corners")
        ),
    ],
    "space_to_depth": [
        lambda g: g.add("space_to_depth", image(g, None, 4, 6, 3), attrs={"block": 2})
    ],
    "depth_to_space": [
        lambda g: g.add("depth_to_space", image(g, None, 3, 2, 12), attrs={"block": 2})
    ],
    "space_to_batch": [
        partial(unary, "space_to_batch", block=(2, 3), paddings=((1, 0), (2, 1)))
    ],
    "batch_to_space": [
        partial(batch_to_space, block=(2, 3), crops=((1, 0), (0, 2)))
    ],
    "opaque": [opaque],
}  # fmt: skip
