"""Training begins from exactly the network that static mode makes by the same plan."""

from functools import cache

import numpy as np
import pytest
import tensorflow as tf

import qgraph
from qgraph import retrain
from qgraph.errors import LoadError
from qgraph.exact.reference import Reference
from qgraph.ir.graph import Graph
from qgraph.numerics import quantize
from qgraph.quant.topology import QUANTIZERS
from qgraph.train.data import ArrayBatches, split_held_out
from qgraph.train.options import Options
from tests.helpers import retraining
from tests.helpers.trained import images, trained

PLANS = (
    "constant-channels=0.03,equalize=biases,method=mse,correct-bias",
    "reconstruct",
    "equalize=weights,absorb,reconstruct,correct-bias",
)
# One model for both modes: Keras counts up the names of those it makes.
NETWORKS = {
    "norms": (cache(retraining.keras_network), retraining.images),
    "norms before layers": (cache(retraining.network_of_other_norms), retraining.images),
    "graph": (trained, images),
}


def codes(graph: Graph) -> dict[str, np.ndarray]:
    """Codes of every quantized constant."""
    found = {}
    for node in graph.topological():
        value = graph.constant(node.inputs[0]) if node.op in QUANTIZERS else None
        if value is not None:
            found[node.name] = quantize(value, node.attrs["spec"]).codes
    return found


def specs(graph: Graph) -> dict[str, object]:
    return {n.name: n.attrs["spec"] for n in graph.topological() if n.op in QUANTIZERS}


@pytest.mark.parametrize("profile", ["graffitist-int8", "graffitist-int4"])
@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("network", NETWORKS)
def test_the_untrained_graph_is_the_static_network(network, plan, profile):
    make, data = NETWORKS[network]
    static = qgraph.quantize(make(), data(), profile=profile, plan=plan)
    begun = qgraph.quantize(make(), data(), profile=profile, plan=plan, mode="retrain")
    made = retrain.module(begun).network.finalized()
    assert specs(made) == specs(static.graph)
    wanted = codes(static.graph)
    assert wanted.keys() == codes(made).keys()
    for name, found in codes(made).items():
        np.testing.assert_array_equal(found, wanted[name], err_msg=name)
    x = {static.graph.inputs[0]: data(8, seed=9)}
    for name, value in Reference(made).outputs(x).items():
        np.testing.assert_array_equal(value, Reference(static.graph).outputs(x)[name])


@pytest.mark.parametrize("profile", ["graffitist-int8", "graffitist-int4"])
def test_reconstructed_weights_begin_beside_the_trained_ones(profile):
    """On the grid, where reconstruction left them, small steps of training would change no code."""
    options = {"profile": profile, "plan": "reconstruct"}
    static = qgraph.quantize(trained(), images(), **options)
    begun = qgraph.quantize(trained(), images(), **options, mode="retrain")
    moved = 0
    for node in begun.graph.topological():
        spec = node.attrs.get("spec")
        if spec is None or spec.role != "weight":
            continue
        name, step = node.inputs[0], 2.0**-spec.exponent
        chosen, loose, float_weights = (
            graph.constant(name) for graph in (static.graph, begun.graph, begun.floating)
        )
        assert (np.abs(loose - float_weights) <= np.abs(chosen - float_weights)).all()
        # Closer to the edges of their codes, the first step of training would change the codes.
        assert (np.abs(loose - chosen) <= step / 4).all()
        same = np.abs(chosen - float_weights) < step / 4
        np.testing.assert_array_equal(loose[same], float_weights[same])
        moved += int((~same).sum())
    assert moved


def test_weights_that_were_not_chosen_stay():
    """Large weights that thresholds clip are not pulled to the ends of the range."""
    options = {"profile": "graffitist-int4", "plan": "weights=3sd"}
    static = qgraph.quantize(trained(), images(), **options)
    begun = qgraph.quantize(trained(), images(), **options, mode="retrain")
    for node in static.graph.topological():
        if node.op == "const":
            value = static.graph.constant(node.name)
            np.testing.assert_array_equal(begun.graph.constant(node.name), value)


