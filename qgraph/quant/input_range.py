"""The range of each input on the samples, and whether the network expects another range.

Batch norms store statistics of the training data (`qgraph.quant.domain`). Without them, only the
arithmetic before the first layer is known: a network that multiplies pixels by 1/255 expects pixels
up to 255, and networks without such a factor are rarely trained on pixels up to 255.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np

from qgraph.ir.graph import Graph
from qgraph.ir.ops import op_definition
from qgraph.ir.types import Array
from qgraph.parallel import over_chunks
from qgraph.quant.samples.data import chunk_count, chunk_inputs
from qgraph.quant.thresholds import Range, range_of
from qgraph.rewrite.masks import OF_INTEGERS

# An input with at least this many numbers per sample is probably an image.
IMAGE_NUMBERS = 64
# Numbers before the first layer that are all below or above these sizes are unusual.
SMALL, LARGE, PIXELS = 0.02, 32.0, 255.5


def ranges_seen(graph: Graph, data: Mapping[str, Array]) -> dict[str, Range]:
    """The smallest and largest number of each input, over all samples of `data`."""
    chunks = chunk_inputs(graph, data)
    with over_chunks(chunk_count(chunks)) as each:
        return {name: range_of(parts, name, each) for name, parts in chunks.items()}


def doubts(graph: Graph, seen: Mapping[str, Range], with_norms: bool) -> list[str]:
    """Warnings for inputs whose range does not fit the network.

    graph: after the passes of `qgraph.recipes.CLEAN`. with_norms: batch norms were compared with
    the samples, which is more reliable; then only constant inputs are reported.
    """
    found = []
    for name, (low, high) in seen.items():
        if low == high:
            found.append(f"input `{name}` is {low:g} everywhere: nothing can be calibrated on it")
        elif not with_norms:
            found += _against_scaling(graph, name, low, high)
    return found + _odd_masks(graph, seen)


def _odd_masks(graph: Graph, seen: Mapping[str, Range]) -> list[str]:
    """Warnings for masks of integers other than 0 and 1."""
    found = []
    for mask in (n for n in graph.nodes.values() if n.name.endswith(OF_INTEGERS)):
        source = graph.producer(mask.inputs[0])
        while len(source.inputs) == 1:
            source = graph.producer(source.inputs[0])
        low, high = seen.get(source.name, (0.0, 1.0))
        if low < 0 or high > 1:
            found.append(
                f"input `{source.name}` is within {low:g} to {high:g}, and the network uses it as "
                "a mask of scores: in fixed point, all numbers but 0 count as 1"
            )
    return found


def _against_scaling(graph: Graph, name: str, low: float, high: float) -> list[str]:
    scale, shift, is_scaled = _arithmetic_in_front(graph, name)
    ends = [abs(end * scale + shift) for end in (low, high)]
    spread = abs((high - low) * scale)
    seen = f"input `{name}` is within {low:g} to {high:g}"
    if is_scaled and spread < SMALL:
        return [
            f"{seen}, and the network multiplies it by {scale:.3g} itself, so it probably expects "
            f"numbers up to {1 / abs(scale):.3g}: were the samples scaled twice?"
        ]
    if is_scaled and max(ends) > LARGE:
        return [
            f"{seen}, which is {max(ends):.3g} after the network's own scaling by {scale:.3g}: "
            "do the samples have another unit than in training?"
        ]
    numbers = prod(d or 1 for d in (graph.types[name].shape or (1,))[1:])
    pixels = low >= 0 and LARGE < high <= PIXELS and numbers >= IMAGE_NUMBERS
    if not is_scaled and pixels:
        return [
            f"{seen}, and nothing before the first layer scales it: if the network was trained on "
            "numbers in 0 to 1 or -1 to 1, scale the samples in the same way"
        ]
    return []


def _arithmetic_in_front(graph: Graph, name: str) -> tuple[float, float, bool]:
    """(scale, shift, whether there is a scale) of the ops at the input, on average."""
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
