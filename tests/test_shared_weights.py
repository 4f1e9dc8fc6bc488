"""Weights that layers share are one constant: in the graph, in directories, in every form."""

import numpy as np
import onnx
import pytest
import tensorflow as tf
import tf_keras as keras
from onnx import helper
from tensorflow.python.framework import convert_to_constants

from qgraph import quantize, retrain
from qgraph.exports import export
from qgraph.ir.graph import Graph
from qgraph.quantized import Quantized
from qgraph.stored import load_network
from qgraph.train.options import Options
from qgraph.train.state import constants_of
from qgraph.verification.verify import verify
from tests.helpers.c_programs import needs_compiler
from tests.helpers.forms import ANY_PROFILE, OWN_PROFILES
from tests.helpers.onnx_graphs import model_of

WIDTH = 64
WEIGHTS = WIDTH * WIDTH


def recurrent(steps: int, width: int = WIDTH) -> onnx.ModelProto:
    """One matrix and one bias used by so many layers, as an unrolled recurrent layer has them."""
    rng = np.random.default_rng(0)
    w = rng.normal(size=(width, width)).astype(np.float32) / np.float32(width**0.5)
    nodes, x = [], "x"
    for i in range(steps):
        gemm = helper.make_node("Gemm", [x, "w", "b"], [f"g{i}"], transB=1)
        nodes += [gemm, helper.make_node("Tanh", [f"g{i}"], [f"t{i}"])]
        x = f"t{i}"
    constants = {"w": w, "b": rng.normal(size=width).astype(np.float32)}
    return model_of(nodes, {"x": ["N", width]}, [x], constants)


def data_for(model) -> dict:
    rng = np.random.default_rng(1)
    feeds = (model.graph.input[0].name, [d.dim_value or 32 for d in _dims(model)])
    return {feeds[0]: rng.normal(size=feeds[1]).astype(np.float32)}


def _dims(model):
    return model.graph.input[0].type.tensor_type.shape.dim


def made_from(model, folder, **options) -> Quantized:
    path = folder / "model.onnx"
    onnx.save(model, path)
    return quantize(path, data_for(model), **({"effort": "plain"} | options))


def numbers(graph: Graph) -> int:
    return sum(n.attrs["value"].size for n in graph.nodes.values() if n.op == "const")


def weight_quantizers(graph: Graph) -> list[str]:
    quantizers = (n for n in graph.nodes.values() if n.op == "quantize")
    return [n.name for n in quantizers if n.attrs["spec"].role == "weight"]


def size_of(path) -> int:
    files = [path] if path.is_file() else [f for f in path.rglob("*") if f.is_file()]
    # Test vectors and indexes describe each layer; they hold no weights.
    return sum(f.stat().st_size for f in files if "json" not in f.name and f.parts[-3] != "places")


@pytest.fixture(scope="module")
def sizes(tmp_path_factory):
    """Bytes by file of the output directory and by form, for 2 and for 6 uses of one matrix."""
    found = {}
    for steps in (2, 6):
        folder = tmp_path_factory.mktemp(f"steps{steps}")
        out = made_from(recurrent(steps), folder).save(folder / "out")
        network = load_network(out)
        sizes = {f.name: size_of(f) for f in out.iterdir()}
        for name in ANY_PROFILE:
            export(network, name, folder / name)
            held = folder / name / "constants" if name == "vectors" else folder / name
            sizes[name] = size_of(held)
        found[steps] = sizes
    return found


@pytest.mark.parametrize("name", ["inference.pb", "network.npz", "tensors.npz", *ANY_PROFILE])
def test_four_more_uses_take_less_than_four_copies(sizes, name) -> None:
    grown = sizes[6][name] - sizes[2][name]
    # What each use adds: names, a bias, activations of a sample; table and scales once.
    files = {"inference.pb": 4, "network.npz": 4, "tensorflow": 2}  # the last: two with codes
    copies = 4 * WEIGHTS * files.get(name, 1)
    assert grown < copies, (grown, copies)


@pytest.mark.parametrize("name", ["onnx-qdq", "qonnx", "onnx-integer"])
def test_onnx_forms_hold_the_matrix_once(tmp_path, name) -> None:
    out = made_from(recurrent(4), tmp_path).save(tmp_path / "out")
    export(load_network(out), name, tmp_path / "form")
    model = onnx.load(next((tmp_path / "form").glob("*.onnx")))
    matrices = [i for i in model.graph.initializer if [*i.dims] == [WIDTH, WIDTH]]
    # ONNX Runtime is only exact with QDQ if weights are int32 wherever an input is not 8 bits.
    assert len({i.data_type for i in matrices}) == len(matrices) <= (2 if name == "onnx-qdq" else 1)


@needs_compiler
def test_every_form_computes_what_the_reference_does(tmp_path) -> None:
    out = made_from(recurrent(4, 16), tmp_path).save(tmp_path / "out")
    found = verify(out)
    assert found.equal and found.refused.keys() <= {*OWN_PROFILES}
    assert set(found.compared.tallies) == set(ANY_PROFILE)


def test_one_quantizer_and_one_variable_for_a_matrix_of_many_layers(tmp_path) -> None:
    for options in ({"effort": "plain"}, {"effort": "thorough"}, {"mode": "retrain"}):
        made = made_from(recurrent(4, 16), tmp_path, **options)
        assert len(weight_quantizers(made.graph)) == 1, options
        shapes = [n.attrs["value"].shape for n in made.graph.nodes.values() if n.op == "const"]
        assert shapes.count((16, 16)) == 1, options
    assert len(constants_of(made.graph)) == 2


