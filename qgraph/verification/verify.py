"""Compare every form of a quantized network with the integer reference."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from qgraph.backends.network_forms import (
    CheckedForm,
    ExecutedForm,
    ExecutedWholeForm,
    ForeignForm,
    Form,
    Network,
    Runner,
    WholeForm,
)
from qgraph.errors import (
    ExactnessError,
    LoadError,
    QGraphError,
    UnsupportedError,
    UsageError,
    reason_of,
)
from qgraph.exports import FORMS, exported_form, form
from qgraph.files import write_whole
from qgraph.ir.types import Array
from qgraph.notebook import table_html
from qgraph.progress import Progress, silent
from qgraph.quant.samples.data import Data, check_limit, load_data
from qgraph.quiet import quiet_tensorflow
from qgraph.records import to_json
from qgraph.stored import inference_folder, load_network
from qgraph.stored.write import CERTIFICATE
from qgraph.verification.cases import Case, extreme_cases, from_samples, random_case
from qgraph.verification.certificate import Certificate, certificate
from qgraph.verification.compare import Compared, compare

SEEDS = (1, 2)
# Formats that `qgraph quantize` writes: these files are compared.
DELIVERED = ("tensorflow",)


@dataclass(frozen=True, repr=False)
class Verified:
    """The forms that were compared, those that were not and why, and the certificate.

    Attributes:
        network: The network that was read from the directory.
        compared: By form, the number of tensors, elements and differences.
        refused: By form that was left out, the reason.
        certificate: The content of certificate.json.

    Examples:
        >>> qgraph.verify("out", forms=["engine", "onnx-integer"])
        Verified(model: equal; engine, onnx-integer compared)
    """

    network: Network
    compared: Compared
    refused: Mapping[str, str]
    certificate: Certificate

    @property
    def equal(self) -> bool:
        """True if something was compared, and nothing differs."""
        return self.certificate.equal

    def __repr__(self) -> str:
        verdict = "equal" if self.equal else "NOT equal"
        forms = ", ".join(self.compared.tallies)
        return f"Verified({self.network.graph.name}: {verdict}; {forms or 'no form'} compared)"

    def _repr_html_(self) -> str:
        rows: list[tuple[object, ...]] = [
            (form, len(found.tensors), f"{found.elements:,}", found.fault or found.wrong)
            for form, found in self.compared.tallies.items()
        ]
        rows += [(form, "left out", reason, "") for form, reason in self.refused.items()]
        return table_html(repr(self), ("form", "tensors", "elements", "differences"), rows)


@quiet_tensorflow()
def verify(
    folder: str | Path,
    data: Data | None = None,
    *,
    limit: int | None = None,
    forms: Collection[str] = (),
    files: str | Path | None = None,
    progress: Progress = silent,
) -> Verified:
    """Compare forms of a quantized network with the integer reference, at tolerance zero.

    Codes at the ends of their ranges and random codes are compared in addition to the data. Writes
    certificate.json into the directory.

    Args:
        folder: An output directory, or a training directory with `inference/` inside.
        data: Float inputs: a `.npy` or `.npz`, or arrays by input name. None uses the samples in
            the directory.
        limit: Use only the first inputs.
        forms: Names of formats, as in `export`; without names, all formats are compared.
        files: A directory that `export` wrote. Only its files are compared.
        progress: Called with the stage, how much is done, and how much there is.

    Returns:
        The comparison. `equal` is True if at least one form was compared and nothing differs.

    Raises:
        LoadError: The directory is not an output directory of qgraph.
        CalibrationError: The data does not fit the network.
        UnsupportedError: The network has no integer program.
        UsageError: A format is unknown, or the files belong to another network.

    Examples:
        >>> qgraph.verify("out", forms=["engine", "onnx-integer"]).equal
        True
    """
    folder, exported = inference_folder(folder), None if files is None else Path(files)
    if exported is not None and forms:
        raise UsageError("forms and exported files exclude each other", hint="give one of them")
    chosen = [form(name) for name in forms or FORMS]
    network = load_network(folder)
    if exported is not None:
        chosen = [exported_form(exported, network)]
    inputs = _inputs(network, data, limit)
    refused: dict[str, str] = {}
    runners: dict[str, Runner] = {}
    places: dict[str, Path] = {}
    with ExitStack() as stack:
        for i, one in enumerate(chosen):
            progress("building", i, len(chosen))
            try:
                reason = None if exported else one.refusal(network)
                if exported is not None:
                    places[one.name] = exported
                    runners |= _runners_of_files(one, network, exported)
                elif reason is None:
                    place = folder
                    if one.name not in DELIVERED:
                        place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
                        one.write(network, place)
                    places[one.name] = place
                    runners |= runners_of(one, network, place)
            except (UnsupportedError, ImportError) as error:
                reason = str(error)
            if reason is not None:
                refused[one.name] = reason
        run = [one for one in chosen if one.name in places and one.name not in refused]
        whole: dict[str, Mapping[str, Array]] = {}
        faults: dict[str, str] = {}
        for one in run if network.program.has_islands else ():
            try:
                whole |= whole_runs(one, network, places[one.name])
            except ExactnessError as error:
                faults[one.name] = str(error)
        cases = list(_cases(network, inputs))
        compared = compare(network, runners, _with_progress(cases, progress), whole)
        for one in run:
            tallies = [compared.tallies[name] for name in _runner_names(one, runners)]
            fault = faults.get(one.name, "")
            if not fault and all(tally.equal for tally in tallies):
                fault = fault_of(one, network, places[one.name])
            for tally in tallies:
                tally.fault = tally.fault or fault
        for name, tally in compared.tallies.items():
            tally.executor = executor_of(name, run)
    made = certificate(folder, network, compared, refused, exported)
    write_whole(folder / CERTIFICATE, (json.dumps(to_json(made), indent=1) + "\n").encode())
    return Verified(network, compared, refused, made)


def runners_of(one: Form, network: Network, folder: Path) -> Mapping[str, Runner]:
    """The runner of a form, or one for each of its executors, by name."""
    if isinstance(one, ExecutedForm):
        found = one.runners(network, folder)
        return {f"{one.name}: {executor}": runner for executor, runner in found.items()}
    return {one.name: one.runner(network, folder)}


def whole_runs(one: Form, network: Network, folder: Path) -> Mapping[str, Mapping[str, Array]]:
    """Codes of runs through float islands, by the names of runners."""
    if isinstance(one, ExecutedWholeForm):
        found = one.executed_in(network, folder)
        return {f"{one.name}: {executor}": codes for executor, codes in found.items()}
    return {one.name: one.executed(network, folder)} if isinstance(one, WholeForm) else {}


def fault_of(one: Form, network: Network, folder: Path) -> str:
    """The difference besides codes, in the outputs of a form's files; empty if nothing."""
    if isinstance(one, CheckedForm):
        try:
            one.check(network, folder)
        except ExactnessError as error:
            return str(error)
    return ""


