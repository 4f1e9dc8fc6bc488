"""An output directory holds the network that was quantized."""

import numpy as np
import pytest

from qgraph import quantize
from qgraph.errors import LoadError
from qgraph.exact.reference import Reference
from qgraph.ir.printing import print_graph
from qgraph.program import lower
from qgraph.stored import load_network
from tests.helpers.cli import small_network, typical_images


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    model = tmp_path_factory.mktemp("model") / "net.pb"
    model.write_bytes(small_network().SerializeToString())
    return quantize(model, typical_images(), effort="plain")


def test_a_network_comes_back_as_it_was(made, tmp_path) -> None:
    network = load_network(made.save(tmp_path / "out"))
    assert print_graph(network.graph) == print_graph(made.graph)
    assert str(network.program) == str(lower(made.graph))
    assert network.profile == made.profile
    assert {n: a.shape for n, a in network.samples.items()} == {
        n: a.shape for n, a in made.measured_samples.items()
    }
    found, wanted = (g.outputs(made.sample) for g in (Reference(network.graph), made.reference()))
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        np.testing.assert_array_equal(found[name], array)


@pytest.mark.parametrize(
    ("file", "content"),
    [("network.npz", b"PK\x03\x04 cut"), ("graph.txt", b'graph "x" {'), ("graph.txt", b"")],
)
def test_a_file_that_is_not_whole_is_named(made, tmp_path, file, content) -> None:
    out = made.save(tmp_path / "out")
    (out / file).write_bytes(content)
    with pytest.raises(LoadError) as caught:
        load_network(out)
    assert "out" in str(caught.value)
