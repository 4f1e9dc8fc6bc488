"""Table of a target: for each op, its lowering or the reason why it is refused."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from qgraph.errors import GraphError, UnsupportedError

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True)
class LoweringRefusal:
    """The reason why a target cannot write an op, and an alternative."""

    reason: str
    hint: str | None = None


class Lowerings(Generic[T_co]):
    """One entry for each op: lowered or refused.

    place: the location of the table, like `backends/c`, for errors. ops: all existing ops.
    """

    def __init__(
        self,
        place: str,
        ops: Collection[str],
        lowered: Mapping[str, T_co],
        refused: Mapping[str, LoweringRefusal] | None = None,
    ) -> None:
        self.place = place
        self.ops = ops
        self.lowered = lowered
        self.refused = refused or {}

    def of(self, op: str, node: str) -> T_co:
        """The entry for an op.

        Raises UnsupportedError for an op that the target refuses, GraphError for one that the table
        does not have; both name the node.
        """
        if op in self.lowered:
            return self.lowered[op]
        refusal = self.refusal(op, node)
        raise UnsupportedError(refusal.reason, node=node, hint=refusal.hint)

    def refusal(self, op: str, node: str) -> LoweringRefusal:
        """The refusal of an op, if any. Raises GraphError for an op that the table lacks."""
        if op not in self.refused:
            raise GraphError(self._missing(op), node=node)
        return self.refused[op]

    def faults(self) -> Iterator[str]:
        """Faults of the table: ops that are missing, listed twice, or unknown."""
        for op in self.ops:
            if op not in self.lowered and op not in self.refused:
                yield self._missing(op)
            if op in self.lowered and op in self.refused:
                yield f"{op}: both lowered and refused in {self.place}"
        for op in sorted({*self.lowered, *self.refused} - {*self.ops}):
            yield f"{op}: listed in {self.place}, but the op does not exist"

    def _missing(self, op: str) -> str:
        return f"{op}: no lowering and no refusal in {self.place}"
