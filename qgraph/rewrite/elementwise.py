"""Ops that compute each element separately, by number of inputs."""

from __future__ import annotations

from qgraph.ir.ops import OPS

UNARY = tuple(name for name, op in OPS.items() if op.elementwise and op.arity == (1, 1))
BINARY = tuple(name for name, op in OPS.items() if op.elementwise and op.arity == (2, 2))
