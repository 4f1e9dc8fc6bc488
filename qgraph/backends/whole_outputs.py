"""Outputs of a network behind float ops, to compare files with."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from qgraph.backends.network_forms import Network
from qgraph.errors import ExactnessError
from qgraph.exact.reference import Reference, as_float
from qgraph.ir.types import Array, Fixed


def check_outputs(network: Network, found: Mapping[str, Array], codes: Mapping[str, Array]) -> None:
    """Compare outputs of a file with those of the network, on its sample.

    codes: of entries behind float islands, as the file made them; the network begins with these.
    Float ops differ between libraries in the last digits. Raises ExactnessError for larger errors.
    """
    for public, wanted in _outputs(network, codes).items():
        tolerance = 1e-3 * float(np.max(np.abs(wanted), initial=0))
        if not np.allclose(found[public], wanted, rtol=1e-2, atol=tolerance):
            raise ExactnessError("the file gives other values than the network", node=public)


def _outputs(network: Network, codes: Mapping[str, Array]) -> Mapping[str, Array]:
    reference, feeds = Reference(network.graph), dict[str, Array | Fixed](network.sample)
    for entry in (e for e in network.program.entries if e.segment):
        exponent = network.program.tensors[entry.tensor].exponent
        held = exponent if isinstance(exponent, int) else np.asarray(exponent, np.int64)
        feeds[entry.tensor] = Fixed(codes[entry.tensor], held)
    values = reference.run(feeds, {*network.graph.outputs.values()})
    return {public: as_float(values[name]) for public, name in network.graph.outputs.items()}
