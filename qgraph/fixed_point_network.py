"""A quantized network with all that is known of it: what its output directory is written from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from qgraph.exact.bounds import Bound
from qgraph.exact.compare import Measured
from qgraph.exact.reference import Reference
from qgraph.ir.graph import Graph
from qgraph.ir.types import Array
from qgraph.quant.calibrate import Calibration
from qgraph.quant.exponents import Exponents, exponents_of
from qgraph.quant.profile import Profile
from qgraph.rewrite.trace import Trace
from qgraph.static.facts import Facts
from qgraph.transforms.scale_inputs import scaled_features


@dataclass(frozen=True, repr=False)
class FixedPointNetwork:
    """A network in fixed point, with all that is known of it.

    `graph` is quantized and calibrated, `floating` the float graph it stands for (passes applied),
    `measured` how far one is from the other, on the samples `few` (none where they were invented);
    `sample` the calibration inputs (one batch) whose codes are saved. `cautions` are those of
    `facts.warnings` that come from what was measured of this result. `original` is the float
    network before any step of the plan and before training; `floating` where it is None.
    """

    graph: Graph
    floating: Graph
    profile: Profile
    calibration: Calibration
    trace: Trace
    bounds: Mapping[str, Bound]
    measured: Measured
    sample: Mapping[str, Array]
    few: Mapping[str, Array]
    facts: Facts
    cautions: Sequence[str] = ()
    original: Graph | None = None

    @property
    def exponents(self) -> Exponents:
        """The exponents that calibration chose; `quantize` takes them, edited or not."""
        near = self.facts.agreement
        apart = near is not None and near.held_out
        plan = self.facts.choice.plan_spec
        return exponents_of(self.graph, scaled_features(self.floating), plan, apart)

    @property
    def sqnr(self) -> Mapping[str, float]:
        """In dB, by quantizer."""
        return self.measured.sqnr

    def reference(self) -> Reference:
        """The integer reference of this network."""
        return Reference(self.graph)