def executor_of(name: str, forms: Sequence[Form]) -> str:
    """The program that a runner uses, by the runner's name; empty for qgraph itself."""
    of_form, _, executor = name.partition(": ")
    named = (one for one in forms if one.name == of_form and isinstance(one, ForeignForm))
    return executor or next((one.executor() for one in named), "")


def _runner_names(one: Form, runners: Mapping[str, Runner]) -> list[str]:
    """The names of a form's runners, as `runners_of` gives them."""
    return [name for name in runners if name == one.name or name.startswith(f"{one.name}: ")]


def _runners_of_files(one: Form, network: Network, folder: Path) -> Mapping[str, Runner]:
    """The runners of an export. Raises LoadError for files that cannot be read."""
    try:
        return runners_of(one, network, folder)
    except (QGraphError, ImportError):
        raise
    except Exception as error:  # readers may raise anything on damaged files
        raise LoadError(f"cannot be read: {reason_of(error)}", node=str(folder)) from error


def _cases(network: Network, inputs: Mapping[str, Array]) -> Iterator[Case]:
    yield from from_samples(network, inputs)
    yield from extreme_cases(network.program)
    yield from (random_case(network.program, seed) for seed in SEEDS)


def _with_progress(cases: Sequence[Case], progress: Progress) -> Iterator[Case]:
    for i, case in enumerate(cases):
        progress("comparing", i, len(cases))
        yield case


def _inputs(network: Network, data: Data | None, limit: int | None) -> Mapping[str, Array]:
    """Inputs checked against the network, or the samples in its directory."""
    if data is not None:
        return load_data(data, network.graph, limit, what="the input data")
    check_limit(limit)
    stored = network.samples or network.sample
    return {name: array[:limit] for name, array in stored.items()}
