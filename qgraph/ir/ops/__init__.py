"""Every op of the IR, each defined in one place: type rule, float and integer reference."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from qgraph.errors import GraphError
from qgraph.ir.ops import (
    activation,
    arithmetic,
    blocks,
    composed,
    integer_softmax,
    linear,
    movement,
    norm,
    pool,
    standardize,
    structure,
    tabulated,
)
from qgraph.ir.ops.base import AnyOp, OpDef

OPS: Mapping[str, AnyOp] = MappingProxyType(
    {
        definition.name: definition
        for module in (
            structure,
            linear,
            norm,
            standardize,
            integer_softmax,
            activation,
            tabulated,
            composed,
            arithmetic,
            pool,
            movement,
            blocks,
        )
        for definition in module.OPS
    }
)


def op_definition(op: str, node: str | None = None) -> AnyOp:
    """The definition of `op`. Raises GraphError if there is none."""
    try:
        return OPS[op]
    except KeyError:
        raise GraphError(f"unknown op `{op}`", node=node) from None


__all__ = ["OPS", "OpDef", "op_definition"]
