"""Compare all forms of a network with the integer reference: no code may differ.

`assert_forms` takes a quantized network, or only a program, which has no TensorFlow form. It
compares numpy and every form of `qgraph.exports.FORMS`. A form whose tool is not installed is
skipped with a warning; `needs_tool` skips a whole test.
"""

from __future__ import annotations

import importlib.util
import shutil
import tempfile
import warnings
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
from hypothesis import event, reject

from qgraph import kernels
from qgraph.backends.c.c_form import COMPILERS
from qgraph.backends.network_forms import CheckedForm, Form, Network, Runner
from qgraph.backends.tosa.tosa_tools import REFERENCE_MODEL, find_tool
from qgraph.exact.reference import Reference
from qgraph.exports import FORMS, form
from qgraph.ir.graph import Graph
from qgraph.program import Program, run
from qgraph.quant.profile import Profile
from qgraph.verification.cases import extreme_cases, from_samples
from qgraph.verification.compare import compare, expected_codes
from qgraph.verification.verify import whole_runs
from tests.helpers.quantized import quantized_network

Codes = Mapping[str, np.ndarray]
PACKAGES = {
    "tensorflow": ("tensorflow",),
    "onnx-integer": ("onnxruntime",),
    "onnx-qdq": ("onnxruntime",),
    "onnx-qoperator": ("onnxruntime",),
    "onnx-xint8": ("onnxruntime",),
    "qonnx": ("qonnx",),
    "tflite": ("tflite", "flatbuffers", "ai_edge_litert", "tflite_micro"),
}


# Forms that need a profile made for them. The others support networks of any profile.
OWN_PROFILES = {name: entry.profiles for name, entry in FORMS.items() if entry.profiles}
ANY_PROFILE = tuple(name for name in FORMS if name not in OWN_PROFILES)


def missing_tool(name: str) -> str | None:
    """The tool that a form needs and that is not installed, or None."""
    if name == "engine":
        return None if kernels.native_engine() else "the native extension is not built"
    if name == "c":
        return None if any(map(shutil.which, COMPILERS)) else "no C compiler is installed"
    if name == "tosa":
        return None if find_tool(REFERENCE_MODEL) else f"{REFERENCE_MODEL} is not installed"
    missing = [one for one in PACKAGES.get(name, ()) if not importlib.util.find_spec(one)]
    return f"{missing[0]} is not installed" if missing else None


def needs_tool(name: str) -> pytest.MarkDecorator:
    missing = missing_tool(name)
    return pytest.mark.skipif(missing is not None, reason=f"{name}: {missing}")


def network_of(program: Program, graph: Graph | None = None) -> Network:
    """A network that consists of its program only."""
    return Network(graph or Graph(program.name), program, Profile("any"), {})


def random_codes(program: Program, seed: int = 0, samples: int = 3) -> dict[str, np.ndarray]:
    """Codes for every entry.

    The first of several samples has only ends of ranges; in the others these are more frequent than
    by chance.
    """
    rng, codes = np.random.default_rng(seed), {}
    for entry in program.entries:
        tensor = program.tensors[entry.tensor]
        shape = (samples, *tensor.shape[1:]) if program.batch_free else tensor.shape
        drawn, edge = rng.integers(tensor.low, tensor.high + 1, shape), rng.random(shape)
        drawn = np.where(edge < 0.1, tensor.low, np.where(edge > 0.9, tensor.high, drawn))
        if len(drawn) > 1:
            drawn[0] = rng.choice([tensor.low, tensor.high], shape[1:])
        codes[entry.tensor] = drawn
    return codes


def assert_codes(program: Program, codes: Codes, found: Codes) -> int:
    """Assert that every tensor has the codes of numpy and no exit is missing; return the elements
    compared.
    """
    assert set(program.exits) <= found.keys()
    for name, wanted in run(program, codes, list(found)).items():
        np.testing.assert_array_equal(found[name], wanted, name, strict=True)
    return sum(array.size for array in found.values())


def assert_forms(
    network: Network | Program,
    codes: Codes | None = None,
    *,
    forms: Collection[str | Form] = tuple(FORMS),
    seed: int = 0,
) -> dict[str, int]:
    """Compare numpy and all forms that support the network; return the elements compared, by form.

    codes: of the entries. Without them, random codes are used and, for a network, its samples and
    extremes.
    """
    if isinstance(network, Program):
        network = network_of(network)
    cases = [codes] if codes is not None else list(cases_of(network, seed))
    compared = {"numpy": sum(compare_reference(network, case) for case in cases)}
    for made in (form(one) if isinstance(one, str) else one for one in forms):
        missing = missing_tool(made.name)
        if missing is not None:
            warnings.warn(f"{made.name} is not compared: {missing}", stacklevel=2)
        elif refused(made, network) is None:
            compared[made.name] = compare_form(made, network, cases)
    return compared


def check_every_form(graph: Graph, profile: Profile, seed: int) -> Network:
    """`assert_forms` of the graph, quantized for the profile."""
    network = quantized_network(graph, profile, seed)
    for name in assert_forms(network, seed=seed):
        event(f"compared: {name}")
    return network


def assert_form(form: Form, program: Program, codes: Codes | None = None, seed: int = 0) -> int:
    """Compare one form, which must support the program; return the elements compared."""
    assert refused(form, network_of(program)) is None
    compared = assert_forms(program, codes, forms=[form], seed=seed)
    return compared[form.name]


def cases_of(network: Network, seed: int) -> Iterator[Codes]:
    if network.graph.outputs:
        yield from (case.entries for case in from_samples(network, network.samples))
        yield from (case.entries for case in extreme_cases(network.program))
    yield random_codes(network.program, seed)


def refused(made: Form, network: Network) -> str | None:
    if made.name == "tensorflow" and not network.graph.outputs:
        return "it is made from the graph"
    return made.refusal(network)


def compare_reference(network: Network, codes: Codes) -> int:
    """Compare numpy with the integer reference of the graph; return the elements compared."""
    wanted = (
        expected_codes(network, Reference(network.graph), codes) if network.graph.outputs else {}
    )
    found = run(network.program, codes, list(wanted))
    for name, array in wanted.items():
        np.testing.assert_array_equal(found[name], array, f"numpy: {name}")
    return sum(array.size for array in wanted.values())


def compare_form(made: Form, network: Network, cases: Collection[Codes]) -> int:
    with tempfile.TemporaryDirectory() as folder:
        made.write(network, Path(folder))
        runner: Runner = made.runner(network, Path(folder))
        if isinstance(made, CheckedForm):
            made.check(network, Path(folder))
        elements = sum(assert_codes(network.program, case, runner(case)) for case in cases)
        elements += compare_whole_run(made, network, Path(folder))
    assert elements
    return elements


def compare_whole_run(made: Form, network: Network, folder: Path) -> int:
    """Compare runs from the sample through float islands; return the elements compared."""
    if not network.program.has_islands:
        return 0
    runs = whole_runs(made, network, folder)
    compared = compare(network, dict.fromkeys(runs, no_codes), (), runs)
    assert all(tally.equal for tally in compared.tallies.values()), compared.tallies
    return sum(tally.elements for tally in compared.tallies.values())


def no_codes(codes: Codes) -> Codes:
    raise AssertionError("no case to compare")


def carried(made: Form, program: Program, why_not: str = "") -> Program:
    """The program, if the form supports it. Otherwise the example of hypothesis is rejected."""
    refusal = made.refusal(network_of(program))
    if refusal is not None:
        assert why_not in refusal
        reject()
    return program
