"""Depth-first order of names and of the names that they need."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from qgraph.errors import GraphError


def inputs_first(roots: Iterable[str], needs: Callable[[str], Iterable[str]]) -> list[str]:
    """The roots and everything they need, directly or not, each name after the names it needs.

    Roots and needs are visited in the order in which they are given. Raises GraphError that names
    a cycle.
    """
    order: list[str] = []
    done: set[str] = set()
    for root in roots:
        if root in done:
            continue
        path: dict[str, Iterator[str]] = {root: iter(needs(root))}
        while path:
            name = next(reversed(path))
            for need in path[name]:
                if need in path:
                    cycle = [*list(path)[list(path).index(need) :], need]
                    raise GraphError(f"the graph has a cycle: {' -> '.join(cycle)}", node=need)
                if need not in done:
                    path[need] = iter(needs(need))
                    break
            else:
                path.popitem()  # unlike del, leaves no gap for reversed() to cross
                done.add(name)
                order.append(name)
    return order
