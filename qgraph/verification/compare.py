"""Compare forms with the integer reference, tensor by tensor."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from qgraph.backends.network_forms import Network, Runner
from qgraph.errors import ExactnessError, GraphError
from qgraph.exact.reference import Reference
from qgraph.ir.types import Array, Codes, Exponent, Fixed
from qgraph.program.ops import RequantizeAttrs
from qgraph.verification.cases import Case

NO_RUNS: Mapping[str, Mapping[str, Array]] = MappingProxyType({})
WHOLE_RUN = "whole run"


@dataclass(frozen=True)
class Difference:
    """The first wrong element of a tensor: its index (sample first), and both codes."""

    tensor: str
    count: int
    index: tuple[int, ...]
    actual: int | float  # a float between two codes, from a file with a wrong scale
    expected: int
    label: str


@dataclass
class DifferenceTally:
    """Counts of one form. `differences` has the first one of each tensor, by name.

    fault: why codes could not be compared, or what else of its files differs; empty if nothing.
    executor: the program that ran the files, with its version; empty for qgraph itself.
    Of a whole run of its files, `island_codes` are computed from float islands; `moved_codes` of
    them are one step from the reference's.
    """

    tensors: set[str] = field(default_factory=set)
    elements: int = 0
    wrong: int = 0
    differences: dict[str, Difference] = field(default_factory=dict)
    seconds: float = 0.0
    island_codes: int = 0
    moved_codes: int = 0
    fault: str = ""
    executor: str = ""

    @property
    def equal(self) -> bool:
        return not self.wrong and not self.fault

    def add(self, tensor: str, actual: Array, expected: Codes, label: str) -> None:
        """Compare one tensor. Raises GraphError if shapes differ."""
        if actual.shape != expected.shape:
            raise GraphError(f"shape {actual.shape}, not {expected.shape}", node=tensor)
        self.tensors.add(tensor)
        self.elements += expected.size
        places = np.argwhere(actual != expected)
        if len(places):
            self.wrong += len(places)
            at = tuple(int(i) for i in places[0])
            number = _number(actual[at])
            first = Difference(tensor, len(places), at, number, int(expected[at]), label)
            self.differences.setdefault(tensor, first)


def _number(code: np.generic) -> int | float:
    """A code as a Python number, whole if possible."""
    value = float(code)
    return int(value) if value.is_integer() else value


@dataclass
class Saturation:
    """Saturated results of a requantization: `below` and `above` of `elements`."""

    elements: int = 0
    below: int = 0
    above: int = 0


@dataclass(frozen=True)
class Compared:
    """Result over all cases: a tally per form, and saturation by requantization on samples."""

    cases: Mapping[str, int]
    tallies: Mapping[str, DifferenceTally]
    saturation: Mapping[str, Saturation]


def compare(
    network: Network,
    runners: Mapping[str, Runner],
    cases: Iterable[Case],
    whole: Mapping[str, Mapping[str, Array]] = NO_RUNS,
) -> Compared:
    """Run every form and the integer reference on every case, and count differences.

    whole: codes of whole runs through float islands, by form. The reference continues from the
    codes that each executor made behind them.
    """
    reference = Reference(network.graph)
    tallies = {name: DifferenceTally() for name in runners}
    counts: dict[str, int] = {}
    saturation: dict[str, Saturation] = {}
    for case in cases:
        expected = expected_codes(network, reference, case.entries)
        samples = len(next(iter(case.entries.values()))) if network.program.batch_free else 1
        counts[case.label] = counts.get(case.label, 0) + samples
        if case.label == "samples":
            _count_saturation(network, expected, saturation)
        for name, runner in runners.items():
            begin = time.perf_counter()
            try:
                found = runner(case.entries)
            except ExactnessError as error:
                tallies[name].fault = tallies[name].fault or str(error)
                continue
            finally:
                tallies[name].seconds += time.perf_counter() - begin
            missing = [e for e in network.program.exits if e not in found]
            if missing:
                raise GraphError(f"{name} gives no `{missing[0]}`", node=missing[0])
            for tensor in (t for t in expected if t in found):
                tallies[name].add(tensor, found[tensor], expected[tensor], case.label)
    for name, codes in whole.items():
        if codes:
            _compare_run(network, reference, codes, tallies[name])
    return Compared(counts, tallies, saturation)


def _compare_run(
    network: Network, reference: Reference, codes: Mapping[str, Codes], tally: DifferenceTally
) -> None:
    """Compare a run through float islands.

    Integer layers are computed from the codes that the executor made, at tolerance zero. These
    codes may be one step from the reference's, because float ops differ between libraries in the
    last digits.
    """
    program = network.program
    entries = {e.tensor: codes[e.tensor] for e in program.entries}
    for tensor, wanted in expected_codes(network, reference, entries).items():
        if tensor in codes and tensor not in entries:
            tally.add(tensor, codes[tensor], wanted, WHOLE_RUN)
    begun = {e.tensor for e in program.entries if not e.segment}
    held = {n: Fixed(codes[n], _exponent(program.tensors[n].exponent)) for n in program.exits}
    given: dict[str, Fixed | Array] = dict(network.sample)
    given.update({name: fixed for name, fixed in held.items() if name not in entries})
    for name, value in reference.run(given, entries.keys() - begun).items():
        assert isinstance(value, Fixed)
        far = np.abs(codes[name] - value.codes) > 1
        tally.add(name, np.where(far, codes[name], value.codes), value.codes, WHOLE_RUN)
        tally.island_codes += value.codes.size
        tally.moved_codes += int(np.count_nonzero(codes[name] != value.codes))


def expected_codes(
    network: Network, reference: Reference, entries: Mapping[str, Codes]
) -> dict[str, Codes]:
    """The reference's codes of every tensor of the graph except constants, in order."""
    program = network.program
    given = {
        name: Fixed(codes, _exponent(program.tensors[name].exponent))
        for name, codes in entries.items()
    }
    names = [n for n in program.tensors if n in network.graph.types and n not in program.constants]
    values = reference.run({**given}, names)
    return {n: v.codes for n, v in values.items() if isinstance(v, Fixed)}


def _exponent(exponent: Exponent) -> int | Codes:
    return exponent if isinstance(exponent, int) else np.asarray(exponent, np.int64)


def _count_saturation(
    network: Network, codes: Mapping[str, Codes], into: dict[str, Saturation]
) -> None:
    for step in network.program.steps:
        attrs = step.attrs
        if not isinstance(attrs, RequantizeAttrs) or step.inputs[0] not in codes:
            continue
        shifted = attrs.shifted(codes[step.inputs[0]])
        found = into.setdefault(step.output, Saturation())
        found.elements += shifted.size
        found.below += int(np.count_nonzero(shifted < attrs.low))
        found.above += int(np.count_nonzero(shifted > attrs.high))


def in_order(network: Network, differences: Mapping[str, Difference]) -> Iterator[Difference]:
    """Differences in the order of computation."""
    yield from (differences[name] for name in network.program.tensors if name in differences)
