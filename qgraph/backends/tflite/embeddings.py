"""Embeddings in `.tflite` files: GATHER of rows of a table, by int32 indices.

Indices that embeddings alone use are inputs of the file as they are; other codes are converted.
"""

from __future__ import annotations

import numpy as np

from qgraph.backends.tflite.elementwise import write_table
from qgraph.backends.tflite.gathers import gathered
from qgraph.backends.tflite.writer import TensorWriter
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


def write_limits(emission: TensorWriter, step: Step) -> None:
    """Limit indices to those of rows."""
    (x,), attrs = step.inputs, step.attrs_as(ClipAttrs)
    value, shape = emission.held[x], emission.tensors[x].shape
    for op, limit in (("MAXIMUM", attrs.low), ("MINIMUM", attrs.high)):
        if limit is None:
            continue
        bound = emission.model.constant(f"{step.output}/{op.lower()}", np.asarray(limit, np.int32))
        made = emission.model.tensor(step.output, shape, "int32")
        inputs = [value, bound]
        value = emission.model.operator(op, inputs, made, "MaximumMinimumOptions", 2)
    emission.held[step.output] = value
