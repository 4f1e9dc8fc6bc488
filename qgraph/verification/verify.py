"""Every form of a quantized network against the integer reference."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from qgraph.artifacts import CERTIFICATE
from qgraph.backends.forms import Network, Runner
from qgraph.errors import UnsupportedError
from qgraph.exports import FORMS, form
from qgraph.files import write_whole
from qgraph.ir.types import Array
from qgraph.progress import Progress, silent
from qgraph.quant.data import load_data
from qgraph.records import to_json
from qgraph.stored import load_graph, load_network
from qgraph.verification.cases import Case, extreme_cases, from_samples, random_case
from qgraph.verification.certificate import Certificate, certificate
from qgraph.verification.compare import Compared, compare

SEEDS = (1, 2)
# What `qgraph quantize` wrote itself is tried as it lies there.
DELIVERED = ("tensorflow",)


@dataclass(frozen=True)
class Verified:
    """What was compared, which forms were not and why, and all of it as it was written."""

    network: Network
    compared: Compared
    refused: Mapping[str, str]
    certificate: Certificate

    @property
    def equal(self) -> bool:
        """True if something was compared, and nothing differs."""
        return self.certificate.equal


def verify(
    folder: str | Path,
    data: Mapping[str, Array] | None = None,
    *,
    forms: Collection[str] = (),
    progress: Progress = silent,
) -> Verified:
    """Compare forms of the network in an output directory, and write certificate.json there.

    data: float inputs by name; without, the samples that the directory holds. Codes at the ends of
    their ranges and random ones are tried as well. forms: names; without, every form there is.
    Raises LoadError, UnsupportedError where the network has no integer program.
    """
    folder = Path(folder)
    network = load_network(folder)
    chosen = [form(name) for name in forms or FORMS]
    refused: dict[str, str] = {}
    runners: dict[str, Runner] = {}
    with ExitStack() as stack:
        for i, one in enumerate(chosen):
            progress("building", i, len(chosen))
            place = folder
            try:
                reason = one.refusal(network)
                if reason is None:
                    if one.name not in DELIVERED:
                        place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
                        one.write(network, place)
                    runners[one.name] = one.runner(network, place)
            except (UnsupportedError, ImportError) as error:
                reason = str(error)
            if reason is not None:
                refused[one.name] = reason
        cases = list(_cases(network, data))
        compared = compare(network, runners, _with_progress(cases, progress))
    made = certificate(folder, network, compared, refused)
    write_whole(folder / CERTIFICATE, (json.dumps(to_json(made), indent=1) + "\n").encode())
    return Verified(network, compared, refused, made)


def _cases(network: Network, data: Mapping[str, Array] | None) -> Iterator[Case]:
    yield from from_samples(network, data or network.samples or network.sample)
    yield from extreme_cases(network.program)
    yield from (random_case(network.program, seed) for seed in SEEDS)


def _with_progress(cases: Sequence[Case], progress: Progress) -> Iterator[Case]:
    for i, case in enumerate(cases):
        progress("comparing", i, len(cases))
        yield case


def inputs_of(folder: Path, file: Path | None, limit: int | None) -> dict[str, Array] | None:
    """Inputs from a file, checked against the network in `folder`; None where there is no file.

    With a limit and no file: the first of the samples that the directory holds.
    """
    if file is None and limit is None:
        return None
    if file is not None:
        return load_data(file, load_graph(folder), limit)
    network = load_network(folder)
    kept = network.samples or network.sample
    return {name: array[:limit] for name, array in kept.items()}
