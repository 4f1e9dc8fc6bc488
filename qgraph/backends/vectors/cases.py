"""Content of vectors: runs of the whole network, and places of its layers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from qgraph.backends.network_forms import Network
from qgraph.errors import ExactnessError, UsageError
from qgraph.exact.reference import Reference
from qgraph.ir.types import Array, Codes, Fixed
from qgraph.program import Program
from qgraph.program.adversarial import adversarial_entries
from qgraph.program.extremes import Extreme, Unreached, claims_hold, extremes, stacked
from qgraph.program.layers import Layer, layers
from qgraph.program.places import Place, place_of


@dataclass(frozen=True)
class SampleRun:
    """One sample of the whole network: its description, and codes of its entries."""

    name: str
    about: str
    entries: Mapping[str, Codes]


@dataclass(frozen=True)
class ExtremeSamples:
    """A layer at one place, on extreme samples: every tensor, one row per sample."""

    place: Place
    found: Sequence[Extreme]
    missing: Sequence[Unreached]
    codes: Mapping[str, Codes]


def runs(network: Network, samples: int) -> Iterator[SampleRun]:
    """Calibration samples first, then the ends of the entries' ranges, then random codes."""
    for i, feeds in enumerate(_samples(network, samples)):
        values = Reference(network.graph).run(feeds, [e.tensor for e in network.program.entries])
        codes = {n: v.codes for n, v in values.items() if isinstance(v, Fixed)}
        yield SampleRun(f"sample{i}", "a calibration sample", codes)
    for label, entries in adversarial_entries(network.program).items():
        yield SampleRun(label.replace(" ", "_"), f"codes of entries: {label}", entries)


def _samples(network: Network, most: int) -> list[dict[str, Array]]:
    """Inputs with one sample each; if the batch is fixed, a whole batch counts as one."""
    data = network.samples if network.program.batch_free else network.sample
    data = data or network.sample
    if not network.program.batch_free:
        return [{**data}][:most] if data else []
    count = min((len(a) for a in data.values()), default=0)
    return [{n: a[i : i + 1] for n, a in data.items()} for i in range(min(count, most))]


def chosen(program: Program, names: Sequence[str]) -> list[Layer]:
    """The layers that compute the named tensors; all layers if no name is given."""
    every = layers(program)
    unknown = [n for n in names if not any(n in layer.made for layer in every)]
    if unknown:
        heads = ", ".join(layer.head.output for layer in every)
        raise UsageError(f"no layer computes `{unknown[0]}`", hint=f"layers: {heads}")
    return [one for one in every if not names or any(n in one.made for n in names)]


def extreme_samples(program: Program, layer: Layer) -> ExtremeSamples | str:
    """A layer on extreme samples, or the reason why it has none. Every goal is checked again."""
    place = place_of(program, layer)
    if isinstance(place, str):
        return place
    found, missing = extremes(place)
    if not found:
        return "it does not round, clip or sum"
    codes = stacked(place, found)
    for one, held in zip(found, claims_hold(place, found, codes), strict=True):
        if not held:
            raise ExactnessError(f"a vector does not reach its goal: {one.goal}", node=one.tensor)
    return ExtremeSamples(place, found, missing, codes)


def size(program: Program, names: Sequence[str]) -> int:
    """The number of elements of all these tensors."""
    return sum(math.prod(program.tensors[n].shape) for n in names)
