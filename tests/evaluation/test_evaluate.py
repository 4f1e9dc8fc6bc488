"""Accuracy and error of both networks, counted again by hand."""

import json

import numpy as np
import pytest
import tensorflow as tf

import qgraph
from qgraph.errors import CalibrationError, LoadError, UsageError
from qgraph.evaluation import Accuracy, Error, evaluate
from qgraph.evaluation.scoring import Classes
from qgraph.evaluation.sizes import constant_bytes
from qgraph.exact.reference import Reference
from qgraph.interpret import evaluate as run_float
from qgraph.ir.graph import Graph
from qgraph.reporting.reading import read_facts
from qgraph.stored import load_float, load_graph
from qgraph.words import percent
from tests.helpers.tf_graphs import graph_def_of, v1

WIDTH, CLASSES = 6, 9


def dense(x, wide, seed, name):
    weights = np.random.default_rng(seed).normal(0, 1, (x.shape[-1], wide)).astype("float32")
    return tf.matmul(x, tf.constant(weights), name=name)


def heads(*names: str, batch: int | None = None, fixed_cumsum: bool = False):
    """A GraphDef with input `x` [?,6] and one output of each name, in `y`, `y_1` ..."""

    def build():
        x = v1.placeholder("float32", (batch, WIDTH), "x")
        hidden = tf.nn.relu(dense(x, 16, 1, "hidden"))
        if fixed_cumsum:
            hidden = tf.math.cumsum(hidden, axis=1)
        made = {
            "classes": lambda: tf.nn.softmax(dense(hidden, CLASSES, 2, "logits")),
            "values": lambda: dense(hidden, 2, 3, "values"),
            "probability": lambda: tf.sigmoid(dense(hidden, 1, 4, "odds")),
        }
        return [made[name]() for name in names]

    return graph_def_of(build)


def samples(count=100, seed=5):
    return np.random.default_rng(seed).normal(0, 1, (count, WIDTH)).astype("float32")


@pytest.fixture
def written(tmp_path):
    """Quantizes a GraphDef plainly and gives its output directory."""

    def write(graph_def, name="net"):
        (tmp_path / f"{name}.pb").write_bytes(graph_def.SerializeToString())
        result = qgraph.quantize(tmp_path / f"{name}.pb", samples(seed=6), effort="plain")
        return result.save(tmp_path / name)

    return write


def test_the_report_shows_the_accuracy_that_was_measured(written, tmp_path) -> None:
    folder, x = written(heads("classes")), samples()
    assert read_facts(folder).verdict.endswith("accuracy on labelled data was not measured.")
    np.savez(tmp_path / "test.npz", x=x, labels=np.arange(len(x)) % CLASSES)
    found = evaluate(folder, tmp_path / "test.npz").outputs[0]
    facts = read_facts(folder)
    assert facts.verdict.endswith(
        f"on 100 samples of test.npz, top-1 accuracy is {percent(found.quantized.top1)} "
        f"({percent(found.floating.top1)} in float)."
    )
    assert not any("Measure accuracy" in step.what for step in facts.next)
    values = written(heads("values"), "values")
    error = evaluate(values, {"x": x, "labels": np.ones((100, 2))}).outputs[0]
    assert f"of arrays, the RMS error is {error.quantized.root_mean_square:.6g} (" in (
        read_facts(values).verdict
    )


def test_a_record_of_another_network_is_not_shown(written) -> None:
    folder, x = written(heads("classes")), samples()
    evaluate(folder, {"x": x, "labels": np.zeros(len(x), int)})
    record = json.loads((folder / "evaluation.json").read_text())
    for changed in ({**record, "graph": "0" * 64}, {"graph": 1}):
        (folder / "evaluation.json").write_text(json.dumps(changed))
        assert read_facts(folder).evaluation is None


def by_hand(folder, x):
    """The outputs of the float network and of the integer reference, in order of outputs."""
    floating = run_float(load_float(folder), {"x": x})
    quantized = Reference(load_graph(folder)).outputs({"x": x})
    return [*floating.values()], [*quantized.values()]


