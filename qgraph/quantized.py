"""The result of `qgraph.quantize`."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from pathlib import Path

from qgraph.fixed_point_network import FixedPointNetwork
from qgraph.ir.ops.linear import COMPUTE
from qgraph.notebook import table_html
from qgraph.words import counted


@dataclass(frozen=True, repr=False)
class Quantized(FixedPointNetwork):
    """A network in fixed point, with all that is known of it.

    Attributes:
        graph: The quantized, calibrated graph; `print` shows its text.
        floating: The float graph that it stands for, with passes applied.
        profile: The target.
        calibration: What calibration saw of each tensor.
        trace: What each pass rewrote or refused, and why.
        bounds: The range of the codes of each value, and of the sums of each layer.
        measured: The difference of both graphs on the samples `few`.
        sample: Calibration inputs, one batch, whose codes are saved.
        few: Samples that `measured` is from; none without calibration data.
        facts: What was chosen, tried and warned of, for the manifest.
        cautions: Those of `facts.warnings` that come from what was measured.
        original: The float network before any step of the plan; `floating` where it is None.

    Example:
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
        """The SQNR at the first quantizer behind a layer that was measured."""
        while name not in self.sqnr:
            users = self.graph.users(name)
            if len(users) != 1:
                return None
            name = users[0].name
        return self.sqnr[name]

    def save(self, path: str | Path, *, force: bool = False) -> Path:
        """Write the output directory, whole or not at all.

        Args:
            path: A directory, new or empty.
            force: Replace what an earlier run wrote there.

        Returns:
            The path.

        Raises:
            OutputError: Something else is there, or it cannot be written.

        Example:
            >>> result = qgraph.quantize("model.pb", "calib.npz", effort="plain")
            >>> print(result.save("plain", force=True))
            plain
        """
        from qgraph.artifacts import save

        return save(self, Path(path), force=force)


def _decibel(value: float | None) -> str:
    """`exact` without noise; empty if it was not measured."""
    return "" if value is None else f"{value:.1f}" if isfinite(value) else "exact"
