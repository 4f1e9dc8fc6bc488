"""Names, constants and helpers that the functions of the generated file share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from qgraph.backends.c.c_text import short
from qgraph.backends.c.depthwise_kernels import depthwise_kernel
from qgraph.backends.c.kernels import KERNELS
from qgraph.ir.types import Array
from qgraph.names import Namespace, identifier
from qgraph.program import Program, storage


@dataclass(frozen=True)
class CArray:
    """A constant array. guard: a macro without which it is left out; empty: none."""

    name: str
    kind: str
    codes: Array
    guard: str = ""


class LayerScratch(NamedTuple):
    """Memory that a layer needs while it runs: its name, type and elements."""

    name: str
    kind: str
    elements: int


@dataclass(frozen=True)
class CFunction:
    """A layer's function: its name, the tensors that it takes, its scratch memory, its text."""

    name: str
    arguments: tuple[str, ...]
    scratch: tuple[LayerScratch, ...]
    text: str


@dataclass
class CContext:
    """Names, constants, helpers and kernels of the written functions.

    data: constants by name. packed: types of codes that layers with packed weights read.
    """

    program: Program
    names: Namespace
    idents: dict[str, str]
    data: dict[str, CArray] = field(default_factory=dict)
    helpers: set[tuple[str, str]] = field(default_factory=set)
    kernels: dict[str, str] = field(default_factory=dict)
    packed: list[str] = field(default_factory=list)
    traced: list[str] = field(default_factory=list)
    made: dict[tuple[str, str], str] = field(default_factory=dict)

    @property
    def has_targets(self) -> bool:
        """Whether a kernel has forms for instructions that only some processors have."""
        return bool(self.packed) or any("HAS_VECTORS" in text for text in self.kernels.values())

    @property
    def has_windows(self) -> bool:
        return bool(self.packed) or any("window" in text for text in self.kernels.values())

    def constant(self, tensor: str) -> str:
        """The array of a constant."""
        name = self.idents[tensor]
        if name not in self.data:
            kind = self.program.tensors[tensor].storage
            self.data[name] = CArray(name, kind, self.program.constants[tensor])
        return name

    def made_of(
        self, tensor: str, what: str, make: Callable[[Array], Array], guard: str = ""
    ) -> str:
        """An array that is computed from a constant, once for all layers that read it."""
        key = (tensor, what)
        if key not in self.made:
            name = self.names.fresh(f"{identifier(tensor)}_{what}")
            codes = make(self.program.constants[tensor])
            self.data[name] = CArray(name, codes.dtype.name, codes, guard)
            self.made[key] = name
        return self.made[key]

    def array(self, values: npt.ArrayLike, text: str, guard: str = "") -> str:
        """Store an array of numbers of a step as a constant."""
        codes = np.asarray(values, np.int64)
        kind = storage(int(codes.min()), int(codes.max()))
        name = self.names.fresh(text)
        self.data[name] = CArray(name, kind, codes.astype(kind), guard)
        return name

    def trace(self, tensor: str) -> int:
        self.traced.append(tensor)
        return len(self.traced) - 1

    def packed_kernel(self, kind: str) -> str:
        """The helper of layers with packed weights, for codes of a type."""
        if kind not in self.packed:
            self.packed.append(kind)
        return f"packed_{short(kind)}"

    def depthwise_kernel(self, kind: str) -> str:
        """The helper of depthwise convolutions of bytes."""
        name = f"depthwise_{short(kind)}"
        self.kernels[name] = depthwise_kernel(kind)
        return name

    def kernel(self, op: str, x: str, w: str, a: str) -> str:
        name = "_".join([op, *(short(kind) for kind in (x, w, a) if kind)])
        self.kernels[name] = KERNELS[op].format(name=name, x=f"{x}_t", w=f"{w}_t", a=f"{a}_t")
        return name
