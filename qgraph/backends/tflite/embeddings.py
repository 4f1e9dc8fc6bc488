"""Embeddings in `.tflite` files: GATHER of rows of a table, by int32 indices.

Indices that embeddings alone use are inputs of the file as they are; other codes are converted.
"""

from __future__ import annotations

import numpy as np

from qgraph.backends.tflite.elementwise import write_table
from qgraph.backends.tflite.gathers import gathered
from qgraph.backends.tflite.writer import TensorWriter
from qgraph.ir.types import Codes
from qgraph.program import Step
from qgraph.program.ops import ClipAttrs


def write_rows(emission: TensorWriter, step: Step) -> None:
    """The rows of a table."""
    (x, table), name = step.inputs, step.output
    codes = emission.constant_codes(table)
    emission.held[name] = (
        gathered(emission, name, table, codes, emission.held[x])
        if x in emission.indices
        else write_table(emission, step, emission.get_like(x, x), codes, 0)
    )


def write_index(emission: TensorWriter, step: Step) -> None:
    """A step on indices of rows, in int32: see `qgraph.backends.tflite.writer.indices_of_rows`."""
    (x, *_), name = step.inputs, step.output
    value = emission.held[x]
    if step.op == "reshape":
        sizes = np.asarray(emission.tensors[name].shape, np.int32)
        made = emission.model.tensor(name, sizes.tolist(), "int32")
        inputs = [value, emission.model.constant(f"{name}/shape", sizes)]
        emission.held[name] = emission.model.operator(
            "RESHAPE", inputs, made, "ReshapeOptions", NewShape=sizes
        )
        return
    for op, limit in _limits(emission, step):
        bound = emission.model.constant(f"{name}/{op.lower()}", limit.astype(np.int32))
        made = emission.model.tensor(name, emission.tensors[name].shape, "int32")
        value = emission.model.operator(op, [value, bound], made, "MaximumMinimumOptions", 2)
    emission.held[name] = value


def _limits(emission: TensorWriter, step: Step) -> list[tuple[str, Codes]]:
    if step.op != "clip":
        return [(step.op.upper(), emission.constant_codes(step.inputs[1]))]
    attrs = step.attrs_as(ClipAttrs)
    ends = (("MAXIMUM", attrs.low), ("MINIMUM", attrs.high))
    return [(op, np.asarray(limit)) for op, limit in ends if limit is not None]
