"""The range of each input on the samples, and whether the network looks made for another.

Batch norms remember what the training data looked like (`qgraph.quant.domain`). Without them only
the arithmetic in front of the first layer shows: what scales pixels by 1/255 expects them up to
255, and pixels up to 255 that nothing scales are rarely what a network was trained on.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np

from qgraph.ir.graph import Graph
from qgraph.ir.ops import op_definition
from qgraph.ir.types import Array
from qgraph.parallel import over_chunks
from qgraph.quant.data import chunk_count, chunk_inputs
from qgraph.quant.thresholds import Range, range_of

# An input with as many numbers a sample is taken for an image, or the like.
IMAGE_NUMBERS = 64
# Numbers in front of the first layer that are all within, or beyond, these sizes are unusual.
SMALL, LARGE, PIXELS = 0.02, 32.0, 255.5


def ranges_seen(graph: Graph, data: Mapping[str, Array]) -> dict[str, Range]:
    """The least and the greatest number of each input, over all samples of `data`."""
    chunks = chunk_inputs(graph, data)
    with over_chunks(chunk_count(chunks)) as each:
        return {name: range_of(parts, name, each) for name, parts in chunks.items()}


def doubts(graph: Graph, seen: Mapping[str, Range], with_norms: bool) -> list[str]:
    """Warnings for inputs whose range does not fit what the network does with them.

    graph: as `qgraph.recipes.CLEAN` leaves it. `with_norms`: batch norms were asked already, and
    tell better; then only inputs that are the same everywhere are reported.
    """
    found = []
    for name, (low, high) in seen.items():
        if low == high:
            found.append(f"input `{name}` is {low:g} everywhere: nothing can be calibrated on it")
        elif not with_norms:
            found += _against_scaling(graph, name, low, high)
    return found


def _against_scaling(graph: Graph, name: str, low: float, high: float) -> list[str]:
    scale, shift, is_scaled = _arithmetic_in_front(graph, name)
    ends = [abs(end * scale + shift) for end in (low, high)]
    spread = abs((high - low) * scale)
    seen = f"input `{name}` lies within {low:g} to {high:g}"
    if is_scaled and spread < SMALL:
        return [
            f"{seen}, and the network multiplies it by {scale:.3g} itself: numbers up to "
            f"{1 / abs(scale):.3g} would fit; were the samples scaled twice?"
        ]
    if is_scaled and max(ends) > LARGE:
        return [
            f"{seen}, which is {max(ends):.3g} behind the network's own scaling by {scale:.3g}: "
            "are the samples in another unit than in training?"
        ]
    numbers = prod(d or 1 for d in (graph.types[name].shape or (1,))[1:])
    pixels = low >= 0 and LARGE < high <= PIXELS and numbers >= IMAGE_NUMBERS
    if not is_scaled and pixels:
        return [
            f"{seen} and nothing in front of the first layer scales it: if the network was trained "
            "on 0 to 1 or -1 to 1, the samples have to be scaled alike"
        ]
    return []


def _arithmetic_in_front(graph: Graph, name: str) -> tuple[float, float, bool]:
    """(scale, shift, whether there is a scale) of what lies before anything else, on average."""
    scale, shift, is_scaled, value = 1.0, 0.0, False, name
    while graph.use_count(value) == 1 and graph.users(value):
        node = graph.users(value)[0]
        others = [v for v in node.inputs if v != value]
        constants = [c for c in map(graph.constant, others) if c is not None and c.size]
        if node.op in ("identity", "cast") or (op_definition(node.op).moves and not others):
            value = node.name
            continue
        if len(others) != 1 or len(constants) != 1 or node.op not in ("mul", "div", "add", "sub"):
            break
        number = float(np.mean(constants[0], dtype=np.float64))
        if node.op in ("mul", "div"):
            if number == 0 or (node.op == "div" and node.inputs[0] != value):
                break
            factor = number if node.op == "mul" else 1 / number
            scale, shift, is_scaled = scale * factor, shift * factor, True
        elif node.op == "sub" and node.inputs[0] != value:
            scale, shift = -scale, number - shift
        else:
            shift += number if node.op == "add" else -number
        value = node.name
    return scale, shift, is_scaled
