"""Real networks as C and as vectors: every tensor is the reference's."""

from pathlib import Path

import numpy as np
import pytest

from qgraph.compiler import quantize
from qgraph.frontends import load
from qgraph.quantized import Quantized
from qgraph.verification.verify import verify
from tests.helpers.c_programs import needs_compiler
from tests.helpers.real_networks import POLICIES, PROFILES, needs_policies, quantized

pytestmark = [pytest.mark.real, needs_compiler]


FORMS = ("c", "vectors")


def assert_exact(result: Quantized, folder: Path, data: dict | None = None, forms=FORMS) -> None:
    found = verify(result.save(folder / "out"), data, forms=forms)
    made = {step.output for step in found.network.program.steps}
    assert found.equal and not found.refused
    for name in forms:
        tally = found.compared.tallies[name]
        assert tally.wrong == 0 and tally.tensors >= made & found.network.graph.types.keys()


@pytest.mark.parametrize("profile", ["graffitist-int8", "graffitist-int4", "int32-bias"])
@pytest.mark.parametrize("name", ["cifar_10_model", "nudity"])
def test_networks(name: str, profile: str, tmp_path: Path) -> None:
    forms = FORMS if profile == "graffitist-int8" else ["c"]
    assert_exact(quantized(name, profile), tmp_path, forms=forms)


@needs_policies
@pytest.mark.parametrize("profile", ["graffitist-int8", "wide-activations"])
@pytest.mark.parametrize("path", POLICIES, ids=lambda p: p.stem)
def test_policies(path: Path, profile: str, tmp_path: Path) -> None:
    graph = load(path)
    data = np.random.default_rng(0).normal(size=(64, graph.types[graph.inputs[0]].shape[1]))
    data = data.astype(np.float32)
    result = quantize(graph, data, profile=PROFILES[profile], plan="method=max")
    assert_exact(result, tmp_path, {graph.inputs[0]: data})
