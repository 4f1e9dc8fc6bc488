"""Helpers that lowering rules share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from qgraph.backends.tf.builder import DType
from qgraph.backends.tf.emission import Emission
from qgraph.ir.graph import Node
from qgraph.ir.types import Array

Lower = Callable[[Emission, Node], str]


def simple(op: str, dtype_attr: str = "T") -> Lower:
    """An op with the same inputs in TensorFlow."""

    def lower(e: Emission, node: Node) -> str:
        dtype = e.dtypes[node.name]
        inputs = [e.tensor(v, dtype) for v in node.inputs]
        return e.builder.add(op, node.name, inputs, **{dtype_attr: DType(dtype)})

    return lower


Bounds: TypeAlias = Sequence[int | None]


def factor(e: Emission, name: str, factor: Array) -> str:
    if factor.ndim == 0:
        return e.builder.scalar(float(factor), factor.dtype.name)
    return e.builder.const(factor, f"{name}/factors")


def strided_slice(
    e: Emission, name: str, x: str, begin: Bounds, end: Bounds, strides: Bounds, dtype: str
) -> str:
    consts = [
        e.builder.const(
            np.array([0 if v is None else v for v in values], np.int32), f"{name}/{what}"
        )
        for what, values in (("begin", begin), ("end", end))
    ]
    steps = e.builder.const(
        np.array([1 if s is None else s for s in strides], np.int32), f"{name}/strides"
    )
    return e.builder.add(
        "StridedSlice", name, [x, *consts, steps], T=DType(dtype), Index=DType("int32"),
        begin_mask=sum(1 << i for i, v in enumerate(begin) if v is None),
        end_mask=sum(1 << i for i, v in enumerate(end) if v is None),
    )  # fmt: skip
