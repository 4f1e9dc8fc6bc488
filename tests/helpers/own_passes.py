"""Custom passes, named as `tests.helpers.own_passes:Class`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from qgraph.passes import Pass, option
from qgraph.rewrite.rewriter import Rewriter


@dataclass(frozen=True)
class Rename(Pass):
    """Rename every ReLU, so that a test can see that the pass ran."""

    suffix: str = option("What names end in.", default="_own")
    only: Literal["all", "first"] = "all"
    name: ClassVar[str] = "rename"

    def apply(self, rewriter: Rewriter) -> None:
        graph = rewriter.graph
        rewriter.rule = "rename"
        found = [n for n in graph.topological() if n.op == "relu" and self.suffix not in n.name]
        for node in found[: 1 if self.only == "first" else None]:
            made = graph.add("relu", *graph.nodes[node.name].inputs, name=node.name + self.suffix)
            rewriter.log(node, f"%{made} = relu")
            graph.redirect(node.name, made)
            graph.remove(node.name)


@dataclass(frozen=True)
class OfCodes(Pass):
    """A pass of quantized graphs that changes nothing."""

    name: ClassVar[str] = "of-codes"
    requires: ClassVar[frozenset[str]] = frozenset({"quantized"})

    def apply(self, rewriter: Rewriter) -> None:
        pass


@dataclass(frozen=True)
class Broken(Pass):
    """A pass that raises what a user's code may raise."""

    name: ClassVar[str] = "broken"

    def apply(self, rewriter: Rewriter) -> None:
        raise KeyError("lost")


@dataclass(frozen=True)
class Picky(Pass):
    """A pass that checks an option itself."""

    size: int = 1
    name: ClassVar[str] = "picky"

    def __post_init__(self) -> None:
        if self.size > 3:
            raise ValueError("size is too large")

    def apply(self, rewriter: Rewriter) -> None:
        pass


@dataclass(frozen=True)
class Nameless(Pass):
    """A pass without a name."""

    def apply(self, rewriter: Rewriter) -> None:
        pass


class NotAPass:
    """A class that is not a pass."""
