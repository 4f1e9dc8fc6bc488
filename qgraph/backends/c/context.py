"""Names, constants and helpers that the functions of the generated file share."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from qgraph.backends.c.c_text import short
from qgraph.backends.c.kernels import KERNELS
from qgraph.ir.types import Array
from qgraph.names import Namespace
from qgraph.program import Program, storage


@dataclass
class CContext:
    """Names, constants, helpers and kernels of the written functions."""

    program: Program
    names: Namespace
    idents: dict[str, str]
    data: dict[str, tuple[str, Array]] = field(default_factory=dict)  # array -> (type, codes)
    helpers: set[tuple[str, str]] = field(default_factory=set)
    kernels: dict[str, str] = field(default_factory=dict)
    traced: list[str] = field(default_factory=list)

    def constant(self, tensor: str) -> str:
        """The array of a constant."""
        name = self.idents[tensor]
        if name not in self.data:
            self.data[name] = (self.program.tensors[tensor].storage, self.program.constants[tensor])
        return name

    def array(self, values: npt.ArrayLike, text: str) -> str:
        """Store an array of numbers of a step as a constant."""
        codes = np.asarray(values, np.int64)
        kind = storage(int(codes.min()), int(codes.max()))
        name = self.names.fresh(text)
        self.data[name] = (kind, codes.astype(kind))
        return name

    def trace(self, tensor: str) -> int:
        self.traced.append(tensor)
        return len(self.traced) - 1

    def kernel(self, op: str, x: str, w: str, a: str) -> str:
        name = "_".join([op, *(short(kind) for kind in (x, w, a) if kind)])
        self.kernels[name] = KERNELS[op].format(name=name, x=f"{x}_t", w=f"{w}_t", a=f"{a}_t")
        return name
