"""The worklist: it ends at a fixpoint or with an error; all it did is in the trace."""

import pytest

from qgraph.errors import PassError
from qgraph.ir.graph import Graph, Node
from qgraph.ir.printing import print_graph
from qgraph.ir.verify import verify
from qgraph.records import to_json
from qgraph.rewrite.pattern import Op, Var, match
from qgraph.rewrite.rewriter import Rewriter, Rule, apply_rules
from qgraph.rewrite.trace import Refusal, Rewrite, Trace


def chain(*ops: str) -> Graph:
    g = Graph("chain")
    value = g.input("x", "float32", (None, 4))
    for i, op in enumerate(ops):
        value = g.add(op, value, name=f"n{i}")
    g.outputs["y"] = value
    return g


def ops(g: Graph) -> list[str]:
    return [n.op for n in g.topological()]


def run(g: Graph, *rules: Rule) -> Trace:
    trace = Trace()
    apply_rules(Rewriter(g, trace, "test"), rules)
    verify(g)
    return trace


def turned(old: str, new: str) -> Rule:
    def apply(rewriter, node):
        return rewriter.replace_value(node.name, rewriter.add(new, *node.inputs))

    return Rule(f"{old}-to-{new}", (old,), apply)


def _neg_neg(rewriter, node):
    found = match(rewriter.graph, node.name, Op("neg", Op("neg", Var("x"))))
    return found is not None and rewriter.replace_value(node.name, found["x"])


NEG_NEG = Rule("neg-neg", ("neg",), _neg_neg)


@pytest.mark.parametrize("count", range(7))
def test_a_fixpoint_is_reached(count):
    g = chain(*["neg"] * count, "relu")
    trace = run(g, NEG_NEG)
    assert ops(g) == ["input", *["neg"] * (count % 2), "relu"]
    assert len(trace.rewrites) == count // 2


def test_users_of_a_value_that_steps_in_are_looked_at_again():
    """`relu` cannot be rewritten until the two negations before it are removed."""

    def bare(rewriter, node):
        if rewriter.graph.producer(node.inputs[0]).op != "input":
            return False
        return rewriter.replace_value(node.name, rewriter.add("tanh", *node.inputs))

    g = chain("neg", "floor", "relu")
    run(g, turned("floor", "neg"), NEG_NEG, Rule("bare", ("relu",), bare))
    assert ops(g) == ["input", "tanh"]


@pytest.mark.parametrize("logged", [True, False])
def test_rules_that_chase_each_other_are_stopped(logged):
    def flip(rewriter, node):
        other = "tanh" if node.op == "relu" else "relu"
        if logged:
            return rewriter.put(Node(node.name, other, node.inputs))
        rewriter.graph.replace(Node(node.name, other, node.inputs))
        return True

    with pytest.raises(PassError, match=r"n0: pass `test` does not terminate: .*\n.*`ping-pong`"):
        run(chain("relu"), Rule("ping-pong", ("relu", "tanh"), flip))


def test_the_first_rule_wins():
    g = chain("relu")
    trace = run(g, turned("relu", "tanh"), turned("relu", "neg"))
    assert ops(g) == ["input", "tanh"]
    assert trace.rewrites == [
        Rewrite("test", "relu-to-tanh", "n0", "%n0 = relu(%x)", "%tanh = tanh(%x)")
    ]


def test_a_rule_that_declines_lets_the_next_try_and_is_remembered():
    def decline(rewriter, node):
        return rewriter.refuse(node, "not today")

    g = chain("relu")
    trace = run(g, Rule("shy", ("relu",), decline), turned("relu", "tanh"))
    assert ops(g) == ["input", "tanh"]
    assert trace.refusals == [Refusal("test", "shy", "n0", "not today")]


def test_a_refusal_is_dropped_once_the_rule_applies():
    """The rule is refused at `n1` until `n0` has changed."""

    def needs_tanh(rewriter, node):
        if rewriter.graph.producer(node.inputs[0]).op != "tanh":
            return rewriter.refuse(node, "no tanh before it")
        return rewriter.replace_value(node.name, rewriter.add("abs", *node.inputs))

    def late(rewriter, node):
        if not rewriter.trace.refusals:
            return False
        return rewriter.put(Node(node.name, "tanh", node.inputs))

    g = chain("relu", "neg")
    trace = Trace()
    rules = (Rule("needs", ("neg",), needs_tanh),)
    apply_rules(Rewriter(g, trace, "test"), rules)
    assert [r.reason for r in trace.refusals] == ["no tanh before it"]
    apply_rules(Rewriter(g, trace, "test"), (Rule("late", ("relu",), late), *rules))
    assert ops(g) == ["input", "tanh", "abs"] and trace.refusals == []


def test_the_newest_reason_counts():
    trace = Trace()
    for reason in ("first", "second"):
        trace.refuse(Refusal("p", "r", "n", reason))
    trace.refuse(Refusal("p", "other", "n", "third"))
    assert [r.reason for r in trace.refusals] == ["second", "third"]
    assert trace.of_pass("p") == ([], trace.refusals) and trace.of_pass("q") == ([], [])


def test_what_nothing_needs_goes_with_it():
    g = chain("relu", "neg", "tanh")
    g.outputs["inner"] = "n0"
    rewriter = Rewriter(g, Trace(), "test")
    rewriter.replace_value("n2", "x")
    verify(g)
    assert list(g.nodes) == ["x", "n0"]  # n1 went, n0 is an output, x an input


def test_nodes_that_must_run_before_others_stay():
    g = chain("relu", "tanh")
    g.add("neg", "x", name="later", control=["n1"])
    Rewriter(g, Trace(), "test").replace_value("n1", "x")
    verify(g)
    assert "n1" in g.nodes


def test_put_drops_what_only_the_old_node_needed():
    g = chain("relu", "tanh")
    rewriter = Rewriter(g, Trace(), "test")
    rewriter.put(Node("n1", "abs", ("x",)))
    verify(g)
    assert print_graph(g).splitlines()[2:] == [
        "  %n1 = abs(%x) : float32[?,4]", '  return "y" = %n1', "}",
    ]  # fmt: skip
    assert rewriter.trace.rewrites[0].before == "%n1 = tanh(%n0)"


def test_the_trace_as_json():
    g = chain("relu")
    trace = run(g, turned("relu", "tanh"))
    trace.refuse(Refusal("p", "r", "n", "why"))
    assert to_json(trace.stored) == {
        "rewrites": [{"pass_name": "test", "rule": "relu-to-tanh", "node": "n0",
                      "before": "%n0 = relu(%x)", "after": "%tanh = tanh(%x)"}],
        "refusals": [{"pass_name": "p", "rule": "r", "node": "n", "reason": "why"}],
    }  # fmt: skip
