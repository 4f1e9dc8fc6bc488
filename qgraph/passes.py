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
    """Result of one pass.

    Attributes:
        name: Name of the pass.
        changes: Number of changes that it logged.
        refusals: Number of refusals that it logged.

    Examples:
        >>> from qgraph.passes import PassResult
        >>> PassResult("fold-batch-norm", changes=3, refusals=0).changes
        3
    """

    name: str
    changes: int
    refusals: int


class Subject(Protocol):
    """Subject of passes, changed in place: a graph, or a policy that is compressed.

    Attributes:
        facts: What passes have established (`ensures`).

    Examples:
        >>> from qgraph.ir.graph import Graph
        >>> subject: Subject = Graph()
        >>> subject.facts
        set()
    """

    facts: set[str]

    def verify(self) -> None:
        """Raise QGraphError unless it is well formed."""

    def contents(self) -> list[object]:
        """The values that a pass can change. They are frozen, so comparing identities is enough.

        Returns:
            The values.
        """


S = TypeVar("S", bound=Subject)

# A field of a pass with a meaning and a range: `option("...", low=0, default=3.0)`.
option = attribute


def declared(field: Field[object]) -> Declaration:
    """The meaning and range of a pass's field.

    Args:
        field: A field of a pass, created by `option`.

    Returns:
        The declaration; an empty one if another function created the field.

    Examples:
        >>> from dataclasses import fields
        >>> from qgraph.transforms.equalize_channels import EqualizeChannels
        >>> declared(fields(EqualizeChannels)[0]).name
        'biases'
    """
    return Declaration(field.name, **{"meaning": "", **field.metadata}, default=default_of(field))


@dataclass(frozen=True)
class PassOver(ABC, Generic[S]):
    """A transform of graphs (`Pass`) or of policies (`Link`), as a value. Its fields are options.

    A pass preserves the function of its subject, or states in its docstring what it changes.

    Attributes:
        name: Name of the pass.
        requires: Facts that must hold before the pass.
        ensures: Facts that hold after it.

    Raises:
        UsageError: An option is outside its range.

    Examples:
        >>> from qgraph.transforms.strip_unused import StripUnused
        >>> isinstance(StripUnused(), PassOver)
        True
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
        """Change a subject in place.

        Args:
            subject: The subject.
            trace: The log.

        Returns:
            The number of changes.
        """

    def run(self, subject: S, trace: Trace | None = None) -> PassResult:
        """Run the pass on a subject, in place.

        Args:
            subject: The subject, such as a graph.
            trace: The log; None uses a new one.

        Returns:
            The number of changes and of refusals.

        Raises:
            PassError: A fact in `requires` does not hold, or a custom pass raised an exception.
        """
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
    """A transform of graphs. Subclasses are frozen dataclasses with a `name`.

    Attributes:
        name: Name of the pass.
        requires: Facts that must hold before the pass.
        ensures: Facts that hold after it.

    Raises:
        UsageError: An option is outside its range.

    Examples:
        >>> from dataclasses import dataclass
        >>> from typing import ClassVar
        >>> from qgraph.passes import Pass
        >>> @dataclass(frozen=True)
        ... class Rename(Pass):
        ...     name: ClassVar[str] = "rename"
        ...     to: str = "network"
        ...     def apply(self, rewriter):
        ...         rewriter.graph.name = self.to
        >>> graph = qgraph.optimize("model.pb", passes=[Rename(to="digits")]).graph
        >>> graph.name, str(Rename(to="digits"))
        ('digits', 'rename{to=digits}')
    """

    @abstractmethod
    def apply(self, rewriter: Rewriter) -> None:
        """Change the graph of a rewriter.

        Args:
            rewriter: The graph, and methods that change and log.
        """

    def change(self, subject: Graph, trace: Trace) -> int:
        """Change a graph in place, with `apply`.

        Args:
            subject: The graph.
            trace: The log.

        Returns:
            The number of changes.
        """
        rewriter = Rewriter(subject, trace, self.name)
        self.apply(rewriter)
        return rewriter.changes


@dataclass(frozen=True)
class RewritePass(Pass):
    """A pass that consists of local rules, applied until none matches.

    Attributes:
        name: Name of the pass.
        requires: Facts that must hold before the pass.
        ensures: Facts that hold after it.

    Examples:
        >>> from dataclasses import dataclass
        >>> from typing import ClassVar
        >>> from qgraph.passes import RewritePass
        >>> from qgraph.rewrite.rewriter import Rule
        >>> @dataclass(frozen=True)
        ... class DropIdentities(RewritePass):
        ...     name: ClassVar[str] = "drop-identities"
        ...     def rules(self):
        ...         drop = lambda rewriter, node: rewriter.replace_value(node.name, node.inputs[0])
        ...         return (Rule("drop", ("identity",), drop),)
        >>> graph = qgraph.optimize("model.pb", passes=[DropIdentities()]).graph
        >>> any(node.op == "identity" for node in graph.nodes.values())
        False
    """

    @abstractmethod
    def rules(self) -> tuple[Rule, ...]:
        """List the rules.

        Returns:
            The rules, in order of preference at one node.
        """

    def apply(self, rewriter: Rewriter) -> None:
        """Apply the rules until none matches.

        Args:
            rewriter: The graph, and methods that change and log.

        Raises:
            PassError: The rules do not terminate.
        """
        apply_rules(rewriter, self.rules())


@dataclass(frozen=True)
class PassManager(Generic[S]):
    """Runs passes in order and verifies the subject after each pass that changed it.

    Attributes:
        passes: The passes.

    Examples:
        >>> from qgraph.transforms.strip_unused import StripUnused
        >>> graph = qgraph.load("model.pb")
        >>> [result.name for result in PassManager([StripUnused()]).run(graph)]
        ['strip-unused']
    """

    passes: Sequence[PassOver[S]]

    def run(
        self,
        subject: S,
        trace: Trace | None = None,
        on_pass: Callable[[PassResult], None] = lambda result: None,
    ) -> list[PassResult]:
        """Run every pass on a subject, in place.

        Args:
            subject: The subject, such as a graph.
            trace: The log; None uses a new one.
            on_pass: Called with the result of each pass.

        Returns:
            The results, in order.

        Raises:
            QGraphError: The subject is not well formed after a pass. The message names the pass.
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
