"""Einsums as transposes, reshapes and one product: the plan, and the nodes that it becomes.

A label of two operands is a batch axis if the result has it, and is contracted if not. A label of
one operand is free if the result has it; the others are summed first. The product is a dense layer
if one operand is constant without batch axes, `mul` if no label is contracted, or `batch_matmul`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from qgraph.frontends.inexpressible import Inexpressible
from qgraph.frontends.site import AnySite
from qgraph.ir.types import Shape, TensorType

Labels = tuple[str, ...]  # letters; axes of an ellipsis are numbered from its end: "0" is the last
Sizes = Mapping[str, int | None]


@dataclass(frozen=True)
class Equation:
    """The labels of each operand's axes, and of the result's."""

    operands: tuple[Labels, ...]
    result: Labels

    @classmethod
    def parse(cls, text: str, ranks: Sequence[int]) -> Equation:
        """An equation for operands of these ranks. Raises ValueError where it is malformed."""
        left, arrow, right = text.replace(" ", "").partition("->")
        terms = left.split(",")
        if len(terms) != len(ranks):
            raise ValueError(f"equation `{text}` has {len(terms)} operands, found {len(ranks)}")
        wide = [rank - len(t.replace("...", "")) for t, rank in zip(terms, ranks, strict=True)]
        operands = tuple(_labels(t, n, text) for t, n in zip(terms, wide, strict=True))
        dots = max((n for t, n in zip(terms, wide, strict=True) if "..." in t), default=0)
        if not arrow:
            letters = "".join(terms).replace(".", "")
            once = sorted(c for c in set(letters) if letters.count(c) == 1)
            right = ("..." if "..." in left else "") + "".join(once)
        result = _labels(right, dots if "..." in right else 0, text)
        if "..." in left and "..." not in right:
            raise ValueError(f"the result of equation `{text}` needs the ellipsis of its operands")
        if len({*result}) < len(result) or not {*result} <= {c for o in operands for c in o}:
            raise ValueError(f"the result of equation `{text}` must have labels of its operands")
        return cls(operands, result)


def _labels(term: str, ellipsis_axes: int, equation: str) -> Labels:
    before, dots, after = term.partition("...")
    letters = before + after
    fits = ellipsis_axes >= 0 if dots else ellipsis_axes == 0
    if not fits or not all(c.isascii() and c.isalpha() for c in letters):
        raise ValueError(f"`{term}` in equation `{equation}` does not fit its operand")
    return (*before, *(str(i) for i in reversed(range(ellipsis_axes))), *after)


def write_einsum(site: AnySite, equation: str) -> str:
    """The result of an einsum of one or two float operands. Raises Inexpressible for others."""
    types = [site.type(i) for i in range(len(site.inputs))]
    shapes = [_float_shape(t) for t in types]
    parsed = Equation.parse(equation, [len(shape) for shape in shapes])
    repeats = any(len({*labels}) < len(labels) for labels in parsed.operands)
    if len(shapes) not in (1, 2) or repeats or len({t.dtype for t in types}) > 1:
        raise Inexpressible
    operands = [
        LabelledOperand(site, site.inputs[i], labels, dict(zip(labels, shape, strict=True)))
        for i, (labels, shape) in enumerate(zip(parsed.operands, shapes, strict=True))
    ]
    first, *others = operands
    if not others:
        return first.summed(parsed.result).ordered(parsed.result).emitted()
    weights = [site.is_fixed(i) for i in (0, 1)]
    return _product(first, others[0], parsed.result, weights)


def _float_shape(kind: TensorType) -> Shape:
    if kind.shape is None or not kind.is_float:
        raise Inexpressible
    return kind.shape


@dataclass(frozen=True)
class LabelledOperand:
    """A value, or one that the last of `steps` makes of it: its labels and their sizes."""

    site: AnySite
    value: str
    labels: Labels
    sizes: Sizes
    steps: tuple[tuple[str, Mapping[str, object]], ...] = ()

    def then(self, op: str, labels: Labels, **attrs: object) -> LabelledOperand:
        steps = (*self.steps, (op, attrs))
        return LabelledOperand(self.site, self.value, labels, self.sizes, steps)

    def summed(self, *others: Labels) -> LabelledOperand:
        """The sum over labels that none of the others has."""
        kept = tuple(c for c in self.labels if any(c in other for other in others))
        axes = tuple(i for i, c in enumerate(self.labels) if c not in kept)
        return self.then("sum", kept, axes=axes, keepdims=False) if axes else self

    def ordered(self, labels: Labels) -> LabelledOperand:
        perm = tuple(self.labels.index(c) for c in labels)
        same = perm == tuple(range(len(perm)))
        return self if same else self.then("transpose", labels, perm=perm)

    def grouped(self, *groups: Labels) -> LabelledOperand:
        """The axes in this order, those of each group joined to one."""
        labels = tuple(c for group in groups for c in group)
        moved = self.ordered(labels)
        if all(len(group) == 1 for group in groups):
            return moved
        return moved.then(
            "reshape", labels, shape=_target([_joined(self.sizes, g) for g in groups])
        )

    def split(self, labels: Labels, joined: bool) -> LabelledOperand:
        """An axis for each of these labels."""
        if not joined:
            return self
        return self.then("reshape", labels, shape=_target([self.sizes[c] for c in labels]))

    def computed(self, what: str) -> str:
        """The value behind all steps."""
        value = self.value
        for op, attrs in self.steps:
            value = self.site.helper(what, op, value, **attrs)
        return value

    def emitted(self) -> str:
        """The value behind all steps, with the name of the einsum."""
        *before, (op, attrs) = self.steps or (("identity", {}),)
        first = LabelledOperand(self.site, self.value, self.labels, self.sizes, tuple(before))
        return self.site.emit(op, first.computed("product"), **attrs)


def _joined(sizes: Sizes, group: Labels) -> int | None:
    known = [sizes[c] for c in group]
    return None if None in known else math.prod(size or 0 for size in known)


def _target(sizes: Sequence[int | None]) -> tuple[int, ...]:
    """The target of a reshape, which can hold one unknown size."""
    if sizes.count(None) > 1 or (None in sizes and 0 in sizes):
        raise Inexpressible
    return tuple(-1 if size is None else size for size in sizes)


def _product(
    a: LabelledOperand, b: LabelledOperand, result: Labels, weights: Sequence[bool]
) -> str:
    a, b = a.summed(b.labels, result), b.summed(a.labels, result)
    batch = tuple(c for c in result if c in a.labels and c in b.labels)
    contracted = tuple(c for c in a.labels if c in b.labels and c not in result)
    if not contracted:
        return _without_sum(a, b, result)
    dense = any(weights) and not batch
    free = [tuple(c for c in result if c in o.labels and c not in batch) for o in (a, b)]
    backwards = all(free) and result.index(free[0][0]) > result.index(free[1][0])
    if not weights[1] if dense else backwards:
        a, b, free = b, a, free[::-1]
        contracted = tuple(c for c in a.labels if c in contracted)
    sizes = _together(a, b, batch, contracted)
    rows = () if dense else batch
    groups = [(c,) for c in rows]
    first = a.grouped(*groups, free[0], contracted).computed("a")
    second = b.grouped(*groups, contracted, free[1]).computed("b")
    op = "matmul" if dense else "batch_matmul"
    labels = (*rows, *free[0], *free[1])
    joined = any(len(group) != 1 for group in free)
    made = LabelledOperand(a.site, "", labels, sizes).split(labels, joined).ordered(result)
    if not made.steps:
        return a.site.emit(op, first, second)
    value = a.site.helper("product", op, first, second)
    return LabelledOperand(a.site, value, labels, sizes, made.steps).emitted()


def _together(a: LabelledOperand, b: LabelledOperand, batch: Labels, contracted: Labels) -> Sizes:
    """The size of each label, where those of size 1 repeat; only batch axes may do so."""
    sizes = {**a.sizes, **b.sizes}
    for label in (*batch, *contracted):
        pair = {size for size in (a.sizes[label], b.sizes[label]) if size is not None}
        wide = pair - {1}
        if len(wide) > 1:
            raise ValueError(f"sizes {sorted(wide)} of label `{label}` do not fit together")
        if len(pair) > 1 and label in contracted:
            raise Inexpressible
        unknown = None in (a.sizes[label], b.sizes[label])
        sizes[label] = max(wide, default=None if unknown else 1)
    return sizes


def _without_sum(a: LabelledOperand, b: LabelledOperand, result: Labels) -> str:
    """The product, element by element, over all labels of the result."""
    sides: list[str] = []
    for operand in (a, b):
        labels = tuple(c for c in result if c in operand.labels)
        whole = result[result.index(labels[0]) :] if labels else ()
        groups = [(c,) if c in labels else () for c in whole]
        sides.append(operand.grouped(*groups).computed("ab"[len(sides)]))
    return a.site.emit("mul", *sides)
