"""C as text: blocks, loops, index expressions, numbers, types."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from qgraph.ir.types import Array

Shape = Sequence[int]
INT32 = 2**31 - 1
WIDTH = 100


def folded(text: str, width: int) -> list[str]:
    """Break a line that is too long after commas, if it has any."""
    lines, rest = [], text
    while len(rest) > width and (cut := rest.rfind(", ", 8, width)) > 0:
        lines.append(rest[: cut + 1])
        rest = "    " + rest[cut + 2 :]
    return [*lines, rest]


class Text:
    """Lines, indented by the blocks around them."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._depth = 0

    def line(self, text: str = "") -> None:
        indent = "    " * self._depth
        folds = folded(text, WIDTH - len(indent))
        self.lines += [indent + line if line else "" for line in folds]

    def declare(self, text: str, comment: str) -> None:
        """A statement with a comment after it, or above it if the line would be too long."""
        if len(text) + len(comment) + 4 * self._depth < WIDTH:
            self.line(f"{text} {comment}")
        else:
            self.line(comment)
            self.line(text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        self.line(f"{head} {{")
        self._depth += 1
        yield
        self._depth -= 1
        self.line("}")

    @contextmanager
    def loops(self, counters: Iterable[tuple[str, int]]) -> Iterator[None]:
        """Nested loops from 0, the outer one first; a size of 1 needs no loop."""
        with ExitStack() as stack:
            for name, size in counters:
                if size != 1:
                    head = f"for (int32_t {name} = 0; {name} < {size}; ++{name})"
                    stack.enter_context(self.block(head))
            yield

    def __str__(self) -> str:
        return "\n".join([*self.lines, ""])


def short(storage: str) -> str:
    """`i8` for int8, `u16` for uint16."""
    return storage.replace("uint", "u").replace("int", "i")


def number(value: int) -> str:
    return str(value) if abs(value) <= INT32 else f"INT64_C({value})"


def index(strides: Shape, counters: Sequence[tuple[str, int]], offset: int = 0) -> str:
    """Index of the counters in a tensor with these strides."""
    terms = [
        (name, stride)
        for (name, size), stride in zip(counters, strides, strict=True)
        if size != 1 and stride != 0
    ]
    written = [name if abs(s) == 1 else f"{abs(s)} * {name}" for name, s in terms]
    signs = [" - " if s < 0 else " + " for _, s in terms]
    if offset or not terms or terms[0][1] < 0:
        written.insert(0, str(offset))
        signs.insert(0, " + ")
    return written[0] + "".join(a + b for a, b in zip(signs[1:], written[1:], strict=True))


def strides(shape: Shape) -> list[int]:
    """Strides of a tensor that is stored row by row."""
    found: list[int] = []
    step = 1
    for size in reversed(shape):
        found.insert(0, step)
        step *= size
    return found


def broadcast(shape: Shape, onto: Shape) -> list[int]:
    """Strides of a tensor of `shape` along the dimensions of `onto`; 0 for repeated dimensions."""
    own = [0 if size == 1 else step for size, step in zip(shape, strides(shape), strict=True)]
    return [0] * (len(onto) - len(shape)) + own


def merged(shape: Shape, walks: Sequence[Shape]) -> tuple[list[int], list[list[int]]]:
    """Merge adjacent dimensions if the strides of every walk allow it.

    walks: strides of each tensor along `shape`.
    """
    sizes: list[int] = []
    kept: list[list[int]] = [[] for _ in walks]
    for axis, size in enumerate(shape):
        if size == 1:
            continue
        here = [walk[axis] for walk in walks]
        if sizes and all(k[-1] == h * size for k, h in zip(kept, here, strict=True)):
            sizes[-1] *= size
            for k, h in zip(kept, here, strict=True):
                k[-1] = h
        else:
            sizes.append(size)
            for k, h in zip(kept, here, strict=True):
                k.append(h)
    return sizes, kept


def named(sizes: Shape) -> list[tuple[str, int]]:
    """Counters for merged dimensions: the last is `i` alone, or the channel `c`."""
    names = {1: ["i"], 2: ["p", "c"]}.get(len(sizes), [f"d{k}" for k in range(len(sizes))])
    return [*zip(names, sizes, strict=True)]


def numbers(values: Array, before: str = "    ") -> str:
    """Integers as the lines of an initialiser: no line longer than about 100 characters."""
    flat = values.reshape(-1)
    widest = max(len(str(flat.min())), len(str(flat.max()))) + 2
    each = max(1, (100 - len(before)) // widest)
    words = [*map(str, flat.tolist())]
    rows = (", ".join(words[i : i + each]) for i in range(0, len(words), each))
    return ",\n".join(before + row for row in rows)
