"""A Keras network in half precision at every door, and all that is made of it."""

import json

import numpy as np
import pytest
import tf_keras as keras

from qgraph import retrain
from qgraph.compiler import quantize
from qgraph.frontends import load, load_keras
from qgraph.frontends.keras import freeze_model
from qgraph.interpret import evaluate
from qgraph.ir.printing import print_graph
from qgraph.passes import PassManager
from qgraph.recipes import CLEAN
from qgraph.runtime import Session
from qgraph.stored import load_network
from qgraph.train.options import Options
from qgraph.verification.verify import verify
from tests.helpers.c_programs import needs_compiler
from tests.helpers.cli import run
from tests.helpers.forms import OWN_PROFILES
from tests.helpers.retraining import images

POLICIES = ("mixed_float16", "mixed_bfloat16", "float16")
layers = keras.layers


def network(policy):
    """Its weights are drawn for float32, whatever the policy."""
    keras.utils.set_random_seed(3)
    keras.mixed_precision.set_global_policy(policy)
    try:
        image = keras.Input((8, 8, 3), name="image")
        x = layers.Conv2D(4, 3, padding="same", use_bias=False, name="first")(image)
        x = layers.ReLU(name="relu")(layers.BatchNormalization(name="norm")(x))
        x = layers.Add(name="sum")([x, layers.DepthwiseConv2D(3, padding="same", name="deep")(x)])
        x = layers.Dense(3, name="last")(layers.GlobalAveragePooling2D(name="pool")(x))
        y = layers.Activation("softmax", dtype="float32", name="scores")(x)
        return keras.Model(image, y, name="net")
    finally:
        keras.mixed_precision.set_global_policy("float32")


def through_door(model, door, folder):
    """`model` as a graph, read from a file of that kind."""
    if door == "memory":
        return load_keras(model)
    path = folder / f"net{door}"
    if door == ".pb":
        path.write_bytes(freeze_model(model).graph_def.SerializeToString())
    else:
        model.save(path, save_format="tf" if not door else None)
    return load(path)


@pytest.mark.parametrize("door", ["memory", ".h5", ".keras", "", ".pb"])
@pytest.mark.parametrize("policy", POLICIES)
def test_half_precision_is_read_as_float32(policy, door, tmp_path):
    model, twin = network(policy), network("float32")
    values = [w.astype("float16") for w in twin.get_weights()]
    for one in (model, twin):
        one.set_weights([v.astype("float32") for v in values])
    graphs = [through_door(one, door, tmp_path) for one in (model, twin)]
    assert [len(g.notes) for g in graphs] == [1, 0]
    for graph in graphs:
        PassManager(CLEAN).run(graph)
    assert {t.dtype for t in graphs[0].types.values()} == {"float32"}
    x = {graphs[0].inputs[0]: images()}
    found, wanted = (next(iter(evaluate(g, x).values())) for g in graphs)
    np.testing.assert_array_equal(found, wanted)
    if door != "":
        assert print_graph(graphs[0]) == print_graph(graphs[1])


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a model, samples in float16, and what the command line made of them."""
    folder = tmp_path_factory.mktemp("half")
    network("mixed_bfloat16").save(folder / "net.h5")
    np.savez(
        folder / "x.npz", image=images().astype("float16"), labels=np.arange(len(images())) % 3
    )
    np.savez(folder / "inputs.npz", image=images().astype("float16"))
    done = run("quantize", folder / "net.h5", "-c", folder / "inputs.npz", "-o", folder / "out",
               "--effort", "plain")  # fmt: skip
    assert done.code == 0, done.err
    (folder / "log").write_text(done.out)
    return folder


def test_the_user_is_informed_once(place):
    manifest = json.loads((place / "out" / "manifest.json").read_text())
    assert len(manifest["notes"]) == 1
    for text in ((place / "log").read_text(), run("inspect", place / "net.h5").out):
        assert text.count("is imported as float32") == 1


@needs_compiler
def test_every_form_is_exact(place):
    network = load_network(place / "out")
    assert {t.dtype for t in network.graph.types.values()} == {"float32"}
    assert {a.dtype.name for a in (*network.sample.values(), *network.samples.values())} == {
        "float32"
    }
    checked = verify(place / "out")
    assert checked.equal and checked.refused.keys() <= {*OWN_PROFILES}


def test_inputs_in_float16_are_run(place):
    done = run("run", place / "out", "--input", place / "inputs.npz", "-o", place / "y.npz")
    assert done.code == 0, done.err
    half = images().astype("float16")
    wanted = Session.open(place / "out").run({"image": half.astype("float32")})
    with np.load(place / "y.npz") as found:
        np.testing.assert_array_equal(found["scores"], wanted["scores"])
    assert run("report", place / "out").code == 0


def test_it_can_be_retrained(place):
    retrain.save(quantize(place / "net.h5", {"image": images()}, mode="retrain"), place / "train")
    retrain.train(place / "train", place / "x.npz", None, Options(epochs=1))
    retrain.finalize(place / "train").save(place / "trained")
    manifest = json.loads((place / "trained" / "manifest.json").read_text())
    assert len(manifest["notes"]) == 1
    assert verify(place / "trained", forms=["tensorflow", "engine"]).equal
