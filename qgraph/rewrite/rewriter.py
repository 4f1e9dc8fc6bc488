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
    """Changes of one graph by one pass; all of them are logged."""

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
        value = self.graph.add(op, *inputs, name=name, attrs=attrs)
        self.added.append(node_of(value))
        return value

    def const(self, value: object, name: str) -> str:
        made = self.graph.const(value, name)
        self.added.append(made)
        return made

    def replace_value(self, old: str, new: str) -> bool:
        """Redirect all users of `old` to `new`, remove unused nodes, log it. Always True."""
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
        """Replace the node of the same name, remove unused nodes, log it. Always True."""
        old = self.graph.nodes[node.name]
        self.log(old, print_node(node))
        self.graph.replace(node)
        self.added.append(node.name)
        for value in old.inputs:
            self.prune(node_of(value))
        return True

    def log(self, node: Node, after: str, shared_scale: SharedScale | None = None) -> bool:
        """Record a change at `node` that the caller made. Always True."""
        # Printing a constant requires its hash; its name is enough here.
        before = f"%{node.name} = const" if node.op == "const" else print_node(node)
        at = (self.pass_name, self.rule, node.name)
        self.trace.record(Rewrite(*at, before, after, shared_scale))
        self.changes += 1
        return True

    def refuse(self, node: Node, reason: str) -> bool:
        """Record why a rule that matched `node` was not applied. Always False."""
        self.trace.refuse(Refusal(self.pass_name, self.rule, node.name, reason))
        return False

    def prune(self, name: str) -> None:
        """Remove the node if it is unused, and then each of its inputs that became unused."""
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
    """A local rewrite: tried at each node whose op is in `ops`; True if it changed something.

    Where `apply` changes nothing, it may give a reason through `Rewriter.refuse`. Rules must
    terminate: each change has to bring the graph nearer to a form that the rule no longer matches.
    """

    name: str
    ops: tuple[str, ...]
    apply: Callable[[Rewriter, Node], bool]


def apply_rules(rewriter: Rewriter, rules: Sequence[Rule]) -> None:
    """Apply rules until none matches. Raises PassError if that does not terminate."""
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
