"""An output directory holds the network that was quantized."""

import numpy as np
import pytest

from qgraph import quantize
from qgraph.archives import read_arrays
from qgraph.errors import LoadError
from qgraph.exact.reference import Reference
from qgraph.ir.graph import Graph
from qgraph.ir.printing import print_graph
from qgraph.npz import write_npz
from qgraph.program import lower
from qgraph.stored import load_float, load_network
from qgraph.stored.code_constants import on_grid
from qgraph.stored.write import other_arrays
from tests.helpers.cli import small_network, typical_images
from tests.helpers.quantized import PROFILES


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    model = tmp_path_factory.mktemp("model") / "net.pb"
    model.write_bytes(small_network().SerializeToString())
    return quantize(model, typical_images(), effort="plain")


def test_a_network_comes_back_as_it_was(made, tmp_path) -> None:
    network = load_network(made.save(tmp_path / "out"))
    assert print_graph(network.graph) == print_graph(on_grid(made.graph)[0])
    assert str(network.program) == str(lower(made.graph))
    assert network.profile == made.profile
    assert {n: a.shape for n, a in network.samples.items()} == {
        n: a.shape for n, a in made.measured_samples.items()
    }
    found, wanted = (g.outputs(made.sample) for g in (Reference(network.graph), made.reference()))
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        np.testing.assert_array_equal(found[name], array)


def test_the_float_network_shares_the_constants_that_did_not_change(made, tmp_path) -> None:
    out = made.save(tmp_path / "out")
    shared, own = (read_arrays(out / name) for name in ("network.npz", "float.npz"))
    floating = load_float(out)
    assert print_graph(floating) == (out / "float.txt").read_text()
    names = {f"constant/{n.name}" for n in floating.nodes.values() if n.op == "const"}
    held = {f"constant/{key.partition('/')[2]}" for key in own}
    assert names - held and names <= {*shared, *held}


def test_only_equal_arrays_are_left_out() -> None:
    ones = np.ones(2, np.float32)
    kinds = {"same": ones, "type": ones, "shape": ones, "number": ones, "zero": ones * 0}
    known = {"same": ones.copy(), "type": ones.view(np.int32), "shape": ones[None]}
    known |= {"number": ones * 2, "zero": -ones * 0}
    assert other_arrays(kinds, known).keys() == {"type", "shape", "number", "zero"}


def test_a_float_network_without_other_constants(tmp_path) -> None:
    graph = Graph("net")
    w = graph.const(np.eye(3, dtype=np.float32), "w")
    graph.outputs["y"] = graph.add("matmul", graph.input("x", "float32", (None, 3)), w)
    out = quantize(graph, {"x": np.eye(3, dtype=np.float32)}, effort="plain").save(tmp_path / "out")
    assert not read_arrays(out / "float.npz")
    np.testing.assert_array_equal(load_float(out).constant("w"), np.eye(3))


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


def wide_network(*, shared: bool = False) -> Graph:
    """Two layers with large weights: their own, or one matrix."""
    graph, rng = Graph("net"), np.random.default_rng(0)
    x = graph.input("x", "float32", (None, 16))
    w = graph.const(rng.normal(size=(16, 16)).astype(np.float32), "w")
    v = w if shared else graph.const(rng.normal(size=(16, 16)).astype(np.float32), "v")
    h = graph.add("relu", graph.add("matmul", x, w))
    graph.outputs["y"] = graph.add("matmul", h, v)
    return graph


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("profile", ["int8", "int4", "per-channel"])
def test_large_weights_are_stored_as_codes(tmp_path, profile, shared) -> None:
    samples = {"x": np.random.default_rng(1).normal(size=(16, 16)).astype(np.float32)}
    made = quantize(wide_network(shared=shared), samples, profile=PROFILES[profile], effort="plain")
    out = made.save(tmp_path / "out")
    names = {"w"} if shared else {"w", "v"}
    assert not {f"constant/{name}" for name in names} & read_arrays(out / "network.npz").keys()
    graph = load_network(out).graph
    assert print_graph(graph) == print_graph(on_grid(made.graph)[0])
    assert any((graph.constant(n) != made.graph.constant(n)).any() for n in names)
    for floats in (made.floating, load_float(out)):
        np.testing.assert_array_equal(floats.constant("w"), made.floating.constant("w"))
    assert read_arrays(out / "float.npz").keys() == {f"steps/{name}" for name in names}
    found, wanted = (g.outputs(samples) for g in (Reference(graph), made.reference()))
    np.testing.assert_array_equal(found["y"], wanted["y"])


def test_codes_that_were_changed_are_named(tmp_path) -> None:
    samples = {"x": np.ones((4, 16), np.float32)}
    out = quantize(wide_network(), samples, effort="plain").save(tmp_path / "out")
    arrays = read_arrays(out / "tensors.npz")
    (name,) = (key for key in arrays if key.startswith("codes/w"))
    arrays[name][0, 0] ^= 1
    write_npz(out / "tensors.npz", arrays)
    with pytest.raises(LoadError, match="was changed or damaged"):
        load_network(out)
