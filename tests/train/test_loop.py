"""The training loop: what it learns, what it leaves alone, where it stops, how it continues."""

import errno
import os
import shutil
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from qgraph.choices import LossKind
from qgraph.errors import CalibrationError, LoadError, OutputError, TrainingError, UsageError
from qgraph.ir.graph import Graph
from qgraph.ir.ops.linear import COMPUTE
from qgraph.quant.topology import value_exponent
from qgraph.quantized import Quantized
from qgraph.train.checkpoint import Checkpoint, read_checkpoint, restore
from qgraph.train.data import ArrayBatches, LabelledBatch
from qgraph.train.loop import BEST, LAST, Trainer
from qgraph.train.options import Options
from qgraph.train.score import Score
from tests.helpers import retraining
from tests.helpers.retraining import batches, images, trainer
from tests.train.test_training_graph import assert_is_inference

FAST = Options(epochs=2, batch_size=16, weight_rate=3e-3, threshold_rate=1e-2)
LABELS = pytest.mark.parametrize("loss", list(LossKind))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return retraining.quantized(tmp_path_factory.mktemp("net"))


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    return tmp_path / "checkpoints"


def values(run: Trainer) -> dict[str, np.ndarray]:
    return {name: v.numpy() for name, v in run._variables().items()}


def assert_same(found: dict, wanted: dict) -> None:
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


# -- learning ---------------------------------------------------------------------------------


def score_of_float(made: Quantized, options: Options) -> Score:
    """Validation score of the float network that `made` comes from."""
    data, floating = batches(made), made.floating
    validation = batches(made, seed=3)
    run = Trainer(floating, floating, (), data, validation, replace(options, epochs=1))
    run.run()
    return run.history[0]


@LABELS
def test_training_wins_back_most_of_what_quantization_costs_and_is_still_inference(made, loss):
    """The loss of the float network, not a share of the first loss, is what training can reach."""
    options = Options(epochs=8, batch_size=16, weight_rate=3e-3, loss=loss)
    run = trainer(made, options)
    run.run()
    floating, first, best = score_of_float(made, options), run.history[0], run.best_score
    assert first.loss > floating.loss
    assert best.loss - floating.loss < 0.5 * (first.loss - floating.loss)
    if loss != "mse":
        assert best.accuracy > first.accuracy
    assert_is_inference(run.model, {made.graph.inputs[0]: images(16, seed=9)})


def test_the_float_network_learns_in_the_same_way(made):
    """Without quantizers, with batch norms at work: what retrained float networks stand for."""
    run = trainer(made, FAST)
    floating = Trainer(
        made.floating, made.floating, (), run.data, run.validation, Options(epochs=2, loss="labels")
    )
    floating.run()
    assert floating.history[0].accuracy == 1.0
    assert not floating.model.thresholds


@pytest.mark.parametrize("learn", ["weights", "thresholds"])
def test_what_is_not_to_learn_stays(made, learn):
    run = trainer(made, Options(epochs=1, batch_size=16, weight_rate=1e-3, learn=learn))
    before = values(run)
    run.run()
    after = values(run)
    moved = {name for name in before if not np.array_equal(before[name], after[name])}
    weights = {n for n in before if n.startswith(("constant/", "gamma/"))}
    assert moved & weights == (weights if learn == "weights" else set())
    assert ("ranges" in moved) == (learn == "thresholds")


@pytest.fixture
def clipped(made):
    """A network whose layers each have a weight far beyond the threshold of its scale."""
    graph = made.graph.copy()
    for node in made.graph.topological():
        if node.op == "quantize" and node.attrs["spec"].role == "weight":
            weights = graph.constant(node.inputs[0]).copy()
            weights.flat[1] = -11 * np.abs(weights).max()
            graph.set_attrs(node.inputs[0], value=weights)
    return replace(made, graph=graph)


def scales(graph: Graph, role: str) -> dict[str, int]:
    """Exponents of the quantizers that have a role."""
    specs = {n.name: n.attrs["spec"] for n in graph.topological() if n.op == "quantize"}
    return {name: spec.exponent for name, spec in specs.items() if spec.role == role}


