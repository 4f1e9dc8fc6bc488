"""The text form of a graph; `qgraph.ir.parsing` reads it back without loss.

    graph "tiny" {
      %x = input {type=float32[?,8,8,1]}
      %w = const {value=float32[3,3,1,4]:sha256:5e0f...}
      %conv = conv2d(%x, %w) {dilations=(1, 1), padding="same", strides=(1, 1)} : float32[?,8,8,4]
      return "y" = %conv
    }

A small constant is written out (floats as their shortest exact text), a large one as a hash;
`parse_graph` then takes its array from `constants`.
"""

from __future__ import annotations

import hashlib
import json
import re

import numpy as np

from qgraph.ir.node import Node, ReadableGraph
from qgraph.ir.types import Array, Overflow, QuantSpec, Rounding, TensorType

INLINE_ELEMENTS = 16
_PLAIN = re.compile(r"[A-Za-z_][\w./-]*(:[1-9][0-9]*)?")


def print_graph(graph: ReadableGraph) -> str:
    """The whole graph as text, nodes in topological order."""
    lines = [f"graph {_quote(graph.name)} {{"]
    lines += [f"  {_node(graph, node)}" for node in graph.computed_order()]
    lines += [f"  return {_quote(public)} = {_value(v)}" for public, v in graph.outputs.items()]
    return "\n".join([*lines, "}", ""])


def print_node(node: Node) -> str:
    """One node without its types, for logs and errors."""
    count = f"#{node.outputs}" if node.outputs > 1 else ""
    inputs = f"({', '.join(map(_value, node.inputs))})" if node.inputs else ""
    attrs = ", ".join(f"{key}={_attr(node.attrs[key])}" for key in sorted(node.attrs))
    after = f" after ({', '.join(map(_value, node.control))})" if node.control else ""
    return (
        f"{_value(node.name)}{count} = {node.op}{inputs}{f' {{{attrs}}}' if attrs else ''}{after}"
    )


def _node(graph: ReadableGraph, node: Node) -> str:
    if node.op in ("input", "const"):
        return print_node(node)
    return f"{print_node(node)} : {', '.join(str(graph.types[v]) for v in node.values)}"


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _value(value: str) -> str:
    return f"%{value}" if _PLAIN.fullmatch(value) else f"%{_quote(value)}"


def _attr(value: object) -> str:
    if isinstance(value, np.ndarray):
        return _array(value)
    if isinstance(value, QuantSpec):
        return f"<{_spec(value)}>"
    if isinstance(value, tuple | list):
        inner = ", ".join(map(_attr, value))
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, str):
        return _quote(value)
    if isinstance(value, np.generic):
        return repr(value.item())
    if value is None or isinstance(value, bool | int | float):
        return repr(value)
    return str(value) if isinstance(value, TensorType) else "@source"


def _spec(spec: QuantSpec) -> str:
    fields = [f"{'s' if spec.signed else 'u'}{spec.bits}", spec.role, f"f={spec.exponent}"]
    if spec.group is not None:
        fields.append(f"group={spec.group}")
    fields += [word for word in (spec.rounding,) if word != Rounding.HALF_EVEN]
    fields += [word for word in (spec.overflow,) if word != Overflow.SATURATE]
    fields += ["per_channel"] if spec.per_channel else []
    return " ".join(fields).replace(", ", ",")


def fingerprint(value: Array) -> str:
    """Hash of a constant: dtype, shape and bytes."""
    digest = hashlib.sha256(f"{value.dtype.str}{value.shape}".encode())
    whole = repr(value.tolist()).encode() if value.dtype.kind == "O" else value.tobytes()
    digest.update(whole)
    return digest.hexdigest()[:16]


def _array(value: Array) -> str:
    dims = ",".join(map(str, value.shape))
    if value.size <= INLINE_ELEMENTS and value.dtype.kind in "fiub":
        body = f"[{','.join(map(str, value.ravel()))}]"
    else:
        body = f"sha256:{fingerprint(value)}"
    return f"{value.dtype.name}[{dims}]:{body}"