def test_classes(written) -> None:
    folder, x = written(heads("classes")), samples()
    labels = np.random.default_rng(7).integers(0, CLASSES, len(x))
    found = evaluate(folder, {"x": x, "labels": labels})
    (floating,), (quantized,) = by_hand(folder, x)
    (score,) = found.outputs
    for scores, accuracy in ((floating, score.floating), (quantized, score.quantized)):
        first = np.argsort(-scores, -1, kind="stable")[:, :5]
        top1, top5 = (first[:, 0] == labels).mean(), (first == labels[:, None]).any(-1).mean()
        assert accuracy == Accuracy(top1, top5)
    assert score.same == (floating.argmax(-1) == quantized.argmax(-1)).mean() > 0.8
    assert found.samples == 100 and found.speed.milliseconds > 0


def test_rows_of_probabilities_are_classes(written) -> None:
    folder, x = written(heads("classes")), samples()
    labels = np.random.default_rng(7).integers(0, CLASSES, len(x))
    rows = np.eye(CLASSES, dtype="float32")[labels]
    one, other = (evaluate(folder, {"x": x, "y": y}).outputs for y in (labels, rows))
    assert one == other


def test_values(written) -> None:
    folder, x = written(heads("values")), samples()
    labels = np.random.default_rng(7).normal(0, 3, (len(x), 2))
    (score,) = evaluate(folder, {"x": x, "label": labels}).outputs
    (floating,), (quantized,) = by_hand(folder, x)
    for values, error in ((floating, score.floating), (quantized, score.quantized)):
        away = values.astype(np.float64) - labels
        wanted = Error(np.sqrt((away**2).mean()), np.abs(away).mean())
        assert (error.root_mean_square, error.mean_absolute) == pytest.approx(
            (wanted.root_mean_square, wanted.mean_absolute), rel=1e-12
        )
    assert score.same is None


def test_yes_or_no(written) -> None:
    folder, x = written(heads("probability")), samples()
    labels = np.random.default_rng(7).integers(0, 2, len(x))
    (score,) = evaluate(folder, {"x": x, "labels": labels}).outputs
    (floating,), _ = by_hand(folder, x)
    assert score.floating == Accuracy(((floating[:, 0] > 0.5) == labels).mean(), None)


def test_several_outputs(written) -> None:
    folder, x = written(heads("classes", "values")), samples()
    first, second = load_graph(folder).outputs
    rng = np.random.default_rng(7)
    classes, values = rng.integers(0, CLASSES, len(x)), rng.normal(0, 1, (len(x), 2))
    both = evaluate(folder, {"x": x, first: classes, f"labels/{second}": values})
    assert [score.output for score in both.outputs] == [first, second]
    alone = evaluate(folder, {"x": x, "labels": values}, output=second)
    assert alone.outputs == both.outputs[1:]
    with pytest.raises(CalibrationError, match="could be for any of the outputs"):
        evaluate(folder, {"x": x, "labels": values})
    with pytest.raises(UsageError, match="unknown output `z`"):
        evaluate(folder, {"x": x, "labels": values}, output="z")


def test_a_fixed_batch_gives_the_same(written) -> None:
    x = samples()
    labels = np.arange(len(x)) % CLASSES
    free, fixed = (
        evaluate(written(heads("classes", batch=batch), name), {"x": x, "labels": labels})
        for batch, name in ((None, "free"), (4, "fixed"))
    )
    assert free.outputs == fixed.outputs and free.sizes == fixed.sizes


def test_what_the_engine_cannot_run_the_reference_does(written) -> None:
    folder, x = written(heads("classes", fixed_cumsum=True)), samples()
    found = evaluate(folder, {"x": x, "labels": np.zeros(len(x), int)})
    _, (quantized,) = by_hand(folder, x)
    assert found.outputs[0].quantized.top1 == (quantized.argmax(-1) == 0).mean()


def test_the_last_samples_of_the_first(written) -> None:
    folder, x = written(heads("classes")), samples()
    labels = np.arange(len(x)) % CLASSES
    part = evaluate(folder, {"x": x, "labels": labels}, limit=50, held_out=20)
    wanted = evaluate(folder, {"x": x[30:50], "labels": labels[30:50]})
    assert (part.samples, part.outputs) == (20, wanted.outputs)


