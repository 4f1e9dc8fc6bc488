"""Reads the text form of a graph (`qgraph.ir.printing`)."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np

from qgraph.errors import GraphError, TextError, UnsupportedError
from qgraph.ir.graph import Graph
from qgraph.ir.node import Node
from qgraph.ir.ops.structure import Source
from qgraph.ir.printing import fingerprint
from qgraph.ir.types import (
    OVERFLOWS,
    ROLES,
    ROUNDINGS,
    Array,
    Overflow,
    QuantSpec,
    Role,
    Rounding,
    Shape,
    TensorType,
)

_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
_TYPE = re.compile(r"(\w+)\[([^\]]*)\]")
_RETURN = re.compile(r'return ("\d+") = (.*)')
_LINE = re.compile(
    r"%(?P<name>\"\d+\"|[\w./-]+)(?:#(?P<outputs>\d+))?"
    r" = (?P<op>\w+)(?:\((?P<inputs>[^)]*)\))?(?: \{(?P<attrs>.*?)\})?"
    r"(?: after \((?P<control>[^)]*)\))?(?: : (?P<type>[^{}]*))?"
)


@dataclass(frozen=True)
class LostSource:
    """Placeholder for the source of an opaque op, which text cannot hold."""

    node: str
    pure: bool = False

    def types(
        self, inputs: Sequence[TensorType], constants: Sequence[Array | None]
    ) -> tuple[TensorType, ...]:
        return ()

    def run(self, inputs: Sequence[Array]) -> Array:
        raise UnsupportedError("an opaque op that was read from text cannot be run", node=self.node)


# Errors that a wrong line may raise.
_WRONG = (GraphError, AttributeError, LookupError, SyntaxError, TypeError, ValueError)


def parse_graph(
    text: str,
    constants: Mapping[str, Array] | None = None,
    sources: Mapping[str, Source] | None = None,
) -> Graph:
    """Read the text form back.

    constants: arrays of nodes that were printed as a hash. sources: sources of opaque ops. Facts
    are not part of the text. Raises TextError that names the line with an error in syntax, types
    or hashes.
    """
    lines = [(n, line.strip()) for n, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not lines or lines[-1][1] != "}":
        raise TextError('expected `graph "name" {` ... `}`')
    graph = Graph()
    for number, line in lines[:-1]:
        try:
            if number == lines[0][0]:
                graph.name = _parse_head(line)
            else:
                _Line(line, constants or {}, sources or {}).read_into(graph)
        except _WRONG as error:
            message = error.message if isinstance(error, GraphError) else str(error)
            raise TextError(f"line {number}: {message}", hint=line) from None
    return graph


def parse_node(line: str) -> Node:
    """One node as written by `print_node`, not checked against its op."""
    return _Line(line, {}, {}).node()[0]


def _parse_head(line: str) -> str:
    head = re.fullmatch(rf"graph ({_QUOTED.pattern}) \{{", line)
    if head is None:
        raise TextError('expected `graph "name" {`')
    name: str = json.loads(head[1])
    return name


class _Line:
    """One line of text. Quoted strings are replaced by their numbers first, like `"3"`."""

    def __init__(
        self, line: str, constants: Mapping[str, Array], sources: Mapping[str, Source]
    ) -> None:
        self.strings = _QUOTED.findall(line)
        places = count()
        self.text = _QUOTED.sub(lambda _: f'"{next(places)}"', line)
        self.constants, self.sources = constants, sources
        self.name = ""

    def read_into(self, graph: Graph) -> None:
        output = _RETURN.fullmatch(self.text)
        if output:
            value = self.value(output[2])
            if value not in graph.types:
                raise TextError(f"`{value}` does not exist")
            graph.outputs[self.unquote(output[1])] = value
            return
        node, types = self.node()
        graph.insert(node)
        if node.op == "input":
            graph.inputs.append(node.name)
        inferred = ", ".join(str(graph.types[v]) for v in node.values)
        if types and types != inferred:
            raise TextError(f"the declared type is {types}, the op gives {inferred}")

    def node(self) -> tuple[Node, str]:
        """The node and its types, as written."""
        match = _LINE.fullmatch(self.text)
        if match is None:
            raise TextError("this is neither a node nor a return")
        self.name = self.value("%" + match["name"])
        node = Node(
            self.name,
            match["op"],
            self.values(match["inputs"]),
            self.attrs(match["attrs"]),
            self.values(match["control"]),
            int(match["outputs"] or 1),
        )
        return node, match["type"] or ""

    def unquote(self, text: str) -> str:
        string: str = json.loads(self.strings[int(text[1:-1])])
        return string

    def value(self, text: str) -> str:
        if not text.startswith("%"):
            raise TextError(f"expected a %value, found `{text}`")
        return self.unquote(text[1:]) if text[1:2] == '"' else text[1:]

    def values(self, text: str | None) -> tuple[str, ...]:
        return tuple(self.value(part) for part in _split(text or ""))

    def attrs(self, text: str | None) -> dict[str, object]:
        pairs = [part.partition("=") for part in _split(text or "")]
        wrong = [key for key, equals, _ in pairs if not equals]
        if wrong:
            raise TextError(f"expected key=value, found `{wrong[0]}`")
        return {key: self.attr(value) for key, _, value in pairs}

    def attr(self, text: str) -> object:
        if text.startswith("<"):
            return _parse_spec(text[1:-1])
        if text == "@source":
            return self.sources.get(self.name) or LostSource(self.name)
        if text.startswith('"'):
            return self.unquote(text)
        array = re.fullmatch(r"(\w+\[[\d,]*\]):(.*)", text)
        if array:
            return self.array(array[1], array[2])
        if _TYPE.fullmatch(text):
            return _parse_type(text)
        if text.startswith("("):
            return tuple(self.attr(part) for part in _split(text[1:-1]))
        if text in ("inf", "-inf", "nan"):
            return float(text)
        try:
            return ast.literal_eval(text)
        except (ValueError, SyntaxError):
            raise TextError(f"`{text}` is not an attribute value") from None

    def array(self, kind: str, body: str) -> Array:
        expected = _parse_type(kind)
        if not body.startswith("sha256:"):
            dtype = np.dtype(expected.dtype)
            words = _split(body[1:-1])
            if dtype.kind == "b":
                flat = np.array([word == "True" for word in words], dtype)
            else:
                flat = np.array([*map(float if dtype.kind == "f" else int, words)], dtype)
            return flat.reshape([d or 0 for d in expected.shape or ()])
        if self.name not in self.constants:
            raise TextError(
                f"constant `{self.name}` is printed as a hash: pass its array in `constants`"
            )
        value = self.constants[self.name]
        if fingerprint(value) != body.removeprefix("sha256:"):
            raise TextError(f"constant `{self.name}` does not have the hash in the text")
        return value


def _split(text: str) -> list[str]:
    """Split at commas outside brackets."""
    parts, depth, start = [], 0, 0
    for i, char in enumerate(text):
        depth += (char in "([{<") - (char in ")]}>")
        if char == "," and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    return [part.strip() for part in [*parts, text[start:]] if part.strip()]


def _parse_type(text: str) -> TensorType:
    match = _TYPE.fullmatch(text)
    if match is None:
        raise TextError(f"`{text}` is not a type")
    if match[2] == "*":
        return TensorType(match[1], None)
    dims = [d for d in match[2].split(",") if d]
    shape: Shape = tuple(None if d == "?" else int(d) for d in dims)
    return TensorType(match[1], shape)


def _parse_spec(text: str) -> QuantSpec:
    kind, role, *rest = text.split()
    if kind[0] not in "su":
        raise TextError(f"`{text}` is not a quantizer's spec")
    options: dict[str, Any] = {}
    for word in rest:
        key, equals, value = word.partition("=")
        if key == "f":
            options["exponent"] = ast.literal_eval(value)
        elif equals:
            options[key] = value
        elif word == "per_channel":
            options["per_channel"] = True
        elif word in OVERFLOWS:
            options["overflow"] = Overflow(word)
        elif word in ROUNDINGS:
            options["rounding"] = Rounding(word)
        else:
            raise TextError(f"unknown word `{word}` in a quantizer's spec")
    bits = int(kind[1:])
    if role not in ROLES:
        raise TextError(f"unknown role `{role}`; choose one of {', '.join(ROLES)}")
    return QuantSpec(bits, kind[0] == "s", Role(role), **options)