def test_training_of_weights_alone_begins_from_their_largest_magnitude(clipped):
    """TQT, table 2: a scale on which the largest weight has a code, and on no finer one."""
    begun = trainer(clipped, Options(learn="weights")).model.finalized()
    for name, exponent in scales(begun, "weight").items():
        most = 2.0 ** (begun.nodes[name].attrs["spec"].bits - 1)
        largest = np.abs(clipped.graph.constant(begun.nodes[name].inputs[0])).max()
        assert most / 2 < largest * 2.0**exponent <= most
        assert exponent < scales(clipped.graph, "weight")[name]


def test_training_of_weights_alone_leaves_other_scales_and_biases_follow(clipped):
    run = trainer(clipped, Options(learn="weights"))
    begun = run.model.finalized()
    for role in ("input", "activation", "internal"):
        assert scales(begun, role) == scales(clipped.graph, role)
    known: dict = {}
    for node in begun.topological():
        known[node.name] = value_exponent(node, known)
        if node.op == "quantize" and node.attrs["spec"].role == "bias":
            (user,) = begun.users(node.name)
            assert known[node.name] == known[user.inputs[0]]
    assert_is_inference(run.model, {clipped.graph.inputs[0]: images(8, seed=9)})


def test_weights_whose_bias_needs_a_coarser_scale_keep_it(made):
    graph = made.graph.copy()
    coarse = {name: exponent - 2 for name, exponent in scales(graph, "weight").items()}
    for name, exponent in coarse.items():
        spec = graph.nodes[name].attrs["spec"]
        graph.set_attrs(name, spec=spec.with_exponent(exponent))
    begun = trainer(replace(made, graph=graph), Options(learn="weights")).model.finalized()
    assert scales(begun, "weight") == coarse


@pytest.mark.parametrize("learn", ["all", "thresholds"])
def test_thresholds_that_learn_begin_where_they_were_calibrated(clipped, learn):
    begun = trainer(clipped, Options(learn=learn)).model.finalized()
    assert scales(begun, "weight") == scales(clipped.graph, "weight")


def test_evaluation_compiles_again_without_a_warning(made, caplog):
    """TensorFlow warns of a function traced five times; each change of `wide` needs a trace."""
    run = trainer(made, Options(epochs=1))
    data = batches(made)
    inputs, labels, *_ = run._tensors(next(data.batches(None)), trains=False)
    layers, losses = [n.name for n in made.graph.nodes.values() if n.op in COMPUTE], set()
    with caplog.at_level("WARNING", logger="tensorflow"):
        for layer in layers * 3:
            run.steps.wide = frozenset([layer])
            losses.add(float(run.steps.evaluate(inputs, labels)[0]))
    assert not caplog.records and len(layers) == 3 and len(losses) == 1


def test_statistics_of_batch_norms_are_frozen_after_an_epoch(made):
    run, seen = trainer(made, FAST), []
    run.watch = lambda status: seen.append(
        [
            v.numpy()
            for name, v in run._variables().items()
            if "mean/" in name or "variance/" in name
        ]
    )
    run.run()
    same = [all(map(np.array_equal, a, b)) for a, b in pairwise(seen)]
    assert same == [False] * 5 + [True] * 6


def test_thresholds_are_frozen_one_by_one_and_stay(made):
    options = Options(epochs=3, batch_size=16, freeze_start=3, freeze_every=2)
    run, seen = trainer(made, options), []
    run.watch = lambda status: seen.append(
        (status.frozen, run.freezing.frozen.numpy(), run.model.quantizers.ranges.numpy())
    )
    run.run()
    assert [count for count, _, _ in seen] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8]
    for (_, frozen, before), (_, _, after) in pairwise(seen):
        np.testing.assert_array_equal(before[frozen], after[frozen])
        assert (before[~frozen] != after[~frozen]).all()


def test_the_best_is_kept_not_the_last(made):
    run = trainer(made, Options(epochs=6, batch_size=16, weight_rate=0.3, loss="labels"))
    run.run()  # a rate that ruins it
    assert run.best_score.step < run.at.step
    assert run.best_score.accuracy == max(score.accuracy for score in run.history)


