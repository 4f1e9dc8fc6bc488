"""The training graph as a SavedModel: equal to ours, and trained where qgraph is not installed."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import qgraph
from qgraph import retrain
from qgraph.errors import LoadError
from qgraph.ir.graph import Graph
from qgraph.train.freezing import Freezing
from qgraph.train.fused import fused_ops
from qgraph.train.model import TrainingGraph
from qgraph.train.module import learn
from qgraph.train.optimizer import Rate, TqtAdam
from qgraph.train.saved_graph.checkpoint import read_tensorflow_checkpoint
from qgraph.train.tqt import TQT, ScaledOps, tqt_with
from tests.helpers.cli import run
from tests.helpers.layers import WINDOW
from tests.helpers.sources import needs_sources
from tests.helpers.trained import SIZE, images

SCRIPT = Path(__file__).parents[2] / "examples" / "train_saved_model.py"
EPOCHS, COUNT, BATCH = 5, 128, 32
FORMS = [
    "stock",
    pytest.param("library", marks=pytest.mark.skipif(not fused_ops().ops, reason="no library")),
]
ALONE = "import sys, runpy; sys.modules['qgraph'] = None; sys.argv = sys.argv[1:]; "
GRADIENTS = """
import sys, numpy as np, tensorflow as tf
folder, data, out = sys.argv[1:]
for library in tf.io.gfile.glob(f"{folder}/ops.so"):
    tf.load_op_library(library)
model, x, found = tf.saved_model.load(folder), np.load(data)["image"][:8], {}
for frozen in (False, True):
    with tf.GradientTape() as tape:
        y = model(x, training=True, norms_frozen=frozen)["scores"]
        loss = tf.reduce_sum(y * y)
    found[f"y {frozen}"] = y
    variables = [*model.kernels, *model.gammas, *model.thresholds]
    for i, g in enumerate(tape.gradient(loss, variables)):
        found[f"gradient {frozen} {i}"] = g
found["inference"] = model(x)["scores"]
found["served"] = model.signatures["serving_default"](image=tf.constant(x))["scores"]
np.savez(out, **found)
"""


def alone(code: str, *arguments: object) -> None:
    """Run Python code in a process that cannot import qgraph."""
    command = [sys.executable, "-c", ALONE + code, "-", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def network() -> Graph:
    """A convolution, a batch norm, ReLU6, a dense layer and a softmax."""
    rng, net = np.random.default_rng(0), Graph("net")
    x = net.input("image", "float32", (None, SIZE, SIZE, 3))
    kernel = net.const(rng.normal(size=(3, 3, 3, 4)).astype("float32") / 100, "kernel")
    x = net.add("conv2d", x, kernel, name="conv", attrs={**WINDOW, "padding": "valid"})
    moments = {"gamma": (1, 2), "beta": (0, 1), "mean": (-1, 1), "variance": (1, 2)}
    given = [net.const(rng.uniform(*r, 4).astype("float32"), n) for n, r in moments.items()]
    x = net.add("batch_norm", x, *given, name="norm", attrs={"epsilon": 1e-3})
    x = net.add("mean", net.add("relu6", x), attrs={"axes": (1, 2), "keepdims": False})
    x = net.add("matmul", x, net.const(rng.normal(size=(4, 5)).astype("float32"), "dense"))
    x = net.add("bias_add", x, net.const(np.zeros(5, "float32"), "bias"))
    net.outputs["scores"] = net.add("softmax", x, attrs={"axis": -1})
    return net


@pytest.fixture(scope="module", params=FORMS)
def form(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def folder(tmp_path_factory, form: str) -> Path:
    """A training directory with its training graph, and `train.npz` beside it."""
    place = tmp_path_factory.mktemp(form)
    made = qgraph.quantize(network(), images(), mode="retrain", profile="graffitist-int4")
    out = retrain.save(made, place / "out")
    retrain.save_training_graph(out, form)
    labels = np.random.default_rng(0).integers(0, 5, COUNT)
    np.savez(place / "train.npz", image=images(COUNT), labels=labels)
    return out


def training(folder: Path, form: str) -> TrainingGraph:
    """Ours; the ops one by one, where the other one has TensorFlow's only."""
    found = retrain.load(folder)
    kind = tqt_with(ScaledOps(epilogue=lambda: None)) if form == "stock" else TQT
    return TrainingGraph(found.graph, found.norms, kind=kind)


def variables_of(network: TrainingGraph) -> list:
    return [*network.kernels, *network.gammas, *network.thresholds]


def test_outputs_and_gradients_are_ours(folder: Path, form: str) -> None:
    data, found = folder.parent / "train.npz", folder.parent / "found.npz"
    alone(GRADIENTS, folder / "training_graph", data, found)
    theirs, x = np.load(found), np.load(data)["image"][:8]
    ours = training(folder, form)
    for frozen in (False, True):
        with tf.GradientTape() as tape:
            run = tf.function(
                lambda x, of_batch: learn(ours, {"image": x}, batch_statistics=of_batch)
            )
            y = run(x, not frozen)["scores"]
            loss = tf.reduce_sum(y * y)
        np.testing.assert_array_equal(theirs[f"y {frozen}"], y)
        for i, gradient in enumerate(tape.gradient(loss, variables_of(ours))):
            np.testing.assert_array_equal(theirs[f"gradient {frozen} {i}"], gradient)
    inferred = tf.function(ours)({"image": x})["scores"]
    np.testing.assert_array_equal(theirs["inference"], inferred)
    np.testing.assert_array_equal(theirs["served"], inferred)


