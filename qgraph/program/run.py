"""Run a program on codes in numpy and int64, step by step, by the definitions of its ops."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from qgraph.errors import GraphError
from qgraph.ir.types import Array, Codes
from qgraph.ops.attributes import Attributes
from qgraph.program.program import Program, Step


def run(
    program: Program, entries: Mapping[str, Array], keep: Collection[str] | None = None
) -> dict[str, Codes]:
    """Codes by tensor name: of the exits, or of the tensors in `keep`.

    entries: codes of every entry; N samples if the batch is free. Raises GraphError for codes
    that are missing or do not fit.
    """
    batch = batch_of(program, entries)
    values: dict[str, Codes] = {n: np.asarray(c, np.int64) for n, c in program.constants.items()}
    values.update({e.tensor: np.asarray(entries[e.tensor], np.int64) for e in program.entries})
    for step in program.steps:
        inputs = [values[name] for name in step.inputs]
        attrs = of_batch(program, step, batch)
        values[step.output] = np.asarray(step.definition.compute(attrs, inputs))
    return {name: values[name] for name in (program.exits if keep is None else keep)}


def batch_of(program: Program, entries: Mapping[str, Array]) -> int:
    """The number of samples in `entries`; 1 if the batch is not free. Raises GraphError."""
    batch = None
    for entry in program.entries:
        if entry.tensor not in entries:
            raise GraphError("codes of this input are missing", node=entry.tensor)
        tensor, codes = program.tensors[entry.tensor], np.asarray(entries[entry.tensor])
        if codes.dtype.kind not in "iu":
            raise GraphError(f"codes are integers, found {codes.dtype}", node=entry.tensor)
        wanted = tensor.shape
        if program.batch_free and codes.ndim:
            batch = len(codes) if batch is None else batch
            wanted = (batch, *wanted[1:])
        if codes.shape != wanted:
            raise GraphError(f"expects codes {wanted}, found {codes.shape}", node=entry.tensor)
        if codes.size and (codes.min() < tensor.low or codes.max() > tensor.high):
            raise GraphError(f"codes are outside {tensor.low}..{tensor.high}", node=entry.tensor)
    return 1 if batch is None else batch


def of_batch(program: Program, step: Step, batch: int) -> Attributes:
    """The attributes of a step in a run of `batch` samples."""
    for_batch = step.definition.for_batch
    if for_batch is None or not program.batch_free:
        return step.attrs
    attrs: Attributes = for_batch(step.attrs, batch)
    return attrs
