"""Laws of changing a graph: whatever is done, it stays well formed."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from qgraph.errors import GraphError
from qgraph.ir.graph import Graph, Node, node_of
from qgraph.ir.printing import print_graph
from qgraph.ir.types import TensorType
from qgraph.ir.verify import verify

ANY = st.integers(0, 1000)


class AnyEdits(RuleBasedStateMachine):
    """A graph under random edits."""

    def __init__(self):
        super().__init__()
        self.graph = Graph()
        self.graph.outputs["y"] = self.graph.input("x", "float32", (None, 3))

    def pick(self, number: int) -> str:
        return list(self.graph.types)[number % len(self.graph.types)]

    @rule(a=ANY, b=ANY, op=st.sampled_from(["add", "mul", "maximum"]), control=st.booleans())
    def add(self, a, b, op, control):
        after = [node_of(self.pick(a + b))] if control else []
        left, right = self.pick(a), self.pick(b)
        made = self.graph.add(op, left, right, control=after)
        assert [n.name for n in self.graph.users(left)].count(made) == 1

    @rule(a=ANY, outputs=st.integers(1, 3))
    def add_opaque(self, a, outputs):
        types = (TensorType("float32", (None, 3)),) * outputs
        attrs = {"kind": "O", "types": types, "source": None}
        made = self.graph.add("opaque", self.pick(a), attrs=attrs, outputs=outputs)
        assert all(v in self.graph.types for v in self.graph.nodes[made].values)

    @rule(a=ANY, b=ANY)
    def redirect(self, a, b):
        old, new = self.pick(a), self.pick(b)
        before = self.graph.copy()
        self.graph.redirect(old, new)
        try:
            self.graph.computed_order()
        except GraphError:  # an edit that closes a cycle is the caller's fault
            self.graph = before
            return
        if old != new:
            assert not self.graph.is_output(old)
            assert {n.name for n in self.graph.users(old)} <= {node_of(new)}

    @rule(a=ANY, public=st.sampled_from("yz"))
    def set_output(self, a, public):
        self.graph.outputs[public] = self.pick(a)

    @precondition(lambda self: len(self.graph.nodes) > 1)
    @rule(a=ANY)
    def remove(self, a):
        node = self.graph.producer(self.pick(a))
        used = sum(map(self.graph.use_count, node.values)) + len(
            self.graph.control_users(node.name)
        )
        text = print_graph(self.graph)
        try:
            self.graph.remove(node.name)
        except GraphError:
            assert used and print_graph(self.graph) == text
        else:
            assert not used and node.name not in self.graph.nodes

    @rule(stem=st.sampled_from(["add", "x", "add_1", "new"]))
    def fresh(self, stem):
        assert self.graph.fresh(stem) not in self.graph.nodes

    @rule(a=ANY)
    def copy_is_apart(self, a):
        text, other = print_graph(self.graph), self.graph.copy()
        other.add("relu", self.pick(a))
        other.outputs["other"] = self.pick(a)
        verify(other)
        assert print_graph(self.graph) == text

    @invariant()
    def is_well_formed(self):
        verify(self.graph)
        order = [n.name for n in self.graph.topological()]
        assert sorted(order) == sorted(self.graph.nodes)


TestAnyEdits = AnyEdits.TestCase
TestAnyEdits.settings = settings(max_examples=40, stateful_step_count=20)


def chain() -> Graph:
    g = Graph("chain")
    x = g.input("x", "float32", (None, 4))
    a = g.add("relu", x, name="a")
    g.outputs["y"] = g.add("reshape", a, name="b", attrs={"shape": (-1, 2, 2)})
    return g


def test_a_wrapper_keeps_what_it_wraps():
    g = chain()
    wrapper = g.add("tanh", "a", name="t")
    g.redirect("a", wrapper)
    assert g.nodes["t"].inputs == ("a",) and g.nodes["b"].inputs == ("t",)


def test_types_follow_a_replaced_node():
    g = chain()
    g.replace(Node("x", "input", (), {"type": TensorType("float64", (2, 4))}))
    assert g.types["b"] == TensorType("float64", (2, 2, 2))


def test_replacements_that_only_fit_together():
    g = Graph()
    x = g.input("x", "float32", (2, 3))
    w, b = g.const(np.ones((3, 4), np.float32), "w"), g.const(np.ones(4, np.float32), "b")
    y = g.add("bias_add", g.add("matmul", x, w, name="m"), b, name="y")
    g.outputs["out"] = g.add("relu", y, name="r")
    small = [g.const(np.ones(s, np.float32), "small") for s in ((3, 2), (2,))]
    with pytest.raises(GraphError):
        g.copy().replace(replace(g.nodes["m"], inputs=(x, small[0])))
    g.replace_all(
        [
            replace(g.nodes["y"], inputs=("m", small[1])),
            replace(g.nodes["m"], inputs=(x, small[0])),
        ]
    )
    assert {g.types[v].shape for v in ("m", "y", "r")} == {(2, 2)}
    assert g.users(small[1]) == [g.nodes["y"]] and not g.users(w)
    verify(g)


def test_a_replacement_that_does_not_fit_changes_nothing():
    g = chain()
    text = print_graph(g)
    with pytest.raises(GraphError, match="b: transpose: perm"):
        g.replace(Node("b", "transpose", ("a",), {"perm": (0, 1, 2)}))
    verify(g)
    assert print_graph(g) == text


@pytest.mark.parametrize(
    ("node", "complaint"),
    [
        (Node("a", "relu", ("x",)), "a: a node of this name already exists"),
        (Node("a:1", "relu", ("x",)), "names a value, not a node"),
        (Node("c", "relu", ("x:1",)), "c: input `x:1` does not exist"),
        (Node("c", "relu", ("x",), control=("d",)), "c: control input `d` does not exist"),
        (Node("c", "relu", ("x",), outputs=2), "c: relu: has 2 outputs, its op gives 1"),
        (Node("c", "relu", ()), "c: relu: takes 1 inputs, found 0"),
    ],
)
def test_a_node_that_does_not_fit_is_not_added(node, complaint):
    g = chain()
    with pytest.raises(GraphError, match=complaint):
        g.insert(node)
    verify(g)
    assert print_graph(g) == print_graph(chain())


def test_order_is_kept_and_cycles_are_shown():
    g = chain()
    assert [n.name for n in g.topological()] == ["x", "a", "b"]
    g.nodes["a"] = Node("a", "relu", ("b",))
    with pytest.raises(GraphError, match=r"a -> b -> a|b -> a -> b"):
        g.computed_order()


def test_a_deep_chain_does_not_overflow_the_stack():
    g = Graph()
    x = g.input("x", "float32", (1,))
    for _ in range(3000):
        x = g.add("relu", x)
    g.outputs["y"] = x
    assert len(g.copy().topological()) == 3001
    assert np.all([n.op == "relu" for n in g.topological()[1:]])