# -- continuing ------------------------------------------------------------------------------


class Interrupted(ArrayBatches):
    """Data that stops a run before step `STOP` of epoch 1."""

    STOP = 3

    def batches(self, epoch, start=0):
        for i, batch in enumerate(super().batches(epoch, start), start):
            if epoch == 1 and i == self.STOP:
                raise KeyboardInterrupt
            yield batch


@pytest.mark.parametrize("save_seconds", [0.0, 1e9], ids=["each-step", "each-validation"])
def test_a_run_that_continues_ends_with_the_same_bits(made, folder, save_seconds):
    options = Options(
        epochs=3, batch_size=16, weight_rate=3e-3, freeze_start=2, freeze_every=3, validate_every=4
    )
    whole = trainer(made, options)
    whole.run()
    data = Interrupted(*vars(batches(made)).values())
    with pytest.raises(KeyboardInterrupt):
        trainer(made, options, data=data, folder=folder, save_seconds=save_seconds).run()
    again = trainer(made, options, folder=folder, save_seconds=save_seconds)
    again.run()
    assert again.history == whole.history
    assert_same(values(again), values(whole))
    assert_same(dict(again.best.variables), dict(whole.best.variables))
    assert_same(dict(read_checkpoint(folder / LAST, again.network).variables), values(whole))


def test_more_epochs_go_on_from_the_last_one(made, folder):
    trainer(made, FAST, folder=folder).run()
    more = trainer(made, Options(**{**vars(FAST), "epochs": 3}), folder=folder)
    more.run()
    whole = trainer(made, Options(**{**vars(FAST), "epochs": 3}))
    whole.run()
    assert_same(values(more), values(whole))


def test_other_options_are_refused(made, folder):
    trainer(made, FAST, folder=folder).run()
    other = Options(**{**vars(FAST), "weight_rate": 0.5})
    with pytest.raises(UsageError, match=r"weight_rate 0.003, not 0.5"):
        trainer(made, other, folder=folder).run()


def test_a_checkpoint_of_another_network_is_refused(made, folder, tmp_path_factory):
    trainer(made, FAST, folder=folder).run()
    other = retraining.quantized(tmp_path_factory.mktemp("other"), "graffitist-int8")
    with pytest.raises(LoadError, match="from another network"):
        trainer(other, FAST, folder=folder).run()


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"something else"])
def test_a_broken_checkpoint_is_reported(made, folder, content):
    (folder / LAST).write_bytes(content)
    with pytest.raises(LoadError, match="is not a checkpoint that can be read"):
        trainer(made, FAST, folder=folder).run()


def test_a_checkpoint_without_a_variable_names_the_file(made, folder):
    trainer(made, FAST, folder=folder).run()
    shutil.copy(folder / BEST, folder / LAST)  # the best one has no state of the optimizer
    with pytest.raises(LoadError, match=r"last\.npz: variable `freezing/0` is missing"):
        trainer(made, FAST, folder=folder).run()


def test_a_variable_of_another_shape_changes_nothing(made, folder):
    run = trainer(made, FAST)
    before, own = values(run), dict(run.model.named_variables())
    arrays = {name: v.numpy() for name, v in own.items()}
    wrong = Checkpoint(run.network, {**arrays, "ranges": np.zeros(1, "float32")}, {}, "a file")
    with pytest.raises(LoadError, match=r"a file: variable `ranges` has shape \[1\]"):
        restore(own, wrong)
    assert_same(values(run), before)


def test_decay_of_a_network_without_matrices(made):
    run = trainer(made, replace(FAST, weight_decay=1.0))
    run.model.weights.clear()
    assert run.steps._decay().numpy() == 0


