"""What a pass is, and the manager that runs a recipe of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from operator import is_
from typing import ClassVar

from qgraph.errors import GraphError, PassError
from qgraph.ir.graph import Graph
from qgraph.ir.verify import verify
from qgraph.rewrite.rewriter import Rewriter, Rule, apply_rules
from qgraph.rewrite.trace import Trace


@dataclass(frozen=True)
class PassResult:
    """What one pass did: how many changes it logged, and how many rules declined."""

    name: str
    changes: int
    refusals: int


@dataclass(frozen=True)
class Pass(ABC):
    """A transform as a value: its fields are its options.

    `requires` are facts that must hold of a graph before, `ensures` those that hold after.
    A pass keeps the function of the graph, or says in its docstring what it changes.
    """

    name: ClassVar[str]
    requires: ClassVar[frozenset[str]] = frozenset()
    ensures: ClassVar[frozenset[str]] = frozenset()

    @abstractmethod
    def apply(self, rewriter: Rewriter) -> None:
        """Change `rewriter.graph` through `rewriter`."""

    def run(self, graph: Graph, trace: Trace | None = None) -> PassResult:
        """Run on `graph` in place. Raises PassError where `requires` does not hold."""
        missing = self.requires - graph.facts
        if missing:
            raise PassError(f"pass `{self.name}` needs {sorted(missing)} first")
        trace = trace if trace is not None else Trace()
        rewriter = Rewriter(graph, trace, self.name)
        self.apply(rewriter)
        graph.facts |= self.ensures
        return PassResult(self.name, rewriter.changes, len(trace.of_pass(self.name)[1]))

    def __str__(self) -> str:
        options = ", ".join(f"{f.name}={getattr(self, f.name)}" for f in fields(self))
        return f"{self.name}{{{options}}}" if options else self.name


@dataclass(frozen=True)
class RewritePass(Pass):
    """A pass made of local rules, applied until none matches."""

    @abstractmethod
    def rules(self) -> tuple[Rule, ...]:
        """The rules, in order of preference at one node."""

    def apply(self, rewriter: Rewriter) -> None:
        apply_rules(rewriter, self.rules())


@dataclass(frozen=True)
class PassManager:
    """Runs passes in order and verifies the graph after each."""

    passes: Sequence[Pass]

    def run(
        self,
        graph: Graph,
        trace: Trace | None = None,
        on_pass: Callable[[PassResult], None] = lambda result: None,
    ) -> list[PassResult]:
        """Run every pass on `graph` in place; `on_pass` is called after each.

        Raises GraphError naming the pass that left the graph broken.
        """
        trace = trace if trace is not None else Trace()
        verify(graph)
        verified = _contents(graph)
        results = []
        for step in self.passes:
            results.append(step.run(graph, trace))
            contents = _contents(graph)
            if not _identical(contents, verified):
                self._verify_after(step, graph)
                verified = contents
            on_pass(results[-1])
        return results

    def _verify_after(self, step: Pass, graph: Graph) -> None:
        try:
            verify(graph)
        except GraphError as error:
            raise GraphError(
                f"after pass `{step.name}`: {error.message}", node=error.node, hint=error.hint
            ) from error


def _contents(graph: Graph) -> list[object]:
    """All that a pass can change. Nodes and types are frozen, so that identity says enough."""
    ends = [*graph.inputs, *graph.outputs, *graph.outputs.values()]
    return [*graph.nodes.values(), *graph.types.values(), *ends]


def _identical(a: list[object], b: list[object]) -> bool:
    return len(a) == len(b) and all(map(is_, a, b))
