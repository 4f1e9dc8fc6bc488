"""Quantizers of quantization-aware training (TFMOT), on activations: left out.

They are left out, so that the network can be quantized again. One whose range begins at 0 cuts off
negative values, and a ReLU takes its place. Those of constants are folded (`fold-opaque`), so
weights keep the values that they were trained to.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from qgraph.frontends.tf.builder import Importer, Result, TfSite

NOTE = (
    "the model has FakeQuant ops: those of activations were left out, and the network is quantized "
    "again, with powers of two"
)
DEFAULT_MIN = -6.0


def _of_inputs(site: TfSite) -> Result:
    lowest = site.constant(1)
    site.without_effect(2)
    if lowest is None or lowest.size != 1:
        return None
    return _left_out(site, float(lowest.reshape(-1)[0]))


def _of_attributes(site: TfSite) -> Result:
    return _left_out(site, site.node.real("min", DEFAULT_MIN))


def _left_out(site: TfSite, lowest: float) -> Result:
    site.without_effect("max", "num_bits", "narrow_range")
    if site.is_fixed(0):
        return None
    if NOTE not in site.builder.graph.notes:
        site.builder.graph.notes.append(NOTE)
    return site.emit("relu" if lowest >= 0 else "identity", site.inputs[0])


IMPORTERS: Mapping[str, Importer] = MappingProxyType(
    {"FakeQuantWithMinMaxVars": _of_inputs, "FakeQuantWithMinMaxArgs": _of_attributes}
)
