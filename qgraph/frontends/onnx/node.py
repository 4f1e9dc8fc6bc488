"""Views of ONNX nodes: references between them, attributes, names in the IR."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from qgraph.errors import GraphError
from qgraph.foreign import AttrValue
from qgraph.frontends.onnx.schemas import no_effect
from qgraph.frontends.site import Ref

# Ops for parts of the file that are not nodes.
INPUT, INITIALIZER = "Input", "Initializer"

_INDEXED = re.compile(r":(?=[1-9][0-9]*\Z)")


@dataclass(frozen=True)
class OnnxNode:
    """One node. `slots` are its inputs, None where an optional one is omitted.

    `outputs` are the names of its outputs in the IR, "" where one is omitted; the first of them
    is the node's name. `version` is the opset of the node's domain.
    """

    name: str
    op: str
    domain: str
    version: int
    slots: tuple[Ref | None, ...]
    outputs: tuple[str, ...]
    attrs: Mapping[str, AttrValue]
    label: str = ""  # the node's own name in the file

    control: tuple[str, ...] = ()
    captures: Mapping[str, Ref] = field(default_factory=dict)  # that graphs inside it read, by name

    def with_attrs(self, attrs: Mapping[str, AttrValue]) -> OnnxNode:
        return replace(self, attrs=attrs)

    def value_as_text(self, key: str) -> str:
        return str(self.attrs[key])

    def may_ignore(self, key: str) -> bool:
        return no_effect(self.op, self.version, self.domain, key, self.attrs[key])

    @property
    def inputs(self) -> tuple[Ref, ...]:
        return (*(ref for ref in self.slots if ref is not None), *self.captures.values())

    @property
    def present(self) -> tuple[int, ...]:
        """The indices of the outputs that are not omitted."""
        return tuple(i for i, name in enumerate(self.outputs) if name)

    def integer(self, key: str, default: int = 0) -> int:
        return int(self.attrs.get(key, default))

    def flag(self, key: str, default: bool = False) -> bool:
        """An attribute that is 0 or 1; runtimes disagree on what other numbers mean."""
        value = self.integer(key, int(default))
        if value not in (0, 1):
            raise GraphError(f"attribute `{key}` must be 0 or 1, found {value}", node=self.name)
        return bool(value)

    def real(self, key: str, default: float) -> float:
        """A float32, `default` too, so that leaving it out changes nothing."""
        return float(np.float32(self.attrs.get(key, default)))

    def text(self, key: str, default: str = "") -> str:
        value = self.attrs.get(key, default)
        if not isinstance(value, str):
            raise GraphError(f"attribute `{key}` is not text: {value!r}", node=self.name)
        return value

    def integers(self, key: str) -> tuple[int, ...] | None:
        """Attribute `key`, None where it is missing."""
        value = self.attrs.get(key)
        return None if value is None else tuple(int(v) for v in value)


def ir_name(tensor: str) -> str:
    """A tensor's name as that of an IR node, where `name:number` means a value."""
    return _INDEXED.sub("_", tensor) or "tensor"
