"""The kinds of quantizers that are compared, each described once.

Runs, tables, the page of results and tests read this list.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.quantizers.compared import ComparedQuantizers, QuantizerPair
from benchmarks.quantizers.single import (
    FakeQuant,
    Lsq,
    MaxWeights,
    MovingRange,
    Pact,
    RangeOfChannels,
    RangeOfWeights,
    RealTqt,
)
from qgraph.choices import Learning, WeightMethod
from qgraph.compiler import TO_TRAIN
from qgraph.ir.types import Array
from qgraph.quant.plan import Plan
from qgraph.train.freezing import Freezing
from qgraph.train.kind import QuantizerKind, RateUnits
from qgraph.train.options import Options
from qgraph.train.tqt import TQT


@dataclass(frozen=True)
class Compared:
    """A kind of quantizers, with its calibration and its training.

    both: the quantizers, unless they are those of TQT. quantized: False for the float network.
    by_tfmot: whether TFMOT trains it, with 8 bits, instead of this trainer.
    """

    kind: QuantizerKind
    both: QuantizerPair | None = None
    plan: Plan = TO_TRAIN
    per_channel: bool = False
    learn: Learning = Learning.ALL
    quantized: bool = True
    by_tfmot: bool = False

    @property
    def name(self) -> str:
        """The name of the kind."""
        return self.kind.name

    def kind_for(self, sample: Mapping[str, Array]) -> QuantizerKind:
        """The kind, with quantizers that start from a sample of inputs."""
        if self.both is None:
            return self.kind
        name, both = self.name, self.both
        return replace(
            self.kind, quantizers=lambda graph: ComparedQuantizers(graph, name, both, sample)
        )


def _normed(options: Options, freezing: Freezing, units: RateUnits) -> Any:
    from benchmarks.quantizers.normed import normed_descent

    return normed_descent(options, freezing, units)


def _real_scale_kind(
    name: str, title: str, scale: str, gradient: str, start: str, source: str
) -> QuantizerKind:
    """A kind whose result cannot be expressed in integers."""
    kind = replace(TQT, name=name, title=title, scale=scale, gradient=gradient)
    return replace(kind, start=start, source=source, integers=False)


LARGEST = replace(TO_TRAIN, weights=WeightMethod.MAX)
JAIN, KRISHNAMOORTHI = "Jain et al., 2019", "Krishnamoorthi, 2018; Jacob et al., 2017"

FLOAT = Compared(
    _real_scale_kind("float", "float", "none", "none", "none", f"{JAIN}, section 5.3"),
    quantized=False,
)
PER_TENSOR = Compared(TQT)
FIXED = Compared(
    replace(
        TQT, name="fixed", title="thresholds fixed", gradient="none",
        start="weights by MAX, activations by KL-J", source=f"{JAIN}, table 2",
    ),
    plan=LARGEST, learn=Learning.WEIGHTS,
)  # fmt: skip
QAT_CHANNEL = Compared(
    _real_scale_kind(
        "qat-channel", "Google's QAT, per channel",
        "real; activations with a zero point, weights symmetric per channel",
        "none: activations by moving averages of their extremes, weights by MAX",
        "extremes", KRISHNAMOORTHI,
    ),
    QuantizerPair(RangeOfChannels, MovingRange),
)  # fmt: skip
QAT_TENSOR = Compared(
    _real_scale_kind(
        "qat-tensor", "Google's QAT, per tensor", "real, with a zero point",
        "none: moving averages of extremes", "extremes", KRISHNAMOORTHI,
    ),
    QuantizerPair(RangeOfWeights, MovingRange),
)  # fmt: skip

KINDS: tuple[Compared, ...] = (
    FLOAT,
    FIXED,
    PER_TENSOR,
    Compared(
        replace(
            TQT, name="tqt-max", title="TQT from MAX", start="weights by MAX, activations by KL-J"
        ),
        plan=LARGEST,
    ),
    Compared(
        replace(
            TQT, name="tqt-percentile", title="TQT from percentiles",
            start="weights by the percentile 99, activations by KL-J",
        ),
        plan=replace(TO_TRAIN, weights=WeightMethod.PERCENTILE),
    ),
    Compared(
        replace(
            TQT, name="tqt-normed", title="TQT, normed gradients",
            gradient="of log2 t, normed (17, 18), without Adam",
            source=f"{JAIN}, equations 17 and 18", optimizer=_normed,
        )
    ),
    Compared(
        replace(
            TQT, name="tqt-channel", title="TQT per channel",
            scale="a power of two, one for each channel of weights",
        ),
        per_channel=True,
    ),
    Compared(
        _real_scale_kind(
            "tqt-real", "TQT, real scales", "real", "of log2 t through rounding (7)",
            "as TQT", f"{JAIN}, equation 14",
        ),
        QuantizerPair(RealTqt, RealTqt),
    ),
    Compared(
        _real_scale_kind(
            "lsq", "LSQ", "real", "of the step through rounding, clipped before it",
            "2 mean|x| / sqrt(Q_P)", "Esser et al., 2019, equations 1 to 5",
        ),
        QuantizerPair(Lsq, Lsq),
    ),
    Compared(
        _real_scale_kind(
            "pact", "PACT", "real; weights by MAX",
            "of the limit, by clipped values alone, with an L2 penalty",
            "the largest magnitude", "Choi et al., 2018, equations 1 to 3",
        ),
        QuantizerPair(MaxWeights, Pact),
    ),
    Compared(
        _real_scale_kind(
            "fakequant", "FakeQuant, trained", "real, with a zero point",
            "of minimum and maximum, by clipped values alone (11)",
            "extremes", "TensorFlow; Jain et al., equation 11",
        ),
        QuantizerPair(FakeQuant, FakeQuant),
    ),
    QAT_TENSOR,
    QAT_CHANNEL,
    Compared(replace(QAT_CHANNEL.kind, name="tfmot", title="TFMOT"), by_tfmot=True),
)  # fmt: skip
BY_NAME = {compared.name: compared for compared in KINDS}
