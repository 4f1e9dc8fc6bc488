"""Facts of a quantized network: its source, how it was made, and how close it is to float.

Every output directory has them in its manifest. None stands for values that were not measured and,
in decibels, for no noise at all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from qgraph.choices import Effort
from qgraph.quant.bits import Budget
from qgraph.quant.domain import Domain
from qgraph.quant.plan import Plan
from qgraph.records import FLAT, OMITTED, KeyedRecord
from qgraph.static.agreement import Agreement
from qgraph.train.record import TrainingRecord

NO_SIGNAL = -300.0  # dB; no measurement is as low


def decibels(value: float) -> float | None:
    """The value for JSON; None, which means no noise, for infinity.

    Without a signal, or for NaN, the value is `NO_SIGNAL`.
    """
    if value == math.inf:
        return None
    return value if math.isfinite(value) else NO_SIGNAL


@dataclass(frozen=True)
class DomainFacts:
    """Distance of samples from the training data; `warning` is empty if they are close."""

    domain: Domain = field(metadata=FLAT)
    warning: str


@dataclass(frozen=True)
class SampleFacts:
    """`data_free`: assumptions about inputs without data. `inputs_seen`: the range of each
    input. `input_doubts`: warnings about these ranges.
    """

    data_free: Mapping[str, str] | None
    domain: DomainFacts | None
    inputs_seen: Mapping[str, tuple[float, float]]
    input_doubts: Sequence[str]


@dataclass(frozen=True)
class AgreementFacts:
    """An `Agreement`; `held_out`: whether calibration did not use the samples."""

    sqnr: float | None
    top1: float | None
    samples: int
    held_out: bool

    @classmethod
    def of(cls, found: Agreement, held_out: bool) -> AgreementFacts:
        return cls(decibels(found.sqnr), found.top1, found.samples, held_out)

    @property
    def measured(self) -> Agreement:
        sqnr = math.inf if self.sqnr is None else self.sqnr
        return Agreement(sqnr, self.top1, self.samples)


@dataclass(frozen=True)
class TrialFacts:
    """A plan that was tried, and its result."""

    plan: Plan
    agreement: Agreement


@dataclass(frozen=True)
class PointFacts:
    """Bits by layer and their result. `front`: no point is both smaller and closer to float."""

    weight_bytes: int
    mean_bits: float
    sqnr_db: float | None
    top1: float | None
    uniform: bool
    front: bool
    kept: bool
    bits: Mapping[str, int]


@dataclass(frozen=True)
class MixedFacts:
    """A search for bits layer by layer; `weights`: the number of weights of each layer."""

    samples: int
    weights: Mapping[str, int]
    points: Sequence[PointFacts]
    budget: Budget | None = field(default=None, metadata=OMITTED)


@dataclass(frozen=True)
class ChoiceFacts:
    """The plan that the network was built by, and the other plans that were tried."""

    effort: Effort
    plan: Plan
    plan_spec: str
    trials: Sequence[TrialFacts]
    mixed: MixedFacts | None = field(default=None, metadata=OMITTED)


@dataclass(frozen=True)
class PartFacts:
    """Cost of a layer at the outputs: only it quantized, all except it, all up to it.

    The worst also have `where_db`, the SQNR with only the weights (and bias) or only the output
    quantized, and `reasons`, the most likely first.
    """

    layer: str
    op: str
    sqnr_db: float | None
    top1: float | None
    all_but_sqnr_db: float | None
    all_but_top1: float | None
    so_far_sqnr_db: float | None
    so_far_top1: float | None
    samples: int
    where_db: Mapping[str, float | None] = field(default_factory=dict)
    reasons: Sequence[str] = ()


@dataclass(frozen=True)
class Facts(KeyedRecord):
    """All facts of a network."""

    model: str
    model_sha256: str | None
    calibration_samples: int
    samples: SampleFacts = field(metadata=FLAT)
    choice: ChoiceFacts = field(metadata=FLAT)
    exponents: str | None
    passes: str
    warnings: Sequence[str]
    notes: Sequence[str]
    agreement: AgreementFacts | None
    training: TrainingRecord | None = None
    sensitivity: Sequence[PartFacts] | None = field(default=None, metadata=OMITTED)
