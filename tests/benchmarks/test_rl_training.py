"""The report of training runs, from runs written by hand."""

import csv
import json

import pytest
import typer

from benchmarks.rl_training import TASKS, cells, draw, facts_of, read_runs
from qgraph.rl.learn.status import STATUS_COLUMNS

CARTPOLE = next(task for task in TASKS if task.name == "cartpole")


def write_run(out, bits, seed, returns, kwh, seconds=10.0, steps=None):
    folder = out / f"cartpole-{bits}-{seed}"
    folder.mkdir()
    with (folder / "progress.csv").open("w") as stream:
        writer = csv.DictWriter(stream, STATUS_COLUMNS)
        writer.writeheader()
        for i, value in enumerate(returns, 1):
            row = dict.fromkeys(STATUS_COLUMNS, 0)
            row.update(return_mean=value, actor_steps=1000 * i, seconds=seconds * i)
            writer.writerow(row)
    energy = {"estimated_kwh": kwh, "of_processor": kwh / 2}
    (folder / "energy.json").write_text(json.dumps(energy))
    (folder / "options.json").write_text(json.dumps({"steps": steps or 1000 * len(returns)}))


@pytest.fixture
def groups(tmp_path):
    write_run(tmp_path, 32, 0, [0, 100, 500, 500, 500, 200], kwh=4.0)
    write_run(tmp_path, 32, 1, [0, 300, 300, 300, 300, 300], kwh=6.0)
    write_run(tmp_path, 8, 0, [500, 500, 500, 500, 500, 500], kwh=1.0)
    write_run(tmp_path, 8, 2, [0, 0, 0, 0, 0, 0], kwh=50.0)
    (tmp_path / "cartpole-8-3").mkdir()  # not complete
    write_run(tmp_path, 8, 4, [0, 0], kwh=9.0, steps=6000)  # stopped
    return list(read_runs(tmp_path, [CARTPOLE]))


def test_floats_come_first_and_half_runs_not_at_all(groups):
    assert [(group.bits, [run.seed for run in group.runs]) for group in groups] == [
        (32, [0, 1]),
        (8, [0, 2]),
    ]


def test_what_is_to_be_reached_is_by_the_float_runs(groups):
    floating, few = (facts_of(group, groups[0]) for group in groups)
    assert floating["best"][0] == 400 and floating["last"][0] == 250
    assert floating["reach"] == few["reach"] == pytest.approx(380)
    # The mean of three comes there with the fifth evaluation: 500, 500, 500.
    assert floating["reached"] == 1 and floating["steps"][0] == 5000
    assert few["reached"] == 1 and few["steps"][0] == 3000 and few["seconds"][0] == 30
    assert cells(few)[5] == 1  # of two seeds


def test_energy_is_compared_on_seeds_that_both_have(groups):
    assert facts_of(groups[1], groups[0])["energy"] == pytest.approx(1 / 4)


def test_too_few_evaluations_tell_nothing(tmp_path):
    write_run(tmp_path, 32, 0, [500, 500], kwh=1.0)
    (group,) = read_runs(tmp_path, [CARTPOLE])
    assert cells(facts_of(group, group))[3] is None


def test_curves_are_drawn(groups, tmp_path):
    image = pytest.importorskip("matplotlib.image")
    draw(groups, tmp_path / "curves.png")
    assert image.imread(tmp_path / "curves.png").std() > 0  # not of one colour


def test_a_figure_of_too_few_evaluations_is_refused(tmp_path):
    pytest.importorskip("matplotlib")
    write_run(tmp_path, 32, 0, [500, 500], kwh=1.0)
    with pytest.raises(typer.BadParameter, match="evaluations enough"):
        draw(list(read_runs(tmp_path, [CARTPOLE])), tmp_path / "curves.png")
