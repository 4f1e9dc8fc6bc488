"""The script of the paper's figures, with and without a training run to draw."""

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from PIL import Image

from benchmarks.figures.__main__ import main
from benchmarks.figures.deviations import counts_of
from benchmarks.figures.run import load_run
from qgraph import retrain
from qgraph.train.options import Options
from tests.helpers.retraining import quantized, task

STEPS = 20


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A directory with `STEPS` steps of training at a high rate, and the data."""
    folder = tmp_path_factory.mktemp("figures")
    made = quantized(folder)
    retrain.save(made, folder / "run")
    data = task(made.graph, 32 * STEPS)
    options = Options(epochs=1, threshold_rate=0.3, freeze_start=10)
    retrain.train(folder / "run", data, validation=data, options=options)
    return folder / "run", data


def sizes_in(folder):
    return {path.stem: Image.open(path).size for path in folder.iterdir()}


def test_figures_are_drawn(tmp_path):
    names = ["figure1", "figure2", "figure3"]
    main(["--out", str(tmp_path), *(word for name in names for word in ("--only", name))])
    sizes = sizes_in(tmp_path)
    assert sorted(sizes) == names
    assert all(width > 500 and height > 200 for width, height in sizes.values())


def test_deviations_are_those_of_the_finalized_network(trained):
    path, _ = trained
    run, after = load_run(path), retrain.finalize(path, last=True).graph
    before = run.found.graph
    moved = [scale.deviation for scale in run.scales()]
    exponents = [
        [graph.nodes[scale.node.name].attrs["spec"].exponent for scale in run.scales()]
        for graph in (before, after)
    ]
    assert moved == [old - new for old, new in zip(*exponents, strict=True)]
    assert any(moved)
    assert sum(sum(counter.values()) for counter in counts_of(run).values()) == len(moved)


def test_the_first_steps_of_a_run_are_made_again(trained):
    path, data = trained
    run = load_run(path)
    steps = run.first_steps(data, STEPS)
    assert steps.shape == (STEPS + 1, len(run.scales()))
    np.testing.assert_array_equal(steps[0], [s.before for s in run.scales()])
    np.testing.assert_allclose(steps[-1], [s.after for s in run.scales()], atol=1e-3)


def test_weights_and_activations_before_and_after(trained):
    run = load_run(trained[0])
    before, after = run.found.graph, retrain.finalize(trained[0], last=True).graph
    for scale, old, new in run.inputs_of(run.scales()):
        if scale.spec.role == "weight":
            value = scale.node.inputs[0]
            np.testing.assert_array_equal(old, np.ravel(before.constant(value)))
            np.testing.assert_array_equal(new, np.ravel(after.constant(value)))
        assert old.shape == new.shape


def test_figures_of_runs_are_drawn(trained, tmp_path):
    main(["--out", str(tmp_path), "--run", str(trained[0]), "--run", str(trained[0])])
    assert sorted(sizes_in(tmp_path)) == ["figure10-run", "figure5-run", "figure6"]
