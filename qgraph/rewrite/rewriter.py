"""Local rewriting: the changes that a rule may make, and the worklist that runs rules."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from qgraph.errors import PassError
from qgraph.ir.graph import Attrs, Graph, Node, node_of
from qgraph.ir.printing import print_node
from qgraph.rewrite.trace import Refusal, Rewrite, SharedScale, Trace


class Rewriter:
    """Changes one graph for one pass, and logs every change.

    Args:
        graph: The graph to change.
        trace: The log.
        pass_name: Name of the pass, for the log.

    Attributes:
        graph: The graph.
        trace: The log.
        rule: Name of the rule that runs, for the log.
        changes: Number of changes so far.

    Examples:
        >>> from qgraph.ir.graph import Graph
        >>> from qgraph.rewrite.rewriter import Rewriter
        >>> from qgraph.rewrite.trace import Trace
        >>> graph = Graph("net")
        >>> x = graph.input("x", "float32", (None, 4))
        >>> graph.outputs["y"] = graph.add("relu", graph.add("identity", x))
        >>> rewriter = Rewriter(graph, Trace(), "remove-identities")
        >>> rewriter.replace_value("identity", x), len(graph.nodes)
        (True, 2)
    """

    def __init__(self, graph: Graph, trace: Trace, pass_name: str) -> None:
        self.graph = graph
        self.trace = trace
        self.pass_name = pass_name
        self.rule = pass_name
        self.changes = 0
        self.added: list[str] = []
        self.stand_ins: list[str] = []

    def add(
        self, op: str, *inputs: str, name: str | None = None, attrs: Attrs | None = None
    ) -> str:
        """Add a node to the graph.

        Args:
            op: Name of the op.
            inputs: Names of the values that it takes.
            name: Name of the node; None takes that of the op. It is made unique.
            attrs: Attributes by name.

        Returns:
            Name of its first value.

        Raises:
            GraphError: An input is missing, or the inputs do not fit the op.
        """
        value = self.graph.add(op, *inputs, name=name, attrs=attrs)
        self.added.append(node_of(value))
        return value

    def const(self, value: object, name: str) -> str:
        """Add a constant to the graph.

        Args:
            value: An array, or a value that numpy converts to one.
            name: Name of the node. It is made unique.

        Returns:
            Name of the value.
        """
        constant = self.graph.const(value, name)
        self.added.append(constant)
        return constant

    def replace_value(self, old: str, new: str) -> bool:
        """Make all users of a value take another one, remove unused nodes, and log the change.

        Args:
            old: Name of the value that is in use.
            new: Name of the value to use instead.

        Returns:
            True, so that a rule can return it.
        """
        node = self.graph.producer(old)
        shown = [
            n for n in self.added if n in self.graph.nodes and self.graph.nodes[n].op != "const"
        ]
        after = "; ".join(print_node(self.graph.nodes[n]) for n in shown) or f"%{new}"
        self.log(node, after)
        self.graph.redirect(old, new)
        self.stand_ins.append(node_of(new))
        self.prune(node.name)
        return True

    def put(self, node: Node) -> bool:
        """Replace the node of the same name, remove unused nodes, and log the change.

        Args:
            node: The new node.

        Returns:
            True, so that a rule can return it.
        """
        old = self.graph.nodes[node.name]
        self.log(old, print_node(node))
        self.graph.replace(node)
        self.added.append(node.name)
        for value in old.inputs:
            self.prune(node_of(value))
        return True

    def log(self, node: Node, after: str, shared_scale: SharedScale | None = None) -> bool:
        """Log a change that the caller made.

        Args:
            node: The node before the change.
            after: The text of the change.
            shared_scale: The scale group that the change made, if it made one.

        Returns:
            True, so that a rule can return it.
        """
        # The text of a constant contains a hash, which takes time; its name is enough.
        before = f"%{node.name} = const" if node.op == "const" else print_node(node)
        at = (self.pass_name, self.rule, node.name)
        self.trace.record(Rewrite(*at, before, after, shared_scale))
        self.changes += 1
        return True

    def refuse(self, node: Node, reason: str) -> bool:
        """Log why a rule that matched a node was not applied.

        Args:
            node: The node.
            reason: The reason.

        Returns:
            False, so that a rule can return it.
        """
        self.trace.refuse(Refusal(self.pass_name, self.rule, node.name, reason))
        return False

    def prune(self, name: str) -> None:
        """Remove a node if it is unused, and then each of its inputs that became unused.

        Args:
            name: Name of the node.
        """
        waiting = [name]
        while waiting:
            node = self.graph.nodes.get(waiting.pop())
            if node is None or node.op == "input" or self.graph.control_users(node.name):
                continue
            if any(map(self.graph.is_used, node.values)):
                continue
            self.graph.remove(node.name)
            waiting += [node_of(v) for v in node.inputs]


@dataclass(frozen=True)
class Rule:
    """A local rewrite.

    Rules must terminate: each change must bring the graph closer to a form that the rule no longer
    matches.

    Attributes:
        name: Name of the rule, for the log.
        ops: Names of ops. The rule is tried at each node with one of them.
        apply: Changes the graph at a node, and returns whether it did. If not, it may give a reason
            with `Rewriter.refuse`.

    Examples:
        >>> from qgraph.rewrite.rewriter import Rule
        >>> Rule("drop", ("identity",), lambda r, n: r.replace_value(n.name, n.inputs[0])).ops
        ('identity',)
    """

    name: str
    ops: tuple[str, ...]
    apply: Callable[[Rewriter, Node], bool]


def apply_rules(rewriter: Rewriter, rules: Sequence[Rule]) -> None:
    """Apply rules until none matches.

    Args:
        rewriter: The graph and its log.
        rules: The rules, in order of preference at one node.

    Raises:
        PassError: The rules do not terminate.

    Examples:
        >>> from qgraph.ir.graph import Graph
        >>> from qgraph.rewrite.rewriter import Rewriter, Rule, apply_rules
        >>> from qgraph.rewrite.trace import Trace
        >>> graph = Graph("net")
        >>> graph.outputs["y"] = graph.add("identity", graph.input("x", "float32", (None, 4)))
        >>> drop = Rule("drop", ("identity",), lambda r, n: r.replace_value(n.name, n.inputs[0]))
        >>> apply_rules(Rewriter(graph, Trace(), "drop-identities"), [drop])
        >>> graph.outputs
        {'y': 'x'}
    """
    graph = rewriter.graph
    by_op: dict[str, list[Rule]] = {}
    for rule in rules:
        for op in rule.ops:
            by_op.setdefault(op, []).append(rule)
    queue = deque(n.name for n in graph.topological() if n.op in by_op)
    waiting = set(queue)
    applied, limit = 0, 10 * len(graph.nodes) + 1000
    while queue:
        name = queue.popleft()
        waiting.discard(name)
        around = _apply_at(rewriter, name, by_op)
        for again in around:
            node = graph.nodes.get(again)
            if node is not None and node.op in by_op and again not in waiting:
                queue.append(again)
                waiting.add(again)
        applied += bool(around)
        if applied > limit:
            raise PassError(
                f"pass `{rewriter.pass_name}` does not terminate: {applied} changes so far",
                node=name,
                hint=f"the last rule was `{rewriter.rule}`",
            )


def _apply_at(rewriter: Rewriter, name: str, by_op: dict[str, list[Rule]]) -> list[str]:
    """Apply the first rule that changes something; return the nodes to try again."""
    node = rewriter.graph.nodes.get(name)
    if node is None:
        return []
    for rule in by_op.get(node.op, ()):
        rewriter.rule, rewriter.added, rewriter.stand_ins = rule.name, [], []
        if rule.apply(rewriter, node):
            changed = [name, *rewriter.added, *rewriter.stand_ins, *map(node_of, node.inputs)]
            return _neighbourhood(rewriter.graph, changed)
    return []


def _neighbourhood(graph: Graph, names: Iterable[str]) -> list[str]:
    around: dict[str, None] = {}
    for name in names:
        node = graph.nodes.get(name)
        if node is None:
            continue
        around[name] = None
        for value in node.values:
            around.update((user.name, None) for user in graph.users(value))
    return list(around)
