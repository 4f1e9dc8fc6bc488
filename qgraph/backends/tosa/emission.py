"""A program as ops of TOSA: what all lowerings share.

Codes that fit 8 bits are stored as int8: those of `-128..127` with zero point 0, others of `0..255`
with zero point -128. All other codes are stored as int32. A tensor is converted where an op needs
it in another way. TOSA has no free sizes, so a file has a fixed number of samples.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from qgraph.backends.tosa.fusion import Fusions
from qgraph.backends.tosa.graph_builder import SIGNED, UNSIGNED, WIDE, StoredAs, TosaGraphBuilder
from qgraph.errors import UnsupportedError
from qgraph.ops.attributes import Attributes
from qgraph.ops.lowerings import Lowerings
from qgraph.program import Program, Step, Tensor
from qgraph.program.run import of_batch

MOST = (1 << 31) - 1
MAX_RANK = 6  # of level 8K
OTHER_FORMAT = "use profile `tosa`, or another format, such as `c` or `onnx-integer`"


def stored_as(tensor: Tensor) -> StoredAs:
    """How the codes of a tensor are stored between ops."""
    for stored in (SIGNED, UNSIGNED):
        if stored.low <= tensor.low and tensor.high <= stored.high:
            return stored
    return WIDE


class TosaEmission:
    """Writes a program's steps with `lowerings`, for a number of samples.

    held: the values that contain a tensor, by how they are stored; the first is the result of its
    step.
    """

    def __init__(self, program: Program, lowerings: Lowerings[TosaLower], batch: int = 1) -> None:
        self.program, self.lowerings = program, lowerings
        self.batch = batch
        self.tensors = program.tensors
        self.model = TosaGraphBuilder()
        self.fusions = Fusions(program)
        self.held: dict[str, dict[StoredAs, str]] = {}

    def emit(self) -> TosaGraphBuilder:
        """The graph without outputs. Raises UnsupportedError that names what TOSA lacks."""
        for entry in self.program.entries:
            stored = stored_as(self.checked(entry.tensor))
            value = self.model.input(entry.tensor, stored.dtype, self.shape(entry.tensor))
            self.put(entry.tensor, value, stored)
        for step in self.program.steps:
            self.checked(step.output)
            lower = self.lowerings.of(step.op, step.output)
            if not self.fusions.postponed(step):
                lower(self, step)
        return self.model

    def checked(self, name: str) -> Tensor:
        """The tensor. Raises UnsupportedError if TOSA cannot hold it."""
        tensor = self.tensors[name]
        if max(-tensor.low, tensor.high, tensor.magnitude) > MOST:
            raise UnsupportedError(
                f"its codes or partial sums reach {max(-tensor.low, tensor.magnitude):,}; TOSA "
                "computes in 32 bits",
                node=name,
                hint=OTHER_FORMAT,
            )
        if len(tensor.shape) > MAX_RANK or 0 in tensor.shape:
            raise UnsupportedError(
                f"has shape {list(tensor.shape)}; TOSA has tensors of 1 to {MAX_RANK} axes, "
                "without size 0",
                node=name,
                hint="use another format",
            )
        return tensor

    # -- tensors -----------------------------------------------------------------------------

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor in the file."""
        shape = self.tensors[name].shape
        if self.program.batch_free and name not in self.program.constants:
            return (self.batch, *shape[1:])
        return shape

    def attributes(self, step: Step) -> Attributes:
        """The attributes of a step, for the number of samples."""
        return of_batch(self.program, step, self.batch)

    def put(self, name: str, value: str, stored: StoredAs) -> None:
        self.held.setdefault(name, {})[stored] = value

    def natural(self, name: str) -> StoredAs:
        return stored_as(self.tensors[name])

    def held_as(self, name: str) -> StoredAs:
        """How its step stored a tensor; as usual for constants."""
        held = self.held.get(name)
        return next(iter(held)) if held else self.natural(name)

    def in_bytes(self, name: str) -> StoredAs:
        """How a tensor is stored in 8 bits if it is or can be; otherwise as usual."""
        held = self.held_as(name)
        return self.natural(name) if held == WIDE else held

    def get(self, name: str, stored: StoredAs | None = None) -> str:
        """The value of a tensor, stored as given or as usual for its codes."""
        wanted = stored or self.natural(name)
        if name in self.program.constants:
            self.checked(name)
            codes = self.program.constants[name]
            return self.constant(codes, wanted, name)
        held = self.held[name]
        if wanted not in held:
            (have, value), *_ = held.items()
            assert wanted.low <= self.tensors[name].low
            assert self.tensors[name].high <= wanted.high
            held[wanted] = self.model.rescaled(value, f"{name}/stored", have.zero, wanted)
        return held[wanted]

    def constant(self, codes: npt.ArrayLike, stored: StoredAs, stem: str) -> str:
        array = np.asarray(codes, np.int64)
        value = self.model.constant(stored.numbers(array), stored.dtype, stem)
        return value if array.ndim else self.model.reshaped(value, (), stem)

    def wide_pair(self, step: Step) -> tuple[str, str]:
        """Both operands in int32, with as many axes as the result."""
        rank = len(self.tensors[step.output].shape)
        a, b = (
            self.model.reshaped(
                value := self.get(name, WIDE),
                (*(1,) * (rank - len(self.model.shape(value))), *self.model.shape(value)),
                f"{name}/axes",
            )
            for name in step.inputs
        )
        return a, b

    def bytes_of(self, name: str, why: str, step: Step) -> tuple[str, int]:
        """A tensor as int8, and its zero point. Raises UnsupportedError for wider codes."""
        stored, tensor = self.in_bytes(name), self.tensors[name]
        if stored == WIDE:
            raise UnsupportedError(
                f"{why} `{name}` has codes {tensor.low:,}..{tensor.high:,}; TOSA's int8 products "
                "have 8 bits",
                node=step.output,
                hint=OTHER_FORMAT,
            )
        return self.get(name, stored), stored.zero


TosaLower = Callable[[TosaEmission, Step], None]
