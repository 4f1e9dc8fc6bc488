"""One network in forms of a profile: elements compared with the integer reference, or a reason."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from benchmarks.forms.networks import Source
from qgraph.backends.network_forms import Form, Network, Runner
from qgraph.choices import ExportFormat
from qgraph.compiler import quantize
from qgraph.errors import ExactnessError, QGraphError, UnsupportedError
from qgraph.exports import FORMS, form
from qgraph.ir.graph import Graph
from qgraph.ir.types import Array
from qgraph.program.accumulators import accumulators
from qgraph.stored import load_network
from qgraph.verification.cases import Case, extreme_cases, from_samples, random_case
from qgraph.verification.compare import DifferenceTally, compare
from qgraph.verification.verify import executor_of, fault_of, runners_of, whole_runs

COLUMNS = MappingProxyType(
    {
        "network": "", "profile": "", "form": "", "executor": "", "tensors": "d", "elements": ",d",
        "different": "d", "behind float ops": ",d", "one step off": "d", "seconds": ".1f",
        "refused": "", "fault": "",
    }
)  # fmt: skip
# Compilers take minutes and files have gigabytes for more weights; the reference model of TOSA
# computes some 30 million products in a second.
MOST_WEIGHTS = MappingProxyType(
    {ExportFormat.C: 30_000_000, ExportFormat.QONNX: 30_000_000, ExportFormat.VECTORS: 30_000_000}
)
MOST_PRODUCTS = MappingProxyType({ExportFormat.TOSA: 300_000_000})


@dataclass(frozen=True)
class Row:
    """A form of a network in one executor.

    behind_floats: codes that the executor made behind float ops; `moved` of them are one step from
    the reference's. refused: the reason why the form cannot be written, or empty. fault: an error
    that is not a difference of codes, or empty.
    """

    network: str
    profile: str
    form: str
    executor: str = ""
    tensors: int | None = None
    elements: int | None = None
    different: int | None = None
    behind_floats: int | None = None
    moved: int | None = None
    seconds: float | None = None
    refused: str = ""
    fault: str = ""


def rows(
    source: Source, graph: Graph, inputs: Array, profile: str, forms: Sequence[ExportFormat]
) -> Iterator[Row]:
    """Quantize a network for a profile, and compare its forms."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            made = quantize(
                graph, inputs, profile=profile, effort="plain", method="max", states=source.states
            )
            network = load_network(made.save(Path(folder) / "out"))
        except QGraphError as error:
            for name in forms:
                yield Row(source.name, profile, name, refused=_line(error))
            return
        del made
        several = _weights(network) < min(MOST_WEIGHTS.values())
        for part in [forms] if several else [[name] for name in forms]:
            yield from _compared(source, network, profile, part)


def _compared(
    source: Source, network: Network, profile: str, forms: Sequence[ExportFormat]
) -> Iterator[Row]:
    runners: dict[str, Runner] = {}
    whole: dict[str, Mapping[str, Array]] = {}
    written: dict[str, tuple[Form, Path]] = {}
    with ExitStack() as stack:
        for name in forms:
            one, place = form(name), Path(stack.enter_context(tempfile.TemporaryDirectory()))
            refusal = _left_out(name, network) or one.refusal(network)
            if refusal is not None:
                yield Row(source.name, profile, name, refused=refusal.splitlines()[0])
                continue
            try:
                one.write(network, place)
                found = runners_of(one, network, place)
                if network.program.has_islands:
                    whole |= whole_runs(one, network, place)
            except (UnsupportedError, ImportError) as error:
                yield Row(source.name, profile, name, refused=_line(error))
            except ExactnessError as error:
                yield Row(source.name, profile, name, fault=_line(error))
            else:
                runners |= found
                written |= dict.fromkeys(found, (one, place))
        if not runners:
            return
        tallies = compare(network, runners, _cases(network, source.compared), whole).tallies
        for runner, tally in tallies.items():
            one, place = written[runner]
            if not tally.fault:
                tally.fault = fault_of(one, network, place)
            yield _row(source, profile, one.name, executor_of(runner, [one]), tally)


def _row(source: Source, profile: str, name: str, executor: str, tally: DifferenceTally) -> Row:
    return Row(
        source.name, profile, name, executor, len(tally.tensors), tally.elements, tally.wrong,
        tally.island_codes, tally.moved_codes, round(tally.seconds, 1), "", tally.fault,
    )  # fmt: skip


def _cases(network: Network, count: int) -> Iterator[Case]:
    """Some calibration samples, random codes, and codes at one end of their ranges."""
    samples = {n: array[:count] for n, array in (network.samples or network.sample).items()}
    yield from from_samples(network, samples)
    yield random_case(network.program, 0)
    yield next(extreme_cases(network.program))


def _left_out(name: ExportFormat, network: Network) -> str | None:
    """Why a form of a large network is not tried; None if it is."""
    weights, products = _weights(network), _products(network)
    if weights > MOST_WEIGHTS.get(name, weights):
        return f"not tried: {weights / 1e6:.0f} million weights"
    if products > MOST_PRODUCTS.get(name, products):
        return f"not tried: {products / 1e9:.1f} billion products for a sample"
    return None


def _weights(network: Network) -> int:
    return sum(codes.size for codes in network.program.constants.values())


def _products(network: Network) -> int:
    """Multiplications of layers with constant weights, for one sample."""
    tensors = network.program.tensors
    layers = (one for one in accumulators(network.program) if one.layer in tensors)
    return sum(one.terms * math.prod(tensors[one.layer].shape) for one in layers)


def _line(error: Exception) -> str:
    return str(error).splitlines()[0]


def own_profiles() -> dict[str, list[ExportFormat]]:
    """The forms that a profile is made for, by profile."""
    found: dict[str, list[ExportFormat]] = {}
    for name, entry in FORMS.items():
        for profile in entry.profiles:
            found.setdefault(profile, []).append(name)
    return found


def forms_of_any_profile() -> list[ExportFormat]:
    return [name for name, entry in FORMS.items() if not entry.profiles]
