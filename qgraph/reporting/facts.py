"""Content of a report as records, for the page and `--json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from qgraph.choices import CalibrationMethod, Effort
from qgraph.evaluation.record import EvaluationRecord
from qgraph.ir.types import Role
from qgraph.records import FLAT
from qgraph.runtime.part_times import PartTime
from qgraph.static.agreement import Agreement
from qgraph.static.facts import AgreementFacts, DomainFacts, MixedFacts, PartFacts
from qgraph.stored.manifest import Exponent, FloatOpEntry, LayerEntry, StatisticsEntry, TensorEntry
from qgraph.train.record import TrainingRecord
from qgraph.verification.certificate import ComparedForm, SkippedForm


@dataclass(frozen=True)
class Summary:
    """Facts of the whole network: its source, how it was made, and measurements."""

    model: str
    model_sha256: str | None
    calibration_samples: int
    calibration_method: CalibrationMethod
    versions: Mapping[str, str]
    profile: str
    profile_description: str
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    measured_samples: int
    outputs_sqnr_db: Mapping[str, float | None]
    agreement: AgreementFacts | None
    effort: Effort
    warnings: Sequence[str]
    notes: Sequence[str]
    data_free: Mapping[str, str] | None
    domain: DomainFacts | None
    inputs_seen: Mapping[str, tuple[float, float]]
    input_doubts: Sequence[str]
    training: TrainingRecord | None
    plan: str
    biases_corrected: bool
    plan_spec: str


@dataclass(frozen=True)
class TensorFacts:
    """A quantizer and statistics of its input; `clipped`: share of elements beyond its range."""

    entry: TensorEntry = field(metadata=FLAT)
    elements: int
    statistics: StatisticsEntry | None = field(default=None, metadata=FLAT)
    clipped: float | None = None


@dataclass(frozen=True)
class InputFacts:
    """A quantizer at a layer's input, and the id of the layer whose output it is, if any."""

    tensor: TensorFacts = field(metadata=FLAT)
    layer: str | None


@dataclass(frozen=True)
class LayerFacts:
    """A layer. `so_far_...` are the outputs if all layers up to it are quantized."""

    entry: LayerEntry = field(metadata=FLAT)
    reasons: Sequence[str] | None
    so_far_sqnr_db: float | None
    so_far_top1: float | None
    id: str
    clipped: float | None
    input_sqnr_db: float | None
    input_tensors: Sequence[InputFacts]
    weight_tensor: TensorFacts | None
    output_tensor: TensorFacts | None


@dataclass(frozen=True)
class MemberFacts:
    """A quantizer of a scale group: its own finest exponent, and the cost of the shared one."""

    name: str
    role: Role
    bits: int
    exponent: Exponent
    sqnr_db: float | None
    max_exponent: int | None
    lost_bits: int
    cost_db: float | None


@dataclass(frozen=True)
class ForcedBy:
    """An op whose inputs must share one scale."""

    node: str
    op: str
    members: Sequence[str]


@dataclass(frozen=True)
class GroupFacts:
    """Quantizers that share a scale, and why."""

    name: str
    id: str
    exponent: Exponent
    inside_layer: bool
    widest: str | None
    forced_by: Sequence[ForcedBy]
    members: Sequence[MemberFacts]
    lost_bits: int


@dataclass(frozen=True)
class TrialShown:
    """A plan that was tried, in words and as text for --plan, with its agreement."""

    agreement: Agreement = field(metadata=FLAT)
    plan: str
    plan_spec: str


@dataclass(frozen=True)
class RewriteShown:
    """A rewrite, without the elements of constants."""

    rule: str
    node: str
    before: str
    after: str


@dataclass(frozen=True)
class PassShown:
    """The rewrites of a pass."""

    pass_: str
    count: int
    rewrites: Sequence[RewriteShown]


@dataclass(frozen=True)
class RefusalShown:
    """The nodes that a pass did not change for the same reason."""

    pass_: str
    reason: str
    nodes: Sequence[str]


@dataclass(frozen=True)
class CertificateShown:
    """Result of `qgraph verify`."""

    equal: bool
    cases: Mapping[str, int]
    forms: Mapping[str, ComparedForm | SkippedForm]


@dataclass(frozen=True)
class NextStep:
    """Advice: what to do and why, the anchor of that part of the page, and commands."""

    what: str
    why: str
    anchor: str = ""
    commands: Sequence[str] = ()


@dataclass(frozen=True)
class ReportFacts:
    """The whole report; `next` is advice, the most urgent first."""

    summary: Summary
    layers: Sequence[LayerFacts]
    scale_groups: Sequence[GroupFacts]
    float_ops: Sequence[FloatOpEntry]
    sensitivity: Sequence[PartFacts] | None
    mixed: MixedFacts | None
    trials: Sequence[TrialShown]
    rewrites: Sequence[PassShown]
    refusals: Sequence[RefusalShown]
    certificate: CertificateShown | None
    evaluation: EvaluationRecord | None = None
    parts: Sequence[PartTime] = ()
    verdict: str = ""
    next: Sequence[NextStep] = ()