def test_without_validation_data_some_training_data_is_held_apart(tmp_path):
    """Without it, the end of training would be taken, however bad."""
    made = retraining.quantized(tmp_path)
    retrain.save(made, tmp_path / "out")
    images_, labels = retraining.task(made.floating, 96)
    ruinous = Options(epochs=2, batch_size=16, weight_rate=3.0)
    run = retrain.train(tmp_path / "out", ({"image": images_}, labels), options=ruinous)
    assert run.data.samples == 72 and run.validation.samples == 24
    assert not set(run.data.index) & set(run.validation.index)
    assert run.best_score.step == 0 and run.history[-1].accuracy < run.best_score.accuracy


def shuffled(images_, labels, size=16):
    """A dataset that has another order each time."""
    data = tf.data.Dataset.from_tensor_slices(({"image": images_}, labels))
    return data.shuffle(len(labels), reshuffle_each_iteration=True).batch(size)


def test_without_validation_data_the_first_batches_of_a_dataset_are_kept(tmp_path):
    """Training never ends below where it began; a run that continues compares with the same."""
    made = retraining.quantized(tmp_path)
    retrain.save(made, tmp_path / "out")
    data = shuffled(*retraining.task(made.floating, 96))
    ruinous = Options(epochs=2, batch_size=16, weight_rate=3.0)
    run = retrain.train(tmp_path / "out", data, options=ruinous)
    assert run.validation.samples == 64 and run.validation.trained
    assert run.best_score.step == 0 and run.history[-1].accuracy < run.best_score.accuracy
    again = retrain.trainer(
        tmp_path / "out", data, None, Options(epochs=3, batch_size=16, weight_rate=3.0)
    )
    np.testing.assert_array_equal(again.validation.labels, run.validation.labels)
    for name, array in run.validation.inputs.items():
        np.testing.assert_array_equal(again.validation.inputs[name], array)
    anew = retrain.trainer(tmp_path / "out", data, None, ruinous, restart=True)
    assert anew.validation.samples == 64
    assert (anew.validation.labels != run.validation.labels).any()


def test_validation_samples_that_cannot_be_read_are_named(tmp_path):
    made = retraining.quantized(tmp_path)
    retrain.save(made, tmp_path / "out")
    data = shuffled(*retraining.task(made.floating, 96))
    retrain.trainer(tmp_path / "out", data)
    file = tmp_path / "out/checkpoints/validation.npz"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(LoadError, match="validation samples"):
        retrain.trainer(tmp_path / "out", data)


def test_a_dataset_of_few_samples_is_not_used_for_validation(tmp_path):
    made = retraining.quantized(tmp_path)
    retrain.save(made, tmp_path / "out")
    images_, labels = retraining.task(made.floating, 7)
    assert retrain.trainer(tmp_path / "out", shuffled(images_, labels)).validation is None


@pytest.mark.parametrize(("count", "held"), [(7, 0), (8, 2), (96, 24), (400, 64), (5000, 500)])
def test_held_apart_samples_are_spread_over_the_data(count, held):
    graph = Graph("net")
    graph.input("x", "float32", (None, 1))
    data = ArrayBatches({"x": np.arange(count, dtype="float32")[:, None]}, None, 4, 0)
    rest, apart = split_held_out(data, graph)
    if not held:
        assert (rest, apart) == (data, None)
        return
    seen = np.concatenate([batch.inputs["x"][:, 0] for batch in apart.batches(None)])
    assert len(seen) == held and rest.samples == count - held
    assert set(np.diff(seen)) <= {count // held, count // held + 1}
    learnt = np.concatenate([batch.inputs["x"][:, 0] for batch in rest.batches(0)])
    assert not set(learnt) & set(seen)
