"""Depth-first order of names and of the names that they need."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from qgraph.errors import GraphError


def inputs_first(roots: Iterable[str], needs: Callable[[str], Iterable[str]]) -> list[str]:
    """The roots and everything they need, directly or not, each name after the names it needs.

    Roots and needs are visited in the order in which they are given. Raises GraphError that names
    a cycle.
    """
    done: dict[str, None] = {}
    for root in roots:
        path: dict[str, Iterator[str]] = {} if root in done else {root: iter(needs(root))}
        while path:
            name, waiting = path.popitem()
            for need in waiting:
                if need in done:
                    continue
                path[name] = waiting
                if need in path:
                    cycle = [*list(path)[list(path).index(need) :], need]
                    raise GraphError(f"the graph has a cycle: {' -> '.join(cycle)}", node=need)
                path[need] = iter(needs(need))
                break
            else:
                done[name] = None
    return list(done)
