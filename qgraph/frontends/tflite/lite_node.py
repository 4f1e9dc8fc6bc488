"""TensorFlow ops that stand for an operator of a `.tflite` file."""

from __future__ import annotations

from dataclasses import dataclass

from qgraph.frontends.tf.node import TFNode
from qgraph.ir.types import Shape


@dataclass(frozen=True)
class LiteNode(TFNode):
    """A node with attributes as values of Python. `operator` is the file's name of the op."""

    operator: str = ""

    @property
    def label(self) -> str:
        return self.operator

    def value_as_text(self, key: str) -> str:
        return str(self.attrs[key])

    def may_ignore(self, key: str) -> bool:
        """Operators are written with attributes that differ from the defaults, so never."""
        return False

    def integer(self, key: str, default: int = 0) -> int:
        return int(self.attrs[key]) if self.has(key) else default

    def real(self, key: str, default: float) -> float:
        return float(self.attrs[key]) if self.has(key) else super().real(key, default)

    def flag(self, key: str, default: bool = False) -> bool:
        return bool(self.attrs[key]) if self.has(key) else default

    def text(self, key: str, default: str = "") -> str:
        return str(self.attrs[key]) if self.has(key) else default

    def texts(self, key: str) -> tuple[str, ...]:
        return tuple(self.attrs[key]) if self.has(key) else ()

    def integers(self, key: str, default: tuple[int, ...] = ()) -> tuple[int, ...]:
        return (tuple(int(i) for i in self.attrs[key]) if self.has(key) else ()) or default

    def dtype(self, key: str = "T", default: str = "float32") -> str:
        return str(self.attrs[key]) if self.has(key) else default

    def function(self, key: str) -> str:
        """The number of the subgraph in attribute `key`."""
        return str(self.attrs[key])

    def shape(self, key: str = "shape") -> Shape | None:
        return tuple(self.attrs[key]) if self.has(key) else None

    def recorded_shape(self) -> Shape | None:
        return None
