"""Whether a network of one ONNX node has an integer form that `verify` proves equal.

The input is quantized first, and a dense layer with the identity matrix follows the result, so that
the node lies between integer layers as in networks.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from qgraph import quantize, verify
from qgraph.choices import Effort
from qgraph.errors import QGraphError
from qgraph.ir.cast import cast_floats
from qgraph.ir.graph import Graph
from qgraph.ir.narrow_floats import WIDE
from qgraph.ir.types import Array, QuantSpec, Role
from qgraph.numerics import exponent_for_max
from qgraph.passes import PassManager
from qgraph.recipes import CLEAN

BITS = 8
FORMS = ("engine", "onnx-integer")
WIDEST = 1000  # of the layer's rows


def has_integer_form(graph: Graph, feeds: Mapping[str, Array]) -> bool:
    """Whether nothing but the entry of the network stays float, and its forms are equal."""
    between = _between_layers(graph, feeds)
    if between is None:
        return False
    try:
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of numpy, for tests with infinities
            made = quantize(between, dict(feeds), effort=Effort.PLAIN)
            if any(r.reason.startswith("stays float") for r in made.trace.refusals):
                return False
            found = verify(made.save(f"{folder}/out"), forms=list(FORMS))
            steps = found.network.program.steps
            return bool(steps) and found.equal and not found.network.program.has_islands
    except QGraphError:
        return False


def _between_layers(graph: Graph, feeds: Mapping[str, Array]) -> Graph | None:
    """The network between a quantizer and layers; None if it does not compute with floats."""
    copy = cast_floats(graph, WIDE)
    PassManager(CLEAN).run(copy)
    results = {p: v for p, v in copy.outputs.items() if v not in copy.inputs}
    shapes = [copy.types[value].shape for value in results.values()]
    ends = [copy.types[value] for value in (*copy.inputs, *results.values())]
    if not (copy.inputs and results) or not all(kind.is_float for kind in ends):
        return None
    if any(shape is None or None in shape or 0 in shape for shape in shapes):
        return None
    for name in copy.inputs:
        users = copy.users(name)
        largest = float(np.abs(feeds[name]).max(initial=0)) or 1.0
        spec = QuantSpec(BITS, True, Role.INPUT, exponent_for_max(largest, BITS, True))
        codes = copy.add("quantize", name, name=f"{name}/codes", attrs={"spec": spec})
        for user in users:
            inputs = tuple(codes if value == name else value for value in user.inputs)
            copy.replace(replace(user, inputs=inputs))
    for public, value in results.items():
        width = _width(((copy.types[value].shape or ()) or (1,))[-1] or 1)
        rows = copy.add("reshape", value, name=f"{public}/rows", attrs={"shape": (-1, width)})
        identity = copy.const(np.eye(width, dtype=np.float32), f"{public}/identity")
        copy.outputs[public] = copy.add("matmul", rows, identity, name=f"{public}/layer")
    return copy


def _width(last: int) -> int:
    """The largest divisor of a last axis that a layer takes as a row."""
    return next(n for n in range(min(last, WIDEST), 0, -1) if last % n == 0)
