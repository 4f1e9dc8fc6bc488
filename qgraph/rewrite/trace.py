"""The log of a compilation: every rewrite, and every refusal with its reason."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from qgraph.records import OMITTED


@dataclass(frozen=True)
class SharedScale:
    """An op whose inputs, the quantizers `members`, must share one scale."""

    op: str
    members: tuple[str, ...]


@dataclass(frozen=True)
class Rewrite:
    """One change: `before` and `after` are nodes in the IR's text form."""

    pass_name: str
    rule: str
    node: str
    before: str
    after: str
    shared_scale: SharedScale | None = field(default=None, metadata=OMITTED)


@dataclass(frozen=True)
class Refusal:
    """A rule that matched but was not applied, and the reason."""

    pass_name: str
    rule: str
    node: str
    reason: str


@dataclass
class Trace:
    """Rewrites and refusals in order; only the last refusal of a node is kept."""

    rewrites: list[Rewrite] = field(default_factory=list)
    _refusals: dict[tuple[str, str, str], Refusal] = field(default_factory=dict)

    @property
    def refusals(self) -> list[Refusal]:
        return list(self._refusals.values())

    def record(self, rewrite: Rewrite) -> None:
        self._refusals.pop((rewrite.pass_name, rewrite.rule, rewrite.node), None)
        self.rewrites.append(rewrite)

    def refuse(self, refusal: Refusal) -> None:
        self._refusals[refusal.pass_name, refusal.rule, refusal.node] = refusal

    def copy(self) -> Trace:
        """A log that begins with the same entries."""
        return Trace(list(self.rewrites), dict(self._refusals))

    def extend(self, other: Trace) -> None:
        """Append the entries of another log."""
        for rewrite in other.rewrites:
            self.record(rewrite)
        for refusal in other.refusals:
            self.refuse(refusal)

    def of_pass(self, name: str) -> tuple[list[Rewrite], list[Refusal]]:
        return (
            [r for r in self.rewrites if r.pass_name == name],
            [r for r in self.refusals if r.pass_name == name],
        )

    @property
    def stored(self) -> TraceRecord:
        """The log as it is stored."""
        return TraceRecord(self.rewrites, self.refusals)

    @classmethod
    def of(cls, record: TraceRecord) -> Trace:
        made = cls(list(record.rewrites))
        for refusal in record.refusals:
            made.refuse(refusal)
        return made


@dataclass(frozen=True)
class TraceRecord:
    """rewrites.json."""

    rewrites: Sequence[Rewrite]
    refusals: Sequence[Refusal]


def without_numbers(text: str) -> str:
    """Text of nodes without the elements or hash of constants: dtype and shape are enough."""
    return re.sub(r"(\w\[[\d,]*\]):(\[[^\]]{24,}\]|sha256:\w+)", r"\1", text)
