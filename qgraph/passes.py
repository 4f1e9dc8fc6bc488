"""Passes over graphs or other subjects, and the manager that runs a recipe of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import Field, dataclass
from operator import is_
from typing import ClassVar, Generic, Protocol, TypeVar

from qgraph.errors import PassError, QGraphError, UsageError, reason_of
from qgraph.ir.graph import Graph
from qgraph.ops.attributes import Declaration, attribute
from qgraph.option_text import Codec, Mismatch, default_of, option_name, options_of
from qgraph.rewrite.rewriter import Rewriter, Rule, apply_rules
from qgraph.rewrite.trace import Trace


@dataclass(frozen=True)
class PassResult:
    """Result of one pass: how many changes it logged, and how many rules declined."""

    name: str
    changes: int
    refusals: int


class Subject(Protocol):
    """Subject of passes, changed in place: a graph, or a policy that is compressed.

    facts       what passes have established (`ensures`)
    """

    facts: set[str]

    def verify(self) -> None:
        """Raise QGraphError unless it is well formed."""

    def contents(self) -> list[object]:
        """The values that a pass can change. They are frozen, so comparing identities is enough."""


S = TypeVar("S", bound=Subject)

# A field of a pass with a meaning and a range: `option("...", low=0, default=3.0)`.
option = attribute


def declared(field: Field[object]) -> Declaration:
    """The meaning and range of a pass's field; empty where it was not made by `option`."""
    return Declaration(field.name, **{"meaning": "", **field.metadata}, default=default_of(field))


@dataclass(frozen=True)
class PassOver(ABC, Generic[S]):
    """A transform as a value. Its fields are its options.

    `requires` are facts that must hold before the pass, `ensures` facts that hold after it.
    A pass keeps the function of its subject, or states in its docstring what it changes. Raises
    UsageError for an option outside its range.
    """

    name: ClassVar[str]
    requires: ClassVar[frozenset[str]] = frozenset()
    ensures: ClassVar[frozenset[str]] = frozenset()

    def __post_init__(self) -> None:
        for field in options_of(type(self)):
            declaration, value = declared(field), getattr(self, field.name)
            if not declaration.holds(value):
                raise UsageError(
                    f"pass `{self.name}`: option `{option_name(field.name)}` cannot be {value}",
                    hint=f"legal: {declaration.range}",
                )

    @property
    def title(self) -> str:
        """Name in results, traces and errors."""
        return self.name

    @abstractmethod
    def change(self, subject: S, trace: Trace) -> int:
        """Change the subject in place, log to `trace`, and return the number of changes."""

    def run(self, subject: S, trace: Trace | None = None) -> PassResult:
        """Run on `subject` in place. Raises PassError where `requires` does not hold."""
        missing = self.requires - subject.facts
        if missing:
            raise PassError(f"pass `{self.title}` needs {sorted(missing)} first")
        trace = trace if trace is not None else Trace()
        changes = self._changed(subject, trace)
        subject.facts |= self.ensures
        return PassResult(self.title, changes, len(trace.of_pass(self.title)[1]))

    def _changed(self, subject: S, trace: Trace) -> int:
        """Run `change`. An exception of a custom pass becomes a PassError that names the pass."""
        try:
            return self.change(subject, trace)
        except QGraphError:
            raise
        except Exception as error:
            if type(self).__module__.partition(".")[0] == "qgraph":
                raise
            raise PassError(f"pass `{self.title}` failed: {reason_of(error)}") from error

    def __str__(self) -> str:
        """The name and the options that differ from their defaults."""
        try:
            return self.name + Codec().write_fields(self)
        except Mismatch:  # an option of a type that text does not have
            return self.name


@dataclass(frozen=True)
class Pass(PassOver[Graph]):
    """A transform of graphs."""

    @abstractmethod
    def apply(self, rewriter: Rewriter) -> None:
        """Change `rewriter.graph` through `rewriter`."""

    def change(self, subject: Graph, trace: Trace) -> int:
        rewriter = Rewriter(subject, trace, self.name)
        self.apply(rewriter)
        return rewriter.changes


@dataclass(frozen=True)
class RewritePass(Pass):
    """A pass made of local rules, applied until none matches."""

    @abstractmethod
    def rules(self) -> tuple[Rule, ...]:
        """The rules, in order of preference at one node."""

    def apply(self, rewriter: Rewriter) -> None:
        apply_rules(rewriter, self.rules())


@dataclass(frozen=True)
class PassManager(Generic[S]):
    """Runs passes in order and verifies the subject after each pass that changed it."""

    passes: Sequence[PassOver[S]]

    def run(
        self,
        subject: S,
        trace: Trace | None = None,
        on_pass: Callable[[PassResult], None] = lambda result: None,
    ) -> list[PassResult]:
        """Run every pass on `subject` in place; `on_pass` is called after each.

        Raises the errors of `subject.verify`, with the name of the pass that caused them.
        """
        trace = trace if trace is not None else Trace()
        subject.verify()
        verified = subject.contents()
        results = []
        for step in self.passes:
            results.append(step.run(subject, trace))
            contents = subject.contents()
            if not _identical(contents, verified):
                _verify_after(step, subject)
                verified = contents
            on_pass(results[-1])
        return results


def _verify_after(step: PassOver[S], subject: S) -> None:
    try:
        subject.verify()
    except QGraphError as error:
        error.message = f"after pass `{step.title}`: {error.message}"
        raise


def _identical(a: list[object], b: list[object]) -> bool:
    return len(a) == len(b) and all(map(is_, a, b))
