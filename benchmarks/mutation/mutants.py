"""Mutants: copies of a source file with one operator, number or word changed (cosmic-ray)."""

from __future__ import annotations

import ast
import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import cosmic_ray.plugins
from cosmic_ray.ast import Visitor, get_ast
from cosmic_ray.mutating import mutate_code

TARGETS = (
    "qgraph/exact",
    "qgraph/program",
    "qgraph/numerics.py",
    "transforms",
    "qgraph/backends/c",
)
# Operators that are left out: variables are replaced by name only on request, and `is` instead of
# `==` shows what CPython interns, which is not a property of the program.
LEFT_OUT = ("VariableReplacer", "VariableInserter", "_Is", "_IsNot")

Position = tuple[int, int]  # line from 1, column from 0


@dataclass(frozen=True)
class Mutant:
    """A change of the file `path` (from the root) by an operator at its n-th `occurrence`.

    `lines`: the first and last line of the changed statement, without the blocks inside. `loaded`:
    the statement runs when the module is imported. `before` and `after` are the lines that differ.
    """

    name: str
    path: str
    operator: str
    occurrence: int
    lines: tuple[int, int]
    loaded: bool
    before: str
    after: str

    def source(self, root: Path) -> str:
        """The text of the changed file."""
        code = (root / self.path).read_text("utf-8")
        return _mutated(code, self.operator, self.occurrence)


def sample(root: Path, count: int, seed: int, targets: Sequence[str] = TARGETS) -> list[Mutant]:
    """`count` mutants drawn by `seed` from all places that can be changed, one mutant per place.

    A place is a token and a kind of change. Places are ordered by a hash of their text, so that
    edits elsewhere do not change the sample.
    """
    places = [place for path in files(root, targets) for place in _places(root, path, seed)]
    chosen = sorted(places, key=lambda place: place.rank)[:count]
    return sorted((p.mutant(root) for p in chosen), key=lambda m: (m.path, m.lines, m.name))


def files(root: Path, targets: Sequence[str] = TARGETS) -> list[str]:
    """The Python files below `targets`, from `root`."""
    found = [f for t in targets for f in sorted((root / t).rglob("*.py")) or [root / t]]
    return [file.relative_to(root).as_posix() for file in found]


@dataclass(frozen=True)
class _Place:
    """A place where a mutant can be made: a kind of change at a token."""

    rank: str
    path: str
    operator: str
    occurrence: int
    lines: tuple[int, int]
    loaded: bool

    def mutant(self, root: Path) -> Mutant:
        code = (root / self.path).read_text("utf-8")
        mutated = _mutated(code, self.operator, self.occurrence)
        pairs = zip(code.splitlines(), mutated.splitlines(), strict=False)
        before, after = next((a, b) for a, b in pairs if a != b)
        return Mutant(
            self.rank[:10], self.path, self.operator, self.occurrence, self.lines, self.loaded,
            before.strip(), after.strip(),
        )  # fmt: skip


def _mutated(code: str, operator: str, occurrence: int) -> str:
    text = mutate_code(code, cosmic_ray.plugins.get_operator(operator)(), occurrence)
    assert text is not None, f"{operator} has no occurrence {occurrence}"
    return str(text)


class _Positions(Visitor):  # type: ignore[misc]
    """All possible changes of a file: operator, occurrence, position."""

    def __init__(self) -> None:
        self.operators = {
            name: cosmic_ray.plugins.get_operator(name)()
            for name in cosmic_ray.plugins.operator_names()
            if not name.endswith(LEFT_OUT)
        }
        self.counts: Counter[str] = Counter()
        self.found: list[tuple[str, int, Position, Position]] = []

    def visit(self, node: object) -> object:
        for name, operator in self.operators.items():
            for start, stop in operator.mutation_positions(node):
                self.found.append((name, self.counts[name], start, stop))
                self.counts[name] += 1
        return node


def _places(root: Path, path: str, seed: int) -> Iterator[_Place]:
    """Every place of a file, with the mutant that `seed` chooses for it."""
    code = (root / path).read_text("utf-8")
    tree, lines = ast.parse(code), code.splitlines()
    annotations, statements = _annotations(tree), _statements(tree)
    positions = _Positions()
    positions.walk(get_ast(code))
    best: dict[tuple[str, Position], _Place] = {}
    seen: Counter[str] = Counter()
    for name, occurrence, start, stop in positions.found:
        if any(first <= start and stop <= last for first, last in annotations):
            continue
        key = f"{seed}|{path}|{lines[start[0] - 1]}|{start[1]}|{name}"
        seen[key] += 1
        rank = hashlib.sha256(f"{key}|{seen[key]}".encode()).hexdigest()
        around = [s for s in statements if s[0] <= start[0] <= s[1]]
        first, last, loaded = min(around, key=lambda s: s[1] - s[0])
        made = _Place(rank, path, name, occurrence, (first, last), loaded)
        place = (name.split("_")[0], start)
        if place not in best or rank < best[place].rank:
            best[place] = made
    # The rank among places and the choice within a place use different hashes. Otherwise places
    # with many mutations would come first.
    for made in best.values():
        rank = hashlib.sha256(made.rank.encode()).hexdigest()
        yield _Place(rank, *list(vars(made).values())[1:])


def _annotations(tree: ast.AST) -> list[tuple[Position, Position]]:
    """Positions of type annotations, which are never evaluated."""
    nodes = [
        part
        for node in ast.walk(tree)
        for part in (getattr(node, "annotation", None), getattr(node, "returns", None))
        if isinstance(part, ast.expr)
    ]
    return [
        ((n.lineno, n.col_offset), (n.end_lineno or n.lineno, n.end_col_offset or 0)) for n in nodes
    ]


def _statements(tree: ast.Module) -> list[tuple[int, int, bool]]:
    """First and last line of each statement without its blocks, and whether it runs during
    import.
    """
    found: list[tuple[int, int, bool]] = []

    def visit(node: ast.stmt | ast.ExceptHandler, loaded: bool) -> None:
        parts = _statements_in(node)
        decorators: list[ast.expr] = getattr(node, "decorator_list", [])
        start = min([node.lineno, *(d.lineno for d in decorators)])
        end = min(p.lineno for p in parts) - 1 if parts else node.end_lineno or start
        found.append((start, max(start, end), loaded))
        for part in parts:
            visit(part, loaded and not isinstance(node, ast.FunctionDef))

    for node in tree.body:
        visit(node, True)
    return found


def _statements_in(node: ast.AST) -> list[ast.stmt | ast.ExceptHandler]:
    parts = ast.iter_child_nodes(node)
    return [part for part in parts if isinstance(part, ast.stmt | ast.ExceptHandler)]
