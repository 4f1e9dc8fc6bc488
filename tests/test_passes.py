"""The contract of passes, and the manager that holds them to it."""

from dataclasses import dataclass
from typing import ClassVar

import pytest

from qgraph.errors import GraphError, PassError
from qgraph.ir.graph import Graph, Node
from qgraph.ir.types import TensorType
from qgraph.passes import Pass, PassManager, PassResult
from qgraph.rewrite.trace import Trace


def net() -> Graph:
    g = Graph("net")
    g.outputs["y"] = g.add("relu", g.input("x", "float32", (None, 4)), name="r")
    return g


@dataclass(frozen=True)
class Sign(Pass):
    """Puts `count` negations behind the graph."""

    count: int = 1
    name: ClassVar[str] = "sign"
    ensures: ClassVar[frozenset[str]] = frozenset({"signed"})

    def apply(self, rewriter):
        for _ in range(self.count):
            old = rewriter.graph.outputs["y"]
            rewriter.graph.outputs["y"] = rewriter.add("neg", old)
            rewriter.log(rewriter.graph.producer(old), "negated")


@dataclass(frozen=True)
class NeedsSign(Pass):
    name: ClassVar[str] = "needs-sign"
    requires: ClassVar[frozenset[str]] = frozenset({"signed", "other"})

    def apply(self, rewriter):
        rewriter.refuse(rewriter.graph.nodes["r"], "nothing to do")


@dataclass(frozen=True)
class Vandal(Pass):
    name: ClassVar[str] = "vandal"

    def apply(self, rewriter):
        rewriter.graph.types["r"] = TensorType("int8", (1,))


@dataclass(frozen=True)
class Thug(Pass):
    name: ClassVar[str] = "thug"

    def apply(self, rewriter):
        rewriter.graph.nodes["r"] = Node("r", "relu", ("gone",))


def test_facts_are_required_and_ensured():
    g = net()
    with pytest.raises(PassError, match=r"pass `needs-sign` needs \['other', 'signed'\] first"):
        NeedsSign().run(g)
    g.facts.add("other")
    Sign().run(g)
    assert g.facts == {"other", "signed"}
    NeedsSign().run(g)


def test_results_are_reported_one_by_one():
    g, reported, trace = net(), [], Trace()
    g.facts.add("other")
    results = PassManager([Sign(3), NeedsSign()]).run(g, trace, reported.append)
    assert reported == results == [PassResult("sign", 3, 0), PassResult("needs-sign", 0, 1)]
    assert [r.pass_name for r in trace.rewrites] == ["sign"] * 3


@pytest.mark.parametrize("bad", [Vandal(), Thug()])
def test_the_pass_that_broke_the_graph_is_named(bad):
    with pytest.raises(GraphError, match=f"r: after pass `{bad.name}`: "):
        PassManager([Sign(), bad, Sign()]).run(net())


def test_a_graph_that_comes_broken_is_no_passs_fault():
    g = net()
    g.types["r"] = TensorType("int8", (1,))
    with pytest.raises(GraphError) as error:
        PassManager([Sign()]).run(g)
    assert "after pass" not in str(error.value)


def test_passes_are_values_that_show_their_options():
    assert Sign(2) == Sign(2) != Sign(3)
    assert (str(Sign(2)), str(Vandal())) == ("sign{count=2}", "vandal")