@pytest.fixture(scope="module")
def checkpoint(folder: Path) -> Path:
    """The checkpoint of the script of the examples, run alone."""
    made = folder.parent / "trained"
    script = f"runpy.run_path({str(SCRIPT)!r})"
    alone(script, folder / "training_graph", folder.parent / "train.npz", made, EPOCHS)
    return made


@needs_sources
def test_a_script_without_us_trains_as_our_optimizer(folder, form, checkpoint) -> None:
    """The same bits in all variables, after the same batches."""
    ours, data = training(folder, form), np.load(folder.parent / "train.npz")
    network = json.loads((folder / "training.json").read_text())["network"]
    before = ours.arrays()
    freezing = Freezing(ours.quantizers.ranges)
    optimizer = TqtAdam(Rate(1e-3, 1.0, 10**6), Rate(1e-2, 1.0, 10**6), freezing)
    variables = variables_of(ours)

    @tf.function
    def step(x, y, of_batch):
        with tf.GradientTape() as tape:
            outputs = learn(ours, {"image": x}, batch_statistics=of_batch)["scores"]
            likely = tf.gather(outputs, y, batch_dims=1)
            loss = -tf.reduce_mean(tf.math.log(tf.maximum(likely, 1e-7)))
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))

    order = np.random.default_rng(0)
    for epoch in range(EPOCHS):
        for batch in np.split(order.permutation(COUNT), range(BATCH, COUNT, BATCH)):
            step(data["image"][batch], data["labels"][batch].astype("int32"), epoch == 0)
    theirs = read_tensorflow_checkpoint(checkpoint, network, before).variables
    for name, value in ours.arrays().items():
        assert not np.array_equal(value, before[name]), name
        np.testing.assert_array_equal(theirs[name], value, err_msg=name)


@pytest.fixture(scope="module")
def meta_graphs(tmp_path_factory, folder: Path) -> Path:
    """A copy of the training directory with MetaGraphs, and `train.npz` beside it."""
    place = tmp_path_factory.mktemp("metagraph")
    made = qgraph.quantize(network(), images(), mode="retrain", profile="graffitist-int4")
    out = retrain.save(made, place / "out")
    retrain.save_training_graph(out, "metagraph")
    (place / "train.npz").write_bytes((folder.parent / "train.npz").read_bytes())
    return out


@needs_sources
def test_sessions_train_as_our_optimizer(meta_graphs: Path, form: str, checkpoint: Path) -> None:
    """Near to the SavedModel of stock ops after the same batches: sums may be rounded apart."""
    if form != "stock":
        pytest.skip("MetaGraphs have stock ops")
    script, made = SCRIPT.with_name("train_meta_graph.py"), meta_graphs.parent / "trained"
    graph = meta_graphs / "training_graph"
    script_run = f"runpy.run_path({str(script)!r})"
    alone(script_run, graph, meta_graphs.parent / "train.npz", made, EPOCHS)
    found = json.loads((meta_graphs / "training.json").read_text())["network"]
    before = training(meta_graphs, form).arrays()
    ours = read_tensorflow_checkpoint(checkpoint, found, before).variables
    theirs = read_tensorflow_checkpoint(made, found, before).variables
    for name, value in ours.items():
        assert not np.array_equal(theirs[name], before[name]), name
        scale = np.abs(value).max() + 1e-9
        np.testing.assert_allclose(theirs[name], value, rtol=1e-4, atol=1e-4 * scale, err_msg=name)
    done = run("finalize", meta_graphs, "--checkpoint", made)
    assert done.code == 0, done.err
    assert run("verify", meta_graphs / "inference").code == 0


@needs_sources
def test_finalize_takes_the_checkpoint(folder: Path, checkpoint: Path) -> None:
    done = run("finalize", folder, "--checkpoint", checkpoint)
    assert done.code == 0, done.err
    assert run("verify", folder / "inference").code == 0
    again = retrain.finalize(folder, checkpoint=checkpoint.with_name("trained.index"))
    assert again.graph.outputs == retrain.load(folder).graph.outputs


@needs_sources
def test_checkpoints_of_something_else_are_refused(folder, checkpoint, tmp_path) -> None:
    with pytest.raises(LoadError, match="is not a checkpoint of the training graph"):
        retrain.finalize(folder, checkpoint=tmp_path / "missing")
    tf.train.Checkpoint(v=tf.Variable(1.0)).write(str(tmp_path / "other"))
    with pytest.raises(LoadError, match="no object in it has the variables of this network"):
        retrain.finalize(folder, checkpoint=tmp_path / "other")
    before = TrainingGraph(retrain.load(folder).graph, retrain.load(folder).norms).arrays()
    with pytest.raises(LoadError, match="from another network"):
        read_tensorflow_checkpoint(checkpoint, "f" * 64, before)
    with pytest.raises(LoadError, match="`ranges` is float32 of shape"):
        wrong = {**before, "ranges": np.zeros(1, np.float32)}
        network = json.loads((folder / "training.json").read_text())["network"]
        read_tensorflow_checkpoint(checkpoint, network, wrong)
    both = run("finalize", folder, "--last", "--checkpoint", checkpoint)
    assert both.code == 2 and "exclude each other" in both.err


def test_training_graphs_are_of_retrain_mode(tmp_path: Path) -> None:
    wrong = run("quantize", tmp_path / "net.pb", "--training-graph", "stock")
    assert wrong.code == 2 and "--training-graph is for --mode retrain" in wrong.err
