import numpy as np
import pytest

from qgraph.ir.graph import Graph
from qgraph.transforms.equalize_channels import EqualizeChannels
from qgraph.transforms.share_constants import ShareConstants
from tests.helpers.evaluate import run_pass


def sums(*arrays, control: bool = False) -> Graph:
    """x + each array in turn."""
    g = Graph("net")
    value = g.input("x", "float64", (None, 4))
    for array in arrays:
        value = g.add("add", value, g.const(array, "c"))
    g.outputs["y"] = value
    return g


def constants(g: Graph) -> list[str]:
    return [n.name for n in g.nodes.values() if n.op == "const"]


def test_equal_constants_become_the_first_of_them() -> None:
    row = np.arange(4.0)
    g = sums(row, row + 1, row.copy())
    run_pass(ShareConstants(), g)
    assert constants(g) == ["c", "c_1"]
    assert [n.inputs[1] for n in g.topological() if n.op == "add"] == ["c", "c_1", "c"]


@pytest.mark.parametrize(
    "other",
    [np.arange(4.0)[None], np.array([0.0, 1, 2, np.nextafter(3, 4)]), np.array([-0.0, 1, 2, 3])],
    ids=["shape", "last bit", "sign of zero"],
)
def test_what_differs_in_anything_stays(other) -> None:
    g = sums(np.arange(4.0), other)
    run_pass(ShareConstants(), g)
    assert len(constants(g)) == 2


def test_dtypes_are_distinguished() -> None:
    g = Graph("net")
    for i, dtype in enumerate(("int32", "float32")):
        g.outputs[f"y{i}"] = g.add("neg", g.const(np.arange(4, dtype=dtype), "c"))
    ShareConstants().run(g)
    assert len(constants(g)) == 2


def test_one_repeated_number_is_no_sign_of_sharing() -> None:
    g = sums(np.zeros(4), np.zeros(4))  # two biases that training has not moved yet
    run_pass(ShareConstants(), g)
    assert len(constants(g)) == 2


def test_channels_of_layers_that_share_weights_are_not_scaled() -> None:
    rng = np.random.default_rng(0)
    g = Graph("net")
    x = g.input("x", "float64", (None, 4))
    shared = g.const(rng.normal(size=(4, 4)) * [100, 1, 1, 0.01], "shared")
    for _ in range(2):
        x = g.add("relu", g.add("matmul", x, shared))
    g.outputs["y"] = g.add("matmul", x, g.const(rng.normal(size=(4, 2)), "own"))
    g.facts.add("batch-norm-folded")
    run_pass(EqualizeChannels(), g)
    assert constants(g) == ["shared", "own"]