def test_a_disk_that_fills_up_loses_nothing(made, folder, monkeypatch):
    trainer(made, FAST, folder=folder).run()
    before = {file: (folder / file).read_bytes() for file in (LAST, BEST)}

    def full(handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    more = Options(**{**vars(FAST), "epochs": 4})
    with pytest.raises(OutputError, match="No space left on device"):
        trainer(made, more, folder=folder).run()
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == before


# -- what cannot be ---------------------------------------------------------------------------


class Poisoned(ArrayBatches):
    """Its fourth batch makes the first layer overflow."""

    def batches(self, epoch, start=0):
        for i, batch in enumerate(super().batches(epoch, start), start):
            x = {
                name: array * np.float32(3e38 if i == 3 else 1)
                for name, array in batch.inputs.items()
            }
            yield batch if epoch is None else LabelledBatch(x, batch.labels)


def test_what_is_not_finite_stops_the_run_and_is_named(made, folder):
    floating = made.floating
    data = Poisoned(*vars(batches(made)).values())
    run = Trainer(floating, floating, (), data, batches(made), FAST, folder=folder, save_seconds=0)
    with pytest.raises(TrainingError, match="NaN or infinite in step 4") as caught:
        run.run()
    layer = next(node.name for node in floating.topological() if node.op == "conv2d")
    assert caught.value.node == layer
    kept = read_checkpoint(folder / LAST, run.network)
    assert kept.facts["at"]["step"] == 3
    assert_same(dict(kept.variables), values(run))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.full(96, 5), "label 5 is out of range: the network has 5 classes"),
        (np.full(96, -1), "label -1 is out of range"),
        (np.full(96, 0.5), "labels are float64"),
        (np.zeros((96, 3), int), r"labels are int64 of shape \[16, 3\]"),
    ],
)
def test_labels_that_are_no_classes(made, labels, message):
    data = ArrayBatches(batches(made).inputs, labels, 16, 0)
    with pytest.raises(CalibrationError, match=message):
        trainer(made, FAST, data=data).run()


def test_labels_may_be_probabilities_or_a_column(made):
    plain, losses = batches(made), []
    for labels in (plain.labels, plain.labels[:, None], np.eye(5)[plain.labels]):
        run = trainer(made, FAST, data=ArrayBatches(plain.inputs, labels, 16, 0))
        run.run()
        losses.append([score.loss for score in run.history])
    assert losses[0] == losses[1]
    np.testing.assert_allclose(losses[0], losses[2], rtol=1e-5)


def test_there_must_be_something_to_train():
    graph = Graph("nothing")
    graph.outputs["y"] = graph.add("relu", graph.input("x", "float32", (None, 4)))
    data = ArrayBatches({"x": np.ones((8, 4), "float32")}, None, 4, 0)
    with pytest.raises(TrainingError, match="nothing can be trained"):
        Trainer(graph, graph, (), data)


@pytest.mark.parametrize("loss", [None, "teacher"])
def test_labels_are_asked_for_by_name(made, loss):
    plain = batches(made)
    bare = ArrayBatches(plain.inputs, None, 16, 0)
    run = trainer(made, Options(loss=loss), data=bare, validation=bare)
    assert run.loss.kind == "teacher"
    with pytest.raises(UsageError, match="the data has no labels"):
        trainer(made, Options(loss="labels"), data=bare)
    with pytest.raises(UsageError, match="the validation data has none"):
        trainer(made, Options(), validation=bare)


def test_rates_fall_in_stairs_and_along_half_a_cosine() -> None:
    from qgraph.train.optimizer import Rate

    stairs, annealed = Rate(1.0, 0.5, 10), Rate(1.0, 0.5, 10, anneal=40)
    found = [(float(stairs.at(step)), float(annealed.at(step))) for step in (0, 9, 10, 20, 40, 100)]
    falls = [1.0, 0.5 + 0.5 * np.cos(np.pi * 9 / 40), 0.5 + 0.5 * np.cos(np.pi / 4), 0.5, 0.0, 0.0]
    for (plain, both), stair, fall in zip(
        found, [1, 1, 0.5, 0.25, 1 / 16, 1 / 1024], falls, strict=True
    ):
        assert plain == stair
        assert both == pytest.approx(stair * (0.05 + 0.95 * fall), rel=1e-5)
