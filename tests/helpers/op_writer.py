"""Write arithmetic on values of a graph as calls of ops."""

from abc import ABC, abstractmethod

from qgraph.ir.graph import Graph


class OpWriter(ABC):
    """`writer.add(x, 2.0)` adds a node of the op `add`; numbers become constants by `number`."""

    graph: Graph

    @abstractmethod
    def number(self, value: float) -> str: ...

    def __getattr__(self, op: str):
        def add(*inputs, **attrs) -> str:
            values = [v if isinstance(v, str) else self.number(v) for v in inputs]
            return self.graph.add(op, *values, attrs=attrs)

        return add
