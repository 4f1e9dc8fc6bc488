"""Limits of the NPU of Ryzen AI, as AMD Quark keeps them. They do not affect exactness on a CPU.

Source: the documentation of Quark's pass `onnx_xint8_adjust`, and AMD's page on model deployment
(https://ryzenai.docs.amd.com/en/1.4/modelrun.html).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from qgraph.program import Program, Step
from qgraph.program.ops import OpClass, RequantizeAttrs

RECOMMENDED_OPSET = 17
LAYER_SHIFTS = (0, 16)  # of results of layers, from least to most
MOST_BIAS_SHIFT = 15  # of int8 biases, to the scale of the sums
# Ops that become integer ops or a Gather between quantizers.
BESIDE_LAYERS = ("lookup", "softmax", "standardize")


def ops_beside_layers(program: Program) -> list[str]:
    """Results, in quotes, of ops that the file does not compute by one float op between pairs."""
    return [f"`{step.output}`" for step in program.steps if step.op in BESIDE_LAYERS]


def shifts_out_of_range(program: Program) -> dict[str, int]:
    """Right shifts of results of layers outside of the limits, by the name of the result."""
    users: dict[str, list[Step]] = {}
    for step in program.steps:
        for name in step.inputs:
            users.setdefault(name, []).append(step)
    low, high = LAYER_SHIFTS
    layers = [s for s in program.steps if s.family in (OpClass.PRODUCT, OpClass.MATRIX)]
    results = [found for layer in layers if (found := _rounded(layer, users)) is not None]
    shifts = {r.output: int(np.max(r.attrs_as(RequantizeAttrs).shift)) for r in results}
    return {name: shift for name, shift in shifts.items() if not low <= shift <= high}


def _rounded(layer: Step, users: Mapping[str, Sequence[Step]]) -> Step | None:
    """The requantization behind a layer, its bias and its limits, if nothing else reads them."""
    step = layer
    while step.op != "requantize":
        after = users.get(step.output, ())
        if len(after) != 1 or after[0].op not in ("add", "clip", "requantize"):
            return None
        step = after[0]
    return step
