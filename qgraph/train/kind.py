"""Kinds of trainable quantizers: what a training graph needs to know of its own.

TQT (`qgraph/train/tqt.py`) is the kind of the product. Others are for comparison
(`benchmarks/quantizers/`): the same trainer runs them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from qgraph.foreign import KerasModel, Tensor, Variable
from qgraph.ir.graph import Graph
from qgraph.train.compact import InputCodes
from qgraph.train.forward import Chain, Override, Piece
from qgraph.train.freezing import Freezing
from qgraph.train.norms import Update
from qgraph.train.options import Options

RateUnits: TypeAlias = Sequence[tuple[Variable, float]]


@dataclass(frozen=True)
class Replacements:
    """Functions that run instead of the nodes that depend on scales, in one step.

    overrides: by op. chains: nodes that run as one op. pieces: by node. codes: how layers may store
    their inputs, by layer. updates: filled while the step runs, with variables that change and are
    not trained.
    """

    overrides: Mapping[str, Override]
    chains: Sequence[Chain] = ()
    pieces: Mapping[str, Piece] = field(default_factory=dict)
    codes: Mapping[str, InputCodes] = field(default_factory=dict)
    updates: Sequence[Update] = ()


class Quantizers(Protocol):
    """All quantizers of one training graph, with what they train.

    ranges: one float32 variable [n], trained. names: of its numbers. wide: nodes that inference
    computes in float64, for any weights.
    """

    ranges: Variable
    wide: frozenset[str]

    @property
    def names(self) -> tuple[str, ...]: ...

    @property
    def frozen_at_once(self) -> int:
        """How many ranges are frozen together; 0 if they are not to be frozen."""
        ...

    def variables(self) -> dict[str, Variable]:
        """All variables, by names that do not change between versions."""
        ...

    def replacements(
        self, pieces: Mapping[str, Piece], wanted: Collection[str] | None
    ) -> Replacements:
        """The functions for the current ranges. pieces: of every node. wanted: as in `values`."""
        ...

    def penalty(self) -> Tensor:
        """A term of the loss."""
        ...

    def finalize(self, graph: Graph) -> None:
        """Give each quantizer of `graph` its current exponent.

        Raises UnsupportedError if the ranges do not end in integers.
        """
        ...


@dataclass(frozen=True)
class QuantizerKind:
    """A kind of trainable quantizer. Tables, messages and tests are derived from these fields.

    name: in options and checkpoints. title: in tables. scale: form of its scales. gradient: of what
    it trains. start: of what it trains. source: paper or program, with equations. integers: whether
    a trained network ends in integers. quantizers: makes them for a calibrated graph. optimizer:
    makes the optimizer of weights and ranges, with units of rates (`rate_units`).
    """

    name: str
    title: str
    scale: str
    gradient: str
    start: str
    source: str
    integers: bool
    quantizers: Callable[[Graph], Quantizers]
    optimizer: Callable[[Options, Freezing, RateUnits], KerasModel]
