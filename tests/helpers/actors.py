"""Actor programs for tests, with random weights."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from qgraph.rl.actor import ActorProgram, ActorStep


def mlp(*sizes: int, activation: str = "relu", last: str = "linear") -> ActorProgram:
    """Dense steps from sizes[0] values to sizes[-1]."""
    steps, shapes, x = [], {}, "observation"
    for i, (k, m) in enumerate(itertools.pairwise(sizes)):
        shapes |= {f"w{i}": (k, m), f"b{i}": (m,)}
        attrs = {"activation": last if i == len(sizes) - 2 else activation}
        steps.append(ActorStep("dense", (x,), f"y{i}", (f"w{i}", f"b{i}"), attrs))
        x = f"y{i}"
    return ActorProgram((sizes[0],), tuple(steps), (x,), shapes)


def cnn(
    size: int = 12, channels: int = 3, outputs: int = 5, pads: Any = ((1, 2), (0, 1))
) -> ActorProgram:
    """Two convolutions, a pool, a dense step."""
    steps = (
        ActorStep(
            "conv",
            ("observation",),
            "c0",
            ("w0", "b0"),
            {"activation": "relu", "strides": (2, 2), "pads": pads},
        ),
        ActorStep("conv", ("c0",), "c1", ("w1", "b1"), {"activation": "tanh"}),
        ActorStep(
            "max_pool",
            ("c1",),
            "p",
            (),
            {"ksize": (2, 2), "strides": (1, 2), "pads": ((1, 0), (0, 0))},
        ),
        ActorStep("flatten", ("p",), "f"),
        ActorStep("dense", ("f",), "y", ("w2", "b2")),
    )
    shapes: dict[str, tuple[int, ...]] = {
        "w0": (3, 3, channels, 18),
        "b0": (18,),
        "w1": (2, 3, 18, 70),
        "b1": (70,),
    }
    whole = ActorProgram((size, size, channels), steps[:4], ("f",), shapes)
    shapes |= {"w2": (whole.size("f"), outputs), "b2": (outputs,)}
    return ActorProgram((size, size, channels), steps, ("y", "c1"), shapes)


def every_op(size: int = 21) -> ActorProgram:
    """A program with every op except the windows of `cnn`, with two outputs."""
    shapes: dict[str, tuple[int, ...]] = {
        "scale": (size,),
        "offset": (size,),
        "low": (size,),
        "high": (size,),
        "w0": (size, 40),
        "hidden": (40,),
        "gamma": (40,),
        "beta": (40,),
        "w1": (40, 1),
        "b1": (1,),
        "w2": (40, 6),
        "b2": (6,),
    }
    steps = (
        ActorStep("affine", ("observation",), "a", ("scale", "offset")),
        ActorStep("clip", ("a",), "held", ("low", "high")),
        ActorStep("dense", ("held",), "d", ("w0", "hidden"), {"activation": "leaky_relu"}),
        ActorStep("layer_norm", ("d",), "norm", ("gamma", "beta"), {"epsilon": 1e-5}),
        ActorStep("activate", ("norm",), "h", (), {"activation": "elu"}),
        ActorStep("dense", ("h",), "value", ("w1", "b1")),
        ActorStep("dense", ("h",), "advantage", ("w2", "b2"), {"activation": "softplus"}),
        ActorStep("center", ("advantage",), "centered"),
        ActorStep("add", ("centered", "value"), "q"),
        ActorStep("multiply", ("q", "advantage"), "m"),
        ActorStep("softmax", ("m",), "p"),
        ActorStep("concat", ("p", "q", "value"), "both"),
    )
    return ActorProgram((size,), steps, ("both", "p"), shapes)


def arranged(rows: int = 3, columns: int = 4) -> ActorProgram:
    """Slices, other shapes and orders of axes, sums and products of a vector's parts."""
    size = rows * columns
    shapes: dict[str, Any] = {"scale": (columns,), "offset": (columns,)}
    steps = (
        *_arrangement("observation", rows, columns),
        ActorStep("layer_norm", ("product",), "normed", ("scale", "offset"), {"epsilon": 1e-3}),
        ActorStep("softmax", ("normed",), "shares"),
        ActorStep("sum", ("shares",), "sums"),
    )
    return ActorProgram((2 * size + 1,), steps, ("turned", "sums", "image"), shapes)


def _arrangement(x: str, rows: int, columns: int) -> tuple[ActorStep, ...]:
    size = rows * columns
    window = {"ksize": (2, 2), "strides": (1, 2), "pads": ((1, 0), (0, 1))}
    return (
        ActorStep("slice", (x,), "first", (), {"columns": (1, size)}),
        ActorStep("slice", (x,), "second", (), {"columns": (size, size)}),
        ActorStep("reshape", ("first",), "one", (), {"shape": (rows, columns)}),
        ActorStep("reshape", ("second",), "other", (), {"shape": (1, columns, rows)}),
        ActorStep("transpose", ("other",), "swapped", (), {"perm": (0, 2, 1)}),
        ActorStep("reshape", ("swapped",), "flat_other", (), {"shape": (rows, columns)}),
        ActorStep("transpose", ("one",), "turned", (), {"perm": (1, 0)}),
        ActorStep("matmul", ("turned", "flat_other"), "square"),
        ActorStep("matmul", ("one", "square"), "product"),
        ActorStep("reshape", ("product",), "picture", (), {"shape": (rows, columns, 1)}),
        ActorStep("avg_pool", ("picture",), "image", (), window),
    )


def random_weights(program: ActorProgram, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    found = {}
    for name, shape in program.weight_shapes.items():
        spread = 1 / np.sqrt(np.prod(shape[:-1])) if len(shape) > 1 else 0.5
        found[name] = rng.normal(0, spread, shape).astype(np.float32)
    if "low" in found:
        found["high"] = found["low"] + np.float32(2)
    return found


def everything() -> ActorProgram:
    """Every op in one small program."""
    conv = {"activation": "relu", "strides": (1, 2), "pads": ((1, 0), (0, 1))}
    pool = {"ksize": (2, 2), "strides": (2, 1), "pads": ((0, 1), (0, 0))}
    steps = (
        ActorStep("conv", ("observation",), "c0", ("k0", "b0"), conv),
        ActorStep("conv", ("c0",), "c1", ("k1", "b0"), {**conv, "activation": "swish"}),
        ActorStep("max_pool", ("c1",), "pooled", (), pool),
        ActorStep("add", ("pooled", "pooled"), "twice"),
        ActorStep("flatten", ("twice",), "observations"),
    )
    shapes: dict[str, Any] = {"k0": (2, 3, 2, 19), "b0": (19,), "k1": (3, 2, 19, 19)}
    size = ActorProgram((5, 6, 2), steps, ("twice",), shapes).size("observations")
    rest = every_op(size)
    renamed = {"observation": "observations"}
    steps += _arrangement("observations", 2, 3)
    steps += (ActorStep("sum", ("product",), "sums"),)
    steps += tuple(
        ActorStep(s.op, tuple(renamed.get(i, i) for i in s.inputs), s.output, s.weights, s.attrs)
        for s in rest.steps
    )
    outputs = ("both", "p", "pooled", "sums", "image")
    return ActorProgram((5, 6, 2), steps, outputs, {**rest.weight_shapes, **shapes})
