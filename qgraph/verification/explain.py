"""Where one code comes from: the elements that a step made it of, and the way back to them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from qgraph.ir.types import Codes
from qgraph.program import Program, Step
from qgraph.program.run import RULES, of_batch

Index = tuple[int, ...]
Element = tuple[str, Index]
Sources = Callable[[Step, Mapping[str, Codes], Index], list[Element]]

PRODUCTS = ("conv2d", "depthwise_conv2d", "matmul")


@dataclass(frozen=True)
class Line:
    """An element, its code, and the elements it was made of (for products: input, weight, ...)."""

    tensor: str
    index: Index
    code: int
    op: str
    attrs: Mapping[str, Any]
    sources: tuple[tuple[str, Index, int], ...]


def explain(
    program: Program, codes: Mapping[str, Codes], tensor: str, index: Index, known: set[str]
) -> list[Line]:
    """The way to one element from those of the tensors in `known`, the element itself first.

    codes: of every tensor, constants too. A sum of products is never followed further back.
    """
    makers = {step.output: step for step in program.steps}
    lines: list[Line] = []
    waiting: list[Element] = [(tensor, index)]
    seen: set[Element] = set()
    while waiting:
        name, at = waiting.pop(0)
        step = makers.get(name)
        if step is None or (name, at) in seen:
            continue
        seen.add((name, at))
        found = sources_of(program, step, codes, at)
        lines.append(
            Line(name, at, int(codes[name][at]), step.op, step.attrs,
                 tuple((n, i, int(codes[n][i])) for n, i in found))
        )  # fmt: skip
        if step.op not in PRODUCTS:
            waiting += [(n, i) for n, i in found if n not in known]
    return lines


def sources_of(
    program: Program, step: Step, codes: Mapping[str, Codes], index: Index
) -> list[Element]:
    """The elements that one element of a step's result is made of."""
    if step.op in ("conv2d", "depthwise_conv2d"):
        return _products(step, codes, index)
    if step.op == "matmul":
        x, w = step.inputs
        return [
            element
            for k in range(codes[w].shape[0])
            for element in ((x, (index[0], k)), (w, (k, index[1])))
        ]
    if step.op == "max_pool":
        seen = _window(step, codes, step.attrs["ksize"], (1, 1), index)
        return [(step.inputs[0], (*place, index[3])) for _, place in seen]
    if step.op == "reduce_max":
        return _reduced(step, codes, index)
    if step.op == "standardize":
        (x,) = step.inputs
        return [(x, (*index[:-1], c)) for c in range(codes[x].shape[-1])]
    if step.op == "lookup":
        x, table = step.inputs
        return [(x, index), (table, (int(codes[x][index]) - step.attrs["offset"],))]
    if step.op in ("reshape", "transpose", "slice", "concat", "pad", "take"):
        return _moved(program, step, codes, index)
    return [(name, _broadcast(codes[name].shape, index)) for name in step.inputs]


def _broadcast(shape: Index, index: Index) -> Index:
    own = index[len(index) - len(shape) :]
    return tuple(0 if size == 1 else i for size, i in zip(shape, own, strict=True))


def _window(
    step: Step, codes: Mapping[str, Codes], kernel: Any, dilations: Any, index: Index
) -> list[tuple[Index, Index]]:
    """Taps inside the image: (place in the window, place in the tensor without its channel)."""
    shape = codes[step.inputs[0]].shape
    found: list[tuple[Index, Index]] = []
    for i, j in np.ndindex(*kernel):
        row, column = (
            index[1 + axis] * step.attrs["strides"][axis]
            - step.attrs["pads"][axis][0]
            + tap * dilations[axis]
            for axis, tap in enumerate((i, j))
        )
        if 0 <= row < shape[1] and 0 <= column < shape[2]:
            found.append(((i, j), (index[0], row, column)))
    return found


def _products(step: Step, codes: Mapping[str, Codes], index: Index) -> list[Element]:
    x, w = step.inputs
    kh, kw, inputs, outputs = codes[w].shape
    found: list[Element] = []
    for tap, place in _window(step, codes, (kh, kw), step.attrs["dilations"], index):
        if step.op == "depthwise_conv2d":
            c, m = divmod(index[3], outputs)
            found += [(x, (*place, c)), (w, (*tap, c, m))]
            continue
        first = index[3] // (outputs // step.attrs["groups"]) * inputs
        for c in range(inputs):
            found += [(x, (*place, first + c)), (w, (*tap, c, index[3]))]
    return found


def _reduced(step: Step, codes: Mapping[str, Codes], index: Index) -> list[Element]:
    x, axes = step.inputs[0], step.attrs["axes"]
    rest = list(index)
    if not step.attrs["keepdims"]:
        for axis in sorted(axes):
            rest.insert(axis, 0)
    ranges = [
        range(size) if axis in axes else (rest[axis],) for axis, size in enumerate(codes[x].shape)
    ]
    return [(x, at) for at in itertools.product(*ranges)]


def _moved(program: Program, step: Step, codes: Mapping[str, Codes], index: Index) -> list[Element]:
    """Numbers in place of codes, moved as codes are, tell where each came from; 0 is padding."""
    numbers, firsts, count = [], [], 1
    for name in step.inputs:
        size = codes[name].size
        numbers.append(np.arange(count, count + size).reshape(codes[name].shape))
        firsts.append(count)
        count += size
    attrs = of_batch(program, step, len(codes[step.inputs[0]]))
    number = int(np.asarray(RULES[step.op](attrs, numbers))[index])
    if number == 0:
        return []
    which = max(i for i, first in enumerate(firsts) if number >= first)
    name = step.inputs[which]
    at = np.unravel_index(number - firsts[which], codes[name].shape)
    return [(name, tuple(int(i) for i in at))]
