"""The text form of a graph: printed for people and golden tests, parsed back without loss.

    graph "tiny" {
      %x = input {type=float32[?,8,8,1]}
      %w = const {value=float32[3,3,1,4]:sha256:5e0f...}
      %conv = conv2d(%x, %w) {dilations=(1, 1), padding="same", strides=(1, 1)} : float32[?,8,8,4]
      return "y" = %conv
    }

A small constant is written out (exact: floats as their shortest repr that parses back), a large
one by its hash; `parse` then takes its array from `constants`.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from qgraph.errors import TextError, UnsupportedError
from qgraph.ir.graph import Graph, Node
from qgraph.ir.types import Array, QuantSpec, Shape, TensorType

INLINE_ELEMENTS = 16

_PLAIN = re.compile(r"[A-Za-z_][\w./-]*(:\d+)?")
_TYPE = re.compile(r"(\w+)\[([^\]]*)\]")
_LINE = re.compile(
    r"%(?P<name>\"(?:[^\"\\]|\\.)*\"|[\w./-]+)(?:#(?P<outputs>\d+))?"
    r" = (?P<op>\w+)(?:\((?P<inputs>[^)]*)\))?(?: \{(?P<attrs>.*?)\})?"
    r"(?: after \((?P<control>[^)]*)\))?(?: : (?P<type>[^{}]*))?"
)


@dataclass(frozen=True)
class LostSource:
    """Stands where the source of an opaque op was: text cannot carry it."""

    node: str

    def run(self, inputs: Sequence[Array]) -> Array:
        raise UnsupportedError("an opaque op that was read from text cannot be run", node=self.node)


# -- printing -------------------------------------------------------------------------------


def print_graph(graph: Graph) -> str:
    """The whole graph as text, nodes in topological order."""
    lines = [f"graph {_quote(graph.name)} {{"]
    lines += [f"  {_node(graph, node)}" for node in graph.topological()]
    lines += [f"  return {_quote(public)} = {_value(v)}" for public, v in graph.outputs.items()]
    return "\n".join([*lines, "}", ""])


def print_node(node: Node) -> str:
    """One node without its types, as logs and errors show it."""
    count = f"#{node.outputs}" if node.outputs > 1 else ""
    inputs = f"({', '.join(map(_value, node.inputs))})" if node.inputs else ""
    attrs = ", ".join(f"{key}={_attr(node.attrs[key])}" for key in sorted(node.attrs))
    after = f" after ({', '.join(map(_value, node.control))})" if node.control else ""
    return (
        f"{_value(node.name)}{count} = {node.op}{inputs}{f' {{{attrs}}}' if attrs else ''}{after}"
    )


def _node(graph: Graph, node: Node) -> str:
    if node.op in ("input", "const"):
        return print_node(node)
    return f"{print_node(node)} : {', '.join(str(graph.types[v]) for v in node.values)}"


def _quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _value(value: str) -> str:
    return f"%{value}" if _PLAIN.fullmatch(value) else f"%{_quote(value)}"


def _attr(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return _array(value)
    if isinstance(value, QuantSpec):
        return f"<{_spec(value)}>"
    if isinstance(value, tuple | list):
        inner = ", ".join(map(_attr, value))
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, np.generic):
        return repr(value.item())
    if isinstance(value, str):
        return _quote(value)
    if value is None or isinstance(value, bool | int | float):
        return repr(value)
    return str(value) if isinstance(value, TensorType) else "@source"


def _spec(spec: QuantSpec) -> str:
    fields = [f"{'s' if spec.signed else 'u'}{spec.bits}", spec.role, f"f={spec.exponent}"]
    if spec.group is not None:
        fields.append(f"group={spec.group}")
    fields += [word for word in (spec.rounding,) if word != "half_even"]
    fields += [word for word in (spec.overflow,) if word != "saturate"]
    fields += ["per_channel"] if spec.per_channel else []
    return " ".join(fields).replace(", ", ",")


def fingerprint(value: Array) -> str:
    """Hash of a constant: dtype, shape and bytes."""
    digest = hashlib.sha256(f"{value.dtype.str}{value.shape}".encode())
    digest.update(np.ascontiguousarray(value).tobytes())
    return digest.hexdigest()[:16]


def _array(value: Array) -> str:
    dims = ",".join(map(str, value.shape))
    if value.size <= INLINE_ELEMENTS and value.dtype.kind in "fiub":
        body = f"[{','.join(map(str, value.ravel()))}]"
    else:
        body = f"sha256:{fingerprint(value)}"
    return f"{value.dtype.name}[{dims}]:{body}"


# -- parsing --------------------------------------------------------------------------------


def parse_graph(text: str, constants: Mapping[str, Array] | None = None) -> Graph:
    """Read the text form back. `constants` maps node names to arrays printed by hash.

    Raises TextError with the line that does not parse, or whose types or hashes disagree.
    """
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    head = re.fullmatch(r'graph ("(?:[^"\\]|\\.)*") \{', lines[0]) if lines else None
    if head is None or lines[-1] != "}":
        raise TextError('expected `graph "name" {` ... `}`')
    graph = Graph(_unquote(head[1]))
    for number, line in enumerate(lines[1:-1], start=2):
        try:
            _parse_line(graph, line, constants or {})
        except TextError as error:
            raise TextError(f"line {number}: {error.message}", hint=line) from None
    return graph


def _parse_line(graph: Graph, line: str, constants: Mapping[str, Array]) -> None:
    output = re.fullmatch(r'return ("(?:[^"\\]|\\.)*") = (.*)', line)
    if output:
        graph.outputs[_unquote(output[1])] = _parse_value(output[2])
        return
    match = _LINE.fullmatch(line)
    if match is None:
        raise TextError("this is neither a node nor a return")
    name = _parse_value("%" + match["name"])
    attrs = dict(_parse_attrs(match["attrs"] or "", name, constants))
    node = Node(
        name,
        match["op"],
        tuple(_parse_values(match["inputs"])),
        attrs,
        tuple(_parse_values(match["control"])),
        int(match["outputs"] or 1),
    )
    graph.insert(node)
    if node.op == "input":
        graph.inputs.append(name)
    written = match["type"]
    inferred = ", ".join(str(graph.types[v]) for v in node.values)
    if written and written != inferred:
        raise TextError(f"the type says {written}, the op gives {inferred}")


def _unquote(text: str) -> str:
    return text[1:-1].replace('\\"', '"').replace("\\\\", "\\")


def _parse_value(text: str) -> str:
    text = text.strip()
    if not text.startswith("%"):
        raise TextError(f"expected a %value, found `{text}`")
    return _unquote(text[1:]) if text[1:2] == '"' else text[1:]


def _parse_values(text: str | None) -> list[str]:
    return [_parse_value(part) for part in _split(text or "")]


def _split(text: str) -> list[str]:
    """Split at commas outside brackets and quotes."""
    parts, depth, quoted, start = [], 0, False, 0
    for i, char in enumerate(text):
        if char == '"' and text[i - 1 : i] != "\\":
            quoted = not quoted
        elif not quoted:
            depth += (char in "([{<") - (char in ")]}>")
            if char == "," and depth == 0:
                parts.append(text[start:i])
                start = i + 1
    return [part.strip() for part in [*parts, text[start:]] if part.strip()]


def _parse_attrs(text: str, name: str, constants: Mapping[str, Array]) -> list[tuple[str, Any]]:
    pairs = []
    for part in _split(text):
        key, equals, value = part.partition("=")
        if not equals:
            raise TextError(f"expected key=value, found `{part}`")
        pairs.append((key, _parse_attr(value, name, constants)))
    return pairs


def _parse_attr(text: str, name: str, constants: Mapping[str, Array]) -> Any:
    if text.startswith("<"):
        return _parse_spec(text[1:-1])
    if text == "@source":
        return LostSource(name)
    if text.startswith('"'):
        return _unquote(text)
    array = re.fullmatch(r"(\w+\[[\d,]*\]):(.*)", text)
    if array:
        return _parse_array(array[1], array[2], name, constants)
    if _TYPE.fullmatch(text):
        return _parse_type(text)
    if text.startswith("("):
        return tuple(_parse_attr(part, name, constants) for part in _split(text[1:-1]))
    if text in ("inf", "-inf", "nan"):
        return float(text)
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        raise TextError(f"`{text}` is not an attribute value") from None


def _parse_type(text: str) -> TensorType:
    match = _TYPE.fullmatch(text)
    if match is None:
        raise TextError(f"`{text}` is not a type")
    if match[2] == "*":
        return TensorType(match[1], None)
    dims = [d for d in match[2].split(",") if d]
    shape: Shape = tuple(None if d == "?" else int(d) for d in dims)
    return TensorType(match[1], shape)


def _parse_array(kind: str, body: str, name: str, constants: Mapping[str, Array]) -> Array:
    expected = _parse_type(kind)
    if not body.startswith("sha256:"):
        text = re.sub(r"\b(nan|inf)\b", r'"\1"', body)
        flat = np.asarray(ast.literal_eval(text), dtype=expected.dtype)
        return flat.reshape([d or 0 for d in expected.shape or ()])
    if name not in constants:
        raise TextError(f"constant `{name}` is printed by its hash: pass its array in `constants`")
    value = constants[name]
    if fingerprint(value) != body.removeprefix("sha256:"):
        raise TextError(f"constant `{name}` does not have the hash that the text says")
    return value


def _parse_spec(text: str) -> QuantSpec:
    kind, role, *rest = text.split()
    options: dict[str, Any] = {}
    for word in rest:
        key, equals, value = word.partition("=")
        if key == "f":
            options["exponent"] = ast.literal_eval(value)
        elif equals:
            options[key] = value
        elif word == "per_channel":
            options["per_channel"] = True
        else:
            options["overflow" if word == "wrap" else "rounding"] = word
    return QuantSpec(int(kind[1:]), kind[0] == "s", role, **options)