def test_sizes_count_the_bits_of_codes(written) -> None:
    sizes = evaluate(
        written(heads("classes")), {"x": samples(), "labels": np.zeros(100, int)}
    ).sizes
    weights = WIDTH * 16 + 16 * CLASSES
    assert (sizes.floating, sizes.quantized) == (4 * weights, weights)
    assert sizes.compression == 4.0
    graph = Graph("empty")
    assert constant_bytes(graph) == 0


def ask(folder, labels, x=None):
    evaluate(folder, {"x": samples() if x is None else x, "labels": labels})


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.full(100, CLASSES), r"9 classes, but labels go from 9 to 9"),
        (np.full(100, -1), r"labels go from -1 to -1\n  classes are counted from 0 to 8"),
        (np.full(100, 0.5), "labels have fractions"),
        (np.full(100, np.nan), "NaN"),
        (np.zeros((100, 3)), r"shape \[\?, 9\], which labels of shape \[100, 3\] do not fit"),
        (np.zeros(99, int), "there are 99 labels for 100 samples"),
        (np.array(["a"] * 100), "not numbers for each sample"),
        (np.zeros((), int), "not numbers for each sample"),
    ],
)
def test_labels_that_do_not_fit_are_refused_by_name(written, labels, message) -> None:
    folder = written(heads("classes"))
    with pytest.raises(CalibrationError, match=message):
        ask(folder, labels)


def test_data_that_does_not_fit_is_refused(written, tmp_path) -> None:
    folder = written(heads("classes"))
    with pytest.raises(CalibrationError, match="test data has no labels: found"):
        evaluate(folder, {"x": samples()})
    with pytest.raises(CalibrationError, match=r"test data has shape \(100, 5\)"):
        ask(folder, np.zeros(100, int), samples()[:, :5])
    with pytest.raises(CalibrationError, match="no such file"):
        evaluate(folder, tmp_path / "none.npz")
    with pytest.raises(LoadError, match="not what `qgraph quantize` wrote"):
        evaluate(tmp_path, {"x": samples()})
    (folder / "float.txt").unlink()
    with pytest.raises(LoadError, match="the float network is missing"):
        ask(folder, np.zeros(100, int))


def test_of_equal_scores_the_first_class_is_the_answer() -> None:
    """Ties as in `argmax`: coarse scores are often equal."""
    scores = np.array([[1, 3, 3, 0, 0, 0, 0], [3, 3, 1, 1, 1, 1, 0]], np.float32)
    right, near, _ = vars(Classes(7).tally(scores, np.array([2, 5]))).values()
    assert (right, near) == (0, 1)
    assert Classes(7).tally(scores, np.array([1, 0])).first == 2


@pytest.mark.parametrize("scores", [[np.nan] * 3, [np.nan, 0, 1], [0, 1, np.nan]])
def test_nan_is_never_a_right_answer(scores) -> None:
    found = Classes(3).tally(np.float32([scores]), np.array([2]))
    assert (found.first, found.count) == (0, 1)


@pytest.mark.parametrize("options", [{"limit": 0}, {"limit": -1}, {"held_out": 0}])
def test_numbers_of_samples_below_one_are_refused(written, options) -> None:
    folder, x = written(heads("classes")), samples()
    with pytest.raises(UsageError, match="must be at least 1, not"):
        evaluate(folder, {"x": x, "labels": np.zeros(len(x), int)}, **options)


def test_a_changed_text_is_named(written) -> None:
    folder = written(heads("classes"))
    for name, load in (("graph.txt", load_graph), ("float.txt", load_float)):
        text = (folder / name).read_text()
        (folder / name).write_text(text.replace("relu", "abs", 1))
        with pytest.raises(LoadError, match=f"{name}: was changed or damaged since"):
            load(folder)
        (folder / name).write_text(text)
    (folder / "manifest.json").write_text((folder / "manifest.json").read_text()[:-40])
    with pytest.raises(LoadError, match=r"manifest\.json: cannot be read"):
        load_graph(folder)