def test_copies_that_an_exporter_made_are_one_constant(tmp_path) -> None:
    model = recurrent(4, 16)
    kept = model.graph.initializer[0]
    for i, node in enumerate(n for n in model.graph.node if n.op_type == "Gemm"):
        copy = onnx.TensorProto()
        copy.CopyFrom(kept)
        copy.name = node.input[1] = f"w{i}"
        model.graph.initializer.append(copy)
    model.graph.initializer.remove(kept)
    made = made_from(model, tmp_path)
    assert numbers(made.graph) == 16 * 17


def test_transposed_views_of_an_embedding_stay_two_constants(tmp_path) -> None:
    """W for the projection, its transpose for the logits, three times: W and W^T are held once."""
    w = np.random.default_rng(0).normal(size=(12, 8)).astype(np.float32)
    nodes, x = [], "x"
    for i in range(3):
        nodes += [
            helper.make_node("MatMul", [x, "w"], [f"h{i}"]),
            helper.make_node("Relu", [f"h{i}"], [f"r{i}"]),
            helper.make_node("Gemm", [f"r{i}", "w"], [f"y{i}"], transB=1),
        ]
        x = f"y{i}"
    made = made_from(model_of(nodes, {"x": ["N", 12]}, [x], {"w": w}), tmp_path)
    assert numbers(made.graph) == 2 * w.size
    assert len(weight_quantizers(made.graph)) == 2


def siamese() -> keras.Model:
    """A convolution, its batch norm and a dense layer called on two inputs."""
    keras.utils.set_random_seed(0)
    conv = keras.layers.Conv2D(4, 3, padding="same", name="conv")
    norm = keras.layers.BatchNormalization(
        gamma_initializer=keras.initializers.RandomUniform(0.5, 2),
        moving_mean_initializer="random_normal",
        beta_initializer="random_normal",
        name="norm",
    )
    dense = keras.layers.Dense(5, name="dense")
    inputs = [keras.layers.Input((6, 6, 2), name=name) for name in ("left", "right")]
    towers = [
        dense(keras.layers.GlobalMaxPooling2D()(keras.layers.ReLU()(norm(conv(x))))) for x in inputs
    ]
    return keras.Model(inputs, keras.layers.Add()(towers))


def pairs(count: int = 32) -> dict:
    rng = np.random.default_rng(2)
    return {
        name: rng.normal(size=(count, 6, 6, 2)).astype(np.float32) for name in ("left", "right")
    }


@pytest.mark.parametrize("mode", ["static", "retrain"])
def test_layers_of_two_towers_stay_shared(tmp_path, mode) -> None:
    model = siamese()
    model.save(tmp_path / "model.h5")
    made = quantize(tmp_path / "model.h5", pairs(), mode=mode)
    for graph in (made.graph, made.floating):
        shapes = [n.attrs["value"].shape for n in graph.nodes.values() if n.op == "const"]
        assert shapes.count((3, 3, 2, 4)) == 1 and shapes.count((4, 5)) == 1
    assert len(weight_quantizers(made.graph)) == 2


@needs_compiler
def test_every_form_carries_two_towers(tmp_path) -> None:
    siamese().save(tmp_path / "model.h5")
    found = verify(quantize(tmp_path / "model.h5", pairs()).save(tmp_path / "out"))
    assert found.equal and found.refused.keys() <= {*OWN_PROFILES}


def test_towers_are_trained_by_one_variable_each(tmp_path) -> None:
    siamese().save(tmp_path / "model.h5")
    made = quantize(tmp_path / "model.h5", pairs(), mode="retrain")
    retrain.save(made, tmp_path / "run")
    labels = np.random.default_rng(0).integers(0, 5, 32)
    np.savez(tmp_path / "data.npz", labels=labels, **pairs())
    retrain.train(tmp_path / "run", tmp_path / "data.npz", None, Options(epochs=1))
    graph = retrain.finalize(tmp_path / "run", last=True).graph
    shapes = [n.attrs["value"].shape for n in graph.nodes.values() if n.op == "const"]
    assert shapes.count((3, 3, 2, 4)) == 1 and shapes.count((4, 5)) == 1


def test_a_constant_of_several_convolutions_of_a_frozen_graph(tmp_path) -> None:
    w = np.random.default_rng(0).normal(size=(3, 3, 4, 4)).astype(np.float32) / 6

    @tf.function
    def network(x):
        kernel = tf.constant(w)
        for _ in range(3):
            x = tf.nn.relu(tf.nn.conv2d(x, kernel, 1, "SAME"))
        return tf.identity(x, name="y")

    concrete = network.get_concrete_function(tf.TensorSpec((None, 5, 5, 4), name="x"))
    frozen = convert_to_constants.convert_variables_to_constants_v2(concrete)
    (tmp_path / "net.pb").write_bytes(frozen.graph.as_graph_def().SerializeToString())
    x = np.random.default_rng(1).normal(size=(16, 5, 5, 4)).astype(np.float32)
    made = quantize(tmp_path / "net.pb", {"x": x})
    assert numbers(made.graph) == w.size and len(weight_quantizers(made.graph)) == 1
