"""Any number of observations, in the order in which a policy takes them."""

import numpy as np
import pytest

from qgraph.errors import CalibrationError, QGraphError, UsageError
from qgraph.ir.graph import Graph
from qgraph.rl.actor import Actor, Packer
from qgraph.rl.actor.observations import layout_hint
from qgraph.rl.head import Head
from qgraph.rl.policy import Policy, floats, pack, play, read_policy
from tests.helpers.cli import run

IMAGE, ROW = (4, 5, 3), 4 * 5 * 3


def images(n=40, seed=0):
    return np.random.default_rng(seed).uniform(0, 1, (n, *IMAGE)).astype(np.float32)


def image_policy(batch, first=False, fixed=False):
    """Images of [h, w, c], or of [c, h, w] that are turned, to three numbers.

    fixed: the reshape names the batch, as exporters write it that trace with one.
    """
    rng, graph = np.random.default_rng(0), Graph("images")
    shape = (IMAGE[2], *IMAGE[:2]) if first else IMAGE
    x = graph.input("seen", "float32", (batch, *shape))
    if first:
        x = graph.add("transpose", x, attrs={"perm": (0, 2, 3, 1)})
    kernel = graph.const(rng.normal(size=(1, 1, 3, 3)).astype("f"))
    window = {"strides": (1, 1), "padding": ((0, 0), (0, 0)), "dilations": (1, 1)}
    x = graph.add("relu", graph.add("conv2d", x, kernel, attrs=window))
    x = graph.add("reshape", x, attrs={"shape": (batch if fixed else -1, ROW)})
    last = graph.const(rng.normal(size=(ROW, 3)).astype("f") / 8)
    graph.outputs = {"out": graph.add("matmul", x, last)}
    return graph


def outputs(network, x):
    return floats.run(network.program, network.weights, x)["out"]


@pytest.mark.parametrize("form", ["dynamic", "static"])
@pytest.mark.parametrize("batch", [1, 5])
@pytest.mark.parametrize("first", [False, True])
def test_policies_of_a_fixed_batch_take_any_number(form, batch, first):
    x = images()
    network = read_policy(image_policy(batch, first, fixed=True))
    wanted = outputs(read_policy(image_policy(None, first)), x)
    np.testing.assert_array_equal(outputs(network, x), wanted)
    policy = Policy(pack(network, Head("argmax"), 8, form, x))
    found = policy.outputs(x)
    assert np.abs(found - wanted).max() < 0.05
    for n in (1, 3, 40):
        np.testing.assert_array_equal(policy.outputs(x[:n]), found[:n])


def test_observations_of_ambiguous_shape_are_refused():
    graph = Graph("mixed")
    x = graph.input("seen", "float32", (4, 6))
    x = graph.add("reshape", x, attrs={"shape": (2, 12)})
    graph.outputs = {"out": graph.add("matmul", x, graph.const(np.ones((12, 2), np.float32)))}
    with pytest.raises(QGraphError):
        network = read_policy(graph)
        pack(network, None, 8, "static", np.zeros((20, 6), np.float32))


def turned(x, first):
    return np.moveaxis(x, -1, -3) if first else x


WAYS = {
    "[c, h, w], the policy takes [h, w, c]": (True, "-3, -1"),
    "[h, w, c], the policy takes [c, h, w]": (False, "-1, -3"),
}


@pytest.mark.parametrize("said", WAYS)
def test_images_with_channels_at_the_other_end_are_recognised(said):
    first, move = WAYS[said]
    rng, x = np.random.default_rng(0), turned(images(), first)
    shape = IMAGE if first else (IMAGE[2], *IMAGE[:2])
    graph = Graph("flat")
    seen = graph.input("seen", "float32", (None, *shape))
    flat = graph.add("reshape", seen, attrs={"shape": (-1, ROW)})
    last = graph.const(rng.normal(size=(ROW, 3)).astype("f"))
    graph.outputs = {"out": graph.add("matmul", flat, last)}
    network = read_policy(graph)
    assert network.program.shape == shape
    policy = Policy(pack(network, Head("argmax")))
    actor = Actor(Packer(network.program, 8).pack(network.weights))
    for takes in (policy, policy.outputs, actor):
        for given in (x, x[0]):
            with pytest.raises(UsageError) as caught:
                takes(given)
            assert said in str(caught.value)
    with pytest.raises(CalibrationError) as caught:
        pack(network, Head("argmax"), observations=x)
    assert said in str(caught.value)
    (line,) = [line for line in str(caught.value).splitlines() if "moveaxis" in line]
    assert f"moveaxis(x, {move})" in line
    axes = tuple(map(int, move.split(", ")))
    assert policy(np.moveaxis(x, *axes)).shape == (40,)


def test_other_shapes_are_not_taken_for_turned_images():
    assert layout_hint((5, 4, 3), (4, 5, 3)) is None
    assert layout_hint((7, 4, 5, 3), (4, 5, 3)) is None
    assert layout_hint((3, 4), (4, 3)) is None
    assert layout_hint((9, 3, 4, 5), (4, 5, 3)) is not None


class Painted:
    shape, dtype = (IMAGE[2], *IMAGE[:2]), np.float32

    def __init__(self):
        from qgraph.rl.environments import Actions

        self.actions = Actions(count=3)

    def close(self):
        pass


def test_verbs_say_it_of_an_environment_and_of_a_file(tmp_path, monkeypatch):
    import onnx
    from onnx import helper, numpy_helper

    from qgraph.rl import environments

    weights = numpy_helper.from_array(np.ones((ROW, 3), np.float32), "w")
    info = helper.make_tensor_value_info
    nodes = [helper.make_node("Flatten", ["seen"], ["flat"]),
             helper.make_node("MatMul", ["flat", "w"], ["out"])]  # fmt: skip
    given = [info("seen", onnx.TensorProto.FLOAT, ["n", *IMAGE])]
    made = [info("out", onnx.TensorProto.FLOAT, ["n", 3])]
    graph = helper.make_graph(nodes, "p", given, made, [weights])
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), tmp_path / "p.onnx")
    for place in (environments, play):
        monkeypatch.setattr(place, "make", lambda name: Painted())
    pack_it = ("rl", "quantize", tmp_path / "p.onnx", "-o", tmp_path / "p.qpol")
    np.save(tmp_path / "seen.npy", turned(images(), True))
    for done, code in (
        (run(*pack_it, "--env", "Painted"), 2),
        (run("rl", "evaluate", tmp_path / "p.onnx", "--env", "Painted", "--episodes", 1), 2),
        (run(*pack_it, "--observations", tmp_path / "seen.npy"), 6),
    ):
        assert done.code == code and "numpy.moveaxis(x, -3, -1)" in done.err, done.err
    assert not (tmp_path / "p.qpol").exists()
