"""A target's table: how it writes each op of the integer program, or why it does not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from qgraph.errors import GraphError, UnsupportedError
from qgraph.program import Step
from qgraph.program.ops import OPS

T = TypeVar("T")


@dataclass(frozen=True)
class Refusal:
    """Why a target does not write an op, and what carries the op instead."""

    reason: str
    hint: str | None = None


class Lowerings(Generic[T]):
    """One entry for each op: lowered or refused.

    place: where the table is, like `backends/c`; errors name it.
    """

    def __init__(
        self, place: str, lowered: Mapping[str, T], refused: Mapping[str, Refusal] | None = None
    ) -> None:
        self.place = place
        self.lowered = lowered
        self.refused = refused or {}

    def of(self, step: Step) -> T:
        """The entry for a step.

        Raises UnsupportedError for an op that the target refuses, GraphError for one that the table
        does not have.
        """
        found = self.lowered.get(step.op)
        if found is not None:
            return found
        refusal = self.refusal(step)
        raise UnsupportedError(refusal.reason, node=step.output, hint=refusal.hint)

    def refusal(self, step: Step) -> Refusal:
        """Why the target refuses a step. Raises GraphError for an op that the table lacks."""
        if step.op not in self.refused:
            raise GraphError(self._missing(step.op), node=step.output)
        return self.refused[step.op]

    def faults(self) -> Iterator[str]:
        """What is wrong with the table: ops that it lacks, has twice, or that are no ops."""
        for op in OPS:
            if op not in self.lowered and op not in self.refused:
                yield self._missing(op)
            if op in self.lowered and op in self.refused:
                yield f"{op}: both lowered and refused in {self.place}"
        for op in {*self.lowered, *self.refused} - OPS.keys():
            yield f"{op}: in {self.place}, but not an op of the integer program"

    def _missing(self, op: str) -> str:
        return f"{op}: no lowering and no refusal in {self.place}"
