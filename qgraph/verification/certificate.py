"""The certificate of a quantized network: proofs, measurements, and the cases that were run.

Bounds of accumulators are proved from the weights. Saturation is measured on samples. Equality is
shown by running each form and the integer reference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from qgraph.backends.network_forms import Network
from qgraph.exact.sums import FLOAT32_EXACT, FLOAT64_EXACT
from qgraph.exports import index_of
from qgraph.files import sha256_of
from qgraph.ir.types import Overflow, Rounding
from qgraph.npz import hash_of
from qgraph.program.accumulators import Accumulator, accumulators
from qgraph.program.islands import IslandEntry, islands
from qgraph.program.ops import RequantizeAttrs
from qgraph.quant.profile import Profile
from qgraph.records import OMITTED, KeyedRecord
from qgraph.stored.manifest import read_manifest
from qgraph.stored.write import versions
from qgraph.verification.compare import Compared, Difference, DifferenceTally, Saturation, in_order

FORMAT = 2


@dataclass(frozen=True)
class Hashes:
    """SHA-256 of the graph as text, the profile, the weights' codes, and the samples.

    `exported` has those of the files of an export, by name, if these were verified.
    """

    graph: str | None
    profile: str | None
    inference: str | None
    weights: str
    inputs: str
    exported: Mapping[str, str] | None = field(default=None, metadata=OMITTED)


@dataclass(frozen=True)
class ComparedForm:
    """Comparison of one form, with the first element that differs, if any.

    `executor` is the program that ran the form, with its version; absent for qgraph itself. `fault`
    is why codes could not be compared, or what else differs. `island_codes` were made by the form
    itself from float islands, in a whole run of its files, and `moved_codes` of them are one step
    from the reference's.
    """

    compared: bool  # true
    tensors: int
    elements: int
    differences: int
    first: Sequence[Difference]
    seconds: float
    island_codes: int = field(default=0, metadata=OMITTED)
    moved_codes: int = field(default=0, metadata=OMITTED)
    executor: str | None = field(default=None, metadata=OMITTED)
    fault: str | None = field(default=None, metadata=OMITTED)

    @property
    def equal(self) -> bool:
        return not self.differences and not self.fault


@dataclass(frozen=True)
class SkippedForm:
    """A form that was not compared, and why."""

    compared: bool  # false
    reason: str


@dataclass(frozen=True)
class Simulation:
    """Whether a float type holds the sums of a layer exactly."""

    exact: bool
    why: str


@dataclass(frozen=True)
class AccumulatorEntry:
    """Bounds on the sums of a layer, proved from its weights."""

    layer: str
    op: str
    terms: int
    lowest: int
    highest: int
    partial_sums: int
    channel: int
    bits: int
    bits_before_bias: int
    bits_with_bias: int
    bits_by_channel: Sequence[int]
    profile_bits: int
    wraps: bool
    float32: Simulation
    float64: Simulation


@dataclass(frozen=True)
class RequantizationEntry:
    """A requantization, and the number of its results that saturated on samples."""

    tensor: str
    shift: int | Sequence[int]
    rounding: Rounding
    overflow: Overflow
    range: tuple[int, int]
    saturated: Saturation | None


@dataclass(frozen=True)
class Certificate(KeyedRecord):
    """The content of certificate.json; `cases` has the number of inputs of each kind."""

    format: int
    versions: Mapping[str, str]
    hashes: Hashes
    profile: str
    equal: bool
    cases: Mapping[str, int]
    forms: Mapping[str, ComparedForm | SkippedForm]
    accumulators: Sequence[AccumulatorEntry]
    requantizations: Sequence[RequantizationEntry]
    islands: Sequence[IslandEntry] = field(default=(), metadata=OMITTED)


def certificate(
    folder: Path,
    network: Network,
    compared: Compared,
    refused: Mapping[str, str],
    exported: Path | None = None,
) -> Certificate:
    """The certificate of `network`.

    refused: forms that were not compared, and why. exported: the export whose files were verified.
    """
    program = network.program
    return Certificate(
        FORMAT,
        versions(),
        hashes(folder, network, exported),
        network.profile.name,
        bool(compared.tallies) and all(t.equal for t in compared.tallies.values()),
        compared.cases,
        {
            **{name: _form(network, tally) for name, tally in compared.tallies.items()},
            **{name: SkippedForm(False, why) for name, why in refused.items()},
        },
        [_accumulator(a, network.profile) for a in accumulators(program)],
        [
            _requantization(step.output, step.attrs, compared.saturation.get(step.output))
            for step in program.steps
            if isinstance(step.attrs, RequantizeAttrs)
        ],
        [island.facts() for island in islands(network.graph, program)],
    )


def hashes(folder: Path, network: Network, exported: Path | None = None) -> Hashes:
    files = read_manifest(folder).files
    return Hashes(
        files.get("graph.txt"),
        files.get("profile.yaml"),
        files.get("inference.pb"),
        hash_of(network.program.constants),
        hash_of(network.samples or network.sample),
        None
        if exported is None
        else {n: sha256_of(exported / n) for n in index_of(exported).files},
    )


def _form(network: Network, tally: DifferenceTally) -> ComparedForm:
    first = list(in_order(network, tally.differences))[:1]
    seconds = round(tally.seconds, 3)
    return ComparedForm(
        True,
        len(tally.tensors),
        tally.elements,
        tally.wrong,
        first,
        seconds,
        tally.island_codes,
        tally.moved_codes,
        tally.executor or None,
        tally.fault or None,
    )


def _accumulator(found: Accumulator, profile: Profile) -> AccumulatorEntry:
    return AccumulatorEntry(
        layer=found.layer,
        op=found.op,
        terms=found.terms,
        lowest=int(found.lows.min()),
        highest=int(found.highs.max()),
        partial_sums=found.magnitude,
        channel=found.channel,
        bits=found.width,
        bits_before_bias=found.width_of_products,
        bits_with_bias=found.width_with_bias,
        bits_by_channel=found.widths.tolist(),
        profile_bits=profile.accumulator_bits,
        wraps=profile.accumulator_wraps and found.width > profile.accumulator_bits,
        float32=_simulates(found.magnitude, FLOAT32_EXACT, "2^24"),
        float64=_simulates(found.magnitude, FLOAT64_EXACT, "2^53"),
    )


def _simulates(magnitude: int, limit: int, name: str) -> Simulation:
    side = "at most" if magnitude <= limit else "which is more than"
    return Simulation(magnitude <= limit, f"partial sums reach {magnitude}, {side} {name}")


def _requantization(
    tensor: str, attrs: RequantizeAttrs, found: Saturation | None
) -> RequantizationEntry:
    return RequantizationEntry(
        tensor,
        np.asarray(attrs.shift).tolist(),
        attrs.rounding,
        attrs.overflow,
        (attrs.low, attrs.high),
        found,
    )
