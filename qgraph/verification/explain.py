"""Explain one code: the elements that it was computed from, step by step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from qgraph.ir.types import Codes
from qgraph.ops.attributes import Attributes
from qgraph.program import Program, Step
from qgraph.program.ops import Index, OpClass
from qgraph.program.run import of_batch

Element = tuple[str, Index]


@dataclass(frozen=True)
class Line:
    """An element, its code, and the elements it is computed from (products: input, weight, ...)."""

    tensor: str
    index: Index
    code: int
    op: str
    attrs: Attributes
    sources: tuple[tuple[str, Index, int], ...]


def explain(
    program: Program, codes: Mapping[str, Codes], tensor: str, index: Index, known: set[str]
) -> list[Line]:
    """The computation of one element from elements of the tensors in `known`; the element first.

    codes: of every tensor, including constants. The inputs of sums of products are not explained.
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
        if step.family not in (OpClass.PRODUCT, OpClass.MATRIX):
            waiting += [(n, i) for n, i in found if n not in known]
    return lines


def sources_of(
    program: Program, step: Step, codes: Mapping[str, Codes], index: Index
) -> list[Element]:
    """The elements from which one element of a step's result is computed."""
    inputs = [codes[name] for name in step.inputs]
    attrs = of_batch(program, step, len(inputs[0])) if np.ndim(inputs[0]) else step.attrs
    found = step.definition.sources(attrs, inputs, index)
    return [(step.inputs[operand], at) for operand, at in found]
