"""A program under construction: tensors by name, steps in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from qgraph.errors import UnsupportedError
from qgraph.exact.bounds import Bound
from qgraph.ir.graph import Graph, Node
from qgraph.ir.types import AnyExponent, Array
from qgraph.numerics import frozen_exponent
from qgraph.program.program import Step, Tensor, storage


class ProgramWriter:
    """Collects the steps that rules append. `tensors` has all tensors so far."""

    def __init__(self, graph: Graph, found: Mapping[str, Bound]) -> None:
        self.graph = graph
        self.tensors: dict[str, Tensor] = {}
        self.constants: dict[str, Array] = {}
        self.steps: list[Step] = []
        self._tables: dict[tuple[bytes, object], str] = {}
        self._bounds = found

    def shape(self, value: str) -> tuple[int, ...]:
        """Shape of a tensor. Raises UnsupportedError if a size is unknown."""
        if value in self.tensors:
            return self.tensors[value].shape
        shape = self.graph.types[value].shape
        if shape is None or None in shape:
            raise UnsupportedError(
                f"its size is unknown: {self.graph.types[value]}",
                node=value,
                hint="give --input-shape",
            )
        return tuple(int(d or 0) for d in shape)

    def declare(self, value: str, exponent: AnyExponent) -> None:
        """A tensor for a value of the graph."""
        bound, shape = self._bounds[value], self.shape(value)
        self.tensors[value] = Tensor(
            value, shape, bound.low, bound.high, bound.magnitude, frozen_exponent(exponent)
        )

    def constant(self, name: str, codes: Array, exponent: AnyExponent) -> str:
        """A constant with these codes, in the smallest type that holds them."""
        low, high = int(codes.min(initial=0)), int(codes.max(initial=0))
        self.tensors[name] = Tensor(
            name, codes.shape, low, high, max(-low, high), frozen_exponent(exponent)
        )
        self.constants[name] = codes.astype(storage(low, high))
        return name

    def table(self, stem: str, codes: Array, exponent: int) -> str:
        """A constant that all steps with the same table share."""
        key = (codes.tobytes(), exponent)
        if key not in self._tables:
            self._tables[key] = self.constant(self.fresh(stem), codes, exponent)
        return self._tables[key]

    def between(self, node: Node, word: str, shape: tuple[int, ...]) -> str:
        """An intermediate tensor of a node that only moves values, with codes as in its input."""
        name = self.fresh(f"{node.name}/{word}")
        self.tensors[name] = replace(self.tensors[node.inputs[0]], name=name, shape=shape)
        return name

    def fresh(self, stem: str) -> str:
        name, count = stem, 0
        while name in self.tensors or name in self.graph.types:
            count += 1
            name = f"{stem}_{count}"
        return name

    def step(self, op: str, inputs: tuple[str, ...], output: str, **attrs: object) -> None:
        """Append a step. Raises GraphError for attributes that the op does not have."""
        self.steps.append(Step(op, inputs, output, attrs))


Rule = Callable[[Node, ProgramWriter], None]
