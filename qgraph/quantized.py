"""The result of `qgraph.quantize`, and the measurements that belong to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path

from qgraph.choices import CalibrationMethod
from qgraph.exact.bounds import Bound, bounds, check_accumulators
from qgraph.exact.compare import measure, measure_constants
from qgraph.ir.graph import Graph
from qgraph.ir.ops.linear import COMPUTE
from qgraph.ir.types import Array
from qgraph.notebook import table_html
from qgraph.passes import PassManager
from qgraph.quant.calibrate import Calibration
from qgraph.quant.profile import Profile
from qgraph.rewrite.trace import Trace
from qgraph.static.cautions import of_result
from qgraph.static.facts import Facts
from qgraph.stored.fixed_point_network import FixedPointNetwork
from qgraph.transforms.wrap_accumulators import WrapAccumulators
from qgraph.words import counted


@dataclass(frozen=True, repr=False)
class Quantized(FixedPointNetwork):
    """A quantized network, and the facts that were measured on it.

    Attributes:
        graph: The quantized, calibrated graph; `print` shows its text.
        floating: The float graph that it was made from, with passes applied.
        profile: The target profile.
        calibration: Ranges and histograms that calibration measured for each tensor.
        trace: The rewrites and refusals of each pass, with reasons.
        bounds: The range of the codes of each value, and of the sums of each layer.
        measured: The difference of both graphs on `measured_samples`.
        sample: One batch of calibration inputs, whose codes are saved.
        measured_samples: The samples of `measured`; empty without calibration data.
        facts: Choices, trials and warnings, for the manifest.
        measured_warnings: The entries of `facts.warnings` that follow from measurements.
        original: The float network before any step of the plan; None if it is `floating`.

    Examples:
        >>> qgraph.quantize("model.pb", "calib.npz", effort="plain")
        Quantized(model, graffitist-int8, 12 layers, ... dB at the outputs)
    """

    def __repr__(self) -> str:
        agreement = self.facts.agreement
        near = "" if agreement is None else f", {_decibel(agreement.sqnr)} dB at the outputs"
        layers = counted(len(self._layers()), "layer")
        return f"Quantized({self.graph.name}, {self.profile.name}, {layers}{near})"

    def _repr_html_(self) -> str:
        rows = [
            (name, op, self.bounds[name].exact_in, _decibel(db)) for name, op, db in self._layers()
        ]
        return table_html(repr(self), ("layer", "op", "sums are exact in", "SQNR, dB"), rows)

    def _layers(self) -> list[tuple[str, str, float | None]]:
        """Name, op and SQNR of each layer."""
        nodes = (node for node in self.graph.topological() if node.name in self.bounds)
        return [(n.name, n.op, self._sqnr_behind(n.name)) for n in nodes if n.op in COMPUTE]

    def _sqnr_behind(self, name: str) -> float | None:
        """The SQNR at the first quantizer after a layer that was measured."""
        while name not in self.sqnr:
            users = self.graph.users(name)
            if len(users) != 1:
                return None
            name = users[0].name
        return self.sqnr[name]

    def save(self, path: str | Path, *, force: bool = False) -> Path:
        """Write the output directory, completely or not at all.

        Args:
            path: A directory, new or empty.
            force: Whether to replace the files of an earlier run.

        Returns:
            The path.

        Raises:
            OutputError: The directory contains other files, or cannot be written.

        Examples:
            >>> result = qgraph.quantize("model.pb", "calib.npz", effort="plain")
            >>> print(result.save("plain", force=True))
            plain
        """
        from qgraph.stored.write import save

        return save(self, Path(path), force=force)


def finished(
    graph: Graph,
    floating: Graph,
    profile: Profile,
    method: CalibrationMethod,
    trace: Trace,
    sample: Mapping[str, Array],
    measured_samples: Mapping[str, Array],
    facts: Facts,
) -> Quantized:
    """The result for a calibrated `graph`: its bounds, and its noise against `floating`.

    The noise is measured on `measured_samples`. If it is too high, `facts.warnings` reports it.
    """
    found = _bounded(graph, profile, trace)
    measured = (
        measure(graph, floating, measured_samples) if measured_samples else measure_constants(graph)
    )
    near = None if facts.agreement is None else facts.agreement.measured
    warnings = of_result(graph, near, measured, trained=facts.training is not None)
    facts = replace(facts, warnings=[*facts.warnings, *warnings])
    options = Calibration(method)
    return Quantized(
        graph,
        floating,
        profile,
        options,
        trace,
        found,
        measured,
        sample,
        measured_samples,
        facts,
        warnings,
    )


def _bounded(graph: Graph, profile: Profile, trace: Trace) -> Mapping[str, Bound]:
    """The bounds of all sums. Accumulators wrap if the profile allows it; else they are checked."""
    if profile.accumulator_wraps:
        PassManager((WrapAccumulators(profile.accumulator_bits),)).run(graph, trace)
        return bounds(graph)
    found = bounds(graph)
    check_accumulators(graph, found, profile.accumulator_bits)
    return found


def _decibel(value: float | None) -> str:
    """`exact` without noise; empty if it was not measured."""
    return "" if value is None else f"{value:.1f}" if isfinite(value) else "exact"
