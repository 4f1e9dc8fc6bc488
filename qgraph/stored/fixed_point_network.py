"""A quantized network, with all facts that its output directory stores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from qgraph.exact.bounds import Bound
from qgraph.exact.compare import Measured
from qgraph.exact.reference import Reference
from qgraph.ir.graph import Graph
from qgraph.ir.types import Array
from qgraph.quant.calibrate import Calibration
from qgraph.quant.exponents import Exponents, exponents_of
from qgraph.quant.kept_scales import has_kept_scales
from qgraph.quant.profile import Profile
from qgraph.rewrite.trace import Trace
from qgraph.static.facts import Facts
from qgraph.transforms.scale_inputs import scaled_features


@dataclass(frozen=True, repr=False)
class FixedPointNetwork:
    """A quantized network, and the facts that were measured on it.

    `Quantized` documents the fields. If samples were generated, `measured_samples` is empty.
    Training changes `floating`, but not `original`.
    """

    graph: Graph
    floating: Graph
    profile: Profile
    calibration: Calibration
    trace: Trace
    bounds: Mapping[str, Bound]
    measured: Measured
    sample: Mapping[str, Array]
    measured_samples: Mapping[str, Array]
    facts: Facts
    measured_warnings: Sequence[str] = ()
    original: Graph | None = None

    @property
    def exponents(self) -> Exponents:
        """The exponent of each tensor, for `quantize(exponents=...)`, edited or not."""
        near = self.facts.agreement
        held_out = near is not None and near.held_out
        plan = self.facts.choice.plan_spec
        found = exponents_of(self.graph, scaled_features(self.floating), plan, held_out)
        return replace(found, kept_scales=has_kept_scales(self.floating))

    @property
    def sqnr(self) -> Mapping[str, float]:
        """The signal-to-quantization-noise ratio after each quantizer, in dB, by its name."""
        return self.measured.sqnr

    def reference(self) -> Reference:
        """The integer reference of this network: it computes every tensor with integers in numpy.

        Returns:
            The reference; its `outputs(feeds)` gives the outputs by name.

        Examples:
            >>> import numpy as np
            >>> result = qgraph.quantize("model.pb", "calib.npz", effort="plain")
            >>> images = np.load("test.npz")["image"][:2]
            >>> result.reference().outputs({"image": images})["probabilities"].shape
            (2, 10)
        """
        return Reference(self.graph)
