"""What each op of a program does, in numpy on int64: plain, and the twin of the integer reference.

4-D tensors are [batch, height, width, channels]; filters [height, width, inputs, outputs].
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from qgraph.errors import GraphError
from qgraph.ir.ops.linear import conv2d, depthwise_conv2d
from qgraph.ir.ops.pool import max_pool
from qgraph.ir.ops.standardize import Standardization, standardized
from qgraph.ir.types import Array, Codes, QuantSpec, Role
from qgraph.numerics import bring_into_range, round_shift
from qgraph.program.form import Program, Step

Attrs = Mapping[str, Any]
Rule = Callable[[Attrs, Sequence[Codes]], Any]


def _window(function: Callable[[Attrs, Sequence[Any]], Any]) -> Rule:
    """The rule of the graph's op, which calls its pads `padding`."""
    return lambda attrs, inputs: function({**attrs, "padding": attrs["pads"]}, inputs)


def _binary(function: Callable[[Any, Any], Any]) -> Rule:
    return lambda attrs, inputs: function(inputs[0], inputs[1])


def _clip(attrs: Attrs, inputs: Sequence[Codes]) -> Any:
    low, high = attrs["low"], attrs["high"]
    x = inputs[0] if low is None else np.maximum(inputs[0], low)
    return x if high is None else np.minimum(x, high)


def _requantize(attrs: Attrs, inputs: Sequence[Codes]) -> Any:
    low, high = attrs["low"], attrs["high"]
    spec = QuantSpec(
        (high - low).bit_length(), low < 0, Role.ACTIVATION, overflow=attrs["overflow"]
    )
    shifted = round_shift(inputs[0], np.asarray(attrs["shift"]), attrs["rounding"])
    return bring_into_range(shifted, spec)


def _slice(attrs: Attrs, inputs: Sequence[Codes]) -> Any:
    parts = zip(attrs["begin"], attrs["end"], attrs["strides"], strict=True)
    return inputs[0][tuple(slice(*part) for part in parts)]


RULES: Mapping[str, Rule] = {
    "conv2d": _window(conv2d),
    "depthwise_conv2d": _window(depthwise_conv2d),
    "matmul": _binary(np.matmul),
    "add": _binary(np.add),
    "sub": _binary(np.subtract),
    "mul": _binary(np.multiply),
    "maximum": _binary(np.maximum),
    "minimum": _binary(np.minimum),
    "clip": _clip,
    "requantize": _requantize,
    "lookup": lambda attrs, inputs: inputs[1][inputs[0] - attrs["offset"]],
    "standardize": lambda attrs, inputs: standardized(inputs[0], Standardization(**attrs)),
    "max_pool": _window(max_pool),
    "reduce_max": lambda a, i: np.max(i[0], axis=a["axes"], keepdims=a["keepdims"]),
    "reshape": lambda attrs, inputs: np.reshape(inputs[0], attrs["shape"]),
    "transpose": lambda attrs, inputs: np.transpose(inputs[0], attrs["perm"]),
    "slice": _slice,
    "concat": lambda attrs, inputs: np.concatenate(inputs, axis=attrs["axis"]),
    "pad": lambda attrs, inputs: np.pad(inputs[0], attrs["paddings"]),
    "take": lambda attrs, inputs: np.take(inputs[0], attrs["indices"], axis=attrs["axis"]),
}


def run(
    program: Program, entries: Mapping[str, Array], keep: Collection[str] | None = None
) -> dict[str, Codes]:
    """Codes by tensor name: of the exits, or of the tensors in `keep`.

    entries: codes of every entry, N samples where the batch is free. Raises GraphError for codes
    that are missing or do not fit.
    """
    batch = batch_of(program, entries)
    values: dict[str, Codes] = {n: np.asarray(c, np.int64) for n, c in program.constants.items()}
    values.update({e.tensor: np.asarray(entries[e.tensor], np.int64) for e in program.entries})
    for step in program.steps:
        inputs = [values[name] for name in step.inputs]
        values[step.output] = np.asarray(RULES[step.op](of_batch(program, step, batch), inputs))
    return {name: values[name] for name in (program.exits if keep is None else keep)}


def batch_of(program: Program, entries: Mapping[str, Array]) -> int:
    """The samples in `entries`; 1 where the batch is not free. Raises GraphError."""
    batch = None
    for entry in program.entries:
        if entry.tensor not in entries:
            raise GraphError("no codes are given for this entry", node=entry.tensor)
        tensor, codes = program.tensors[entry.tensor], np.asarray(entries[entry.tensor])
        if codes.dtype.kind not in "iu":
            raise GraphError(f"codes are integers, found {codes.dtype}", node=entry.tensor)
        wanted = tensor.shape
        if program.batch_free and codes.ndim:
            batch = len(codes) if batch is None else batch
            wanted = (batch, *wanted[1:])
        if codes.shape != wanted:
            raise GraphError(f"expects codes {wanted}, found {codes.shape}", node=entry.tensor)
        if codes.size and (codes.min() < tensor.low or codes.max() > tensor.high):
            raise GraphError(f"codes leave {tensor.low}..{tensor.high}", node=entry.tensor)
    return 1 if batch is None else batch


def of_batch(program: Program, step: Step, batch: int) -> Attrs:
    if step.op == "reshape" and program.batch_free:
        return {"shape": (batch, *step.attrs["shape"][1:])}
    return step.attrs
