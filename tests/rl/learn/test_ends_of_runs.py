"""Runs release their environments, and files that a run cannot use are named."""

from __future__ import annotations

import json
import math
import sys
from contextlib import nullcontext
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest

from qgraph.cli.rl.train_summary import facts_of
from qgraph.errors import LoadError, OutputError, UsageError
from qgraph.rl.agents import config_for
from qgraph.rl.learn import directory as directories
from qgraph.rl.learn import training as trainings
from qgraph.rl.learn import worker as workers
from qgraph.rl.learn.directory import RunDirectory
from qgraph.rl.learn.runs import train
from qgraph.rl.learn.status import STATUS_COLUMNS, Counts, Status
from qgraph.rl.learn.training import Training
from qgraph.rl.policy import plots
from qgraph.train.checkpoint import read_checkpoint

SMALL = {
    "in_process": True, "steps": 300, "hidden_sizes": (16,), "min_replay_size": 50,
    "batch_size": 16, "samples_per_insert": 4.0, "evaluate_every": 30, "episodes": 2,
}  # fmt: skip


def recorded(make, opened, fails_at=None):
    """`make`, which also records environments and the number of those that were closed."""

    def record(name):
        if len(opened) == fails_at:
            raise UsageError("no more environments")
        environment = make(name)
        close = environment.close

        def closed():
            opened[environment] += 1
            close()

        opened[environment], environment.close = 0, closed
        return environment

    return record


def test_a_run_closes_its_environments(tmp_path, monkeypatch):
    opened = {}
    monkeypatch.setattr(trainings, "make", recorded(trainings.make, opened))
    monkeypatch.setattr(workers, "make", recorded(workers.make, opened))
    train(tmp_path / "run", "dqn", "CartPole-v1", SMALL)
    assert len(opened) == 2 and set(opened.values()) == {1}


def test_environments_of_actors_are_closed_if_a_later_one_fails(tmp_path, monkeypatch):
    opened = {}
    monkeypatch.setattr(workers, "make", recorded(workers.make, opened, fails_at=1))
    with pytest.raises(UsageError, match="no more environments"):
        train(tmp_path / "run", "dqn", "CartPole-v1", {**SMALL, "actors": 2})
    assert list(opened.values()) == [1]


class Tracker:
    """Instead of codecarbon's, which has to be stopped."""

    stops: ClassVar[list[int]] = []

    def __init__(self, **settings):
        self.final_emissions_data = SimpleNamespace(
            energy_consumed=1.0, cpu_energy=1.0, ram_energy=0.0, duration=1.0, emissions=0.4
        )

    def start(self):
        pass

    def stop(self):
        self.stops.append(1)


@pytest.mark.parametrize("fails_at", [None, 1])
def test_energy_is_no_longer_measured_after_a_run(tmp_path, monkeypatch, fails_at):
    module = SimpleNamespace(OfflineEmissionsTracker=Tracker)
    source = SimpleNamespace(get_global_energy_mix_data=lambda: {"USA": {}})
    monkeypatch.setitem(sys.modules, "codecarbon", module)
    data = SimpleNamespace(DataSource=lambda: source)
    monkeypatch.setitem(sys.modules, "codecarbon.input", data)
    monkeypatch.setattr(Tracker, "stops", [])
    monkeypatch.setattr(workers, "make", recorded(workers.make, {}, fails_at))
    settings = {**SMALL, "actors": 2, "energy": True}
    with nullcontext() if fails_at is None else pytest.raises(UsageError, match="no more"):
        train(tmp_path / "run", "dqn", "CartPole-v1", settings)
    assert Tracker.stops == [1]


@pytest.mark.parametrize("error", [BlockingIOError(11, "Busy"), OSError(37, "No locks available")])
def test_a_file_system_without_locks_is_not_another_run(tmp_path, monkeypatch, error):
    def without(handle, operation):
        raise error

    monkeypatch.setattr(directories.fcntl, "flock", without)
    if isinstance(error, BlockingIOError):
        with pytest.raises(OutputError, match="another run uses this directory"):
            RunDirectory(tmp_path, resume=False)
    else:
        RunDirectory(tmp_path, resume=False).close()


def test_a_config_excludes_settings_and_a_resumed_run(tmp_path):
    config = config_for("dqn", "CartPole-v1", **SMALL)
    for more in ({"resume": True}, {"algorithm": "dqn"}, {"settings": {"steps": 400}}):
        with pytest.raises(UsageError, match="a config is for a new run"):
            train(tmp_path / "run", config=config, **more)
    assert not (tmp_path / "run").exists()


def test_a_checkpoint_without_a_fact_is_named(tmp_path):
    ended = train(tmp_path / "run", "dqn", "CartPole-v1", SMALL)
    path = tmp_path / "run" / "checkpoint.npz"
    kept = read_checkpoint(path, ended._identity())
    kept.facts.pop("limiter")
    kept.write(path)
    with pytest.raises(LoadError, match="its record cannot be read"):
        train(tmp_path / "run", settings={"steps": 400}, resume=True)


def test_a_damaged_energy_file_is_named(tmp_path):
    directory = RunDirectory(tmp_path, resume=False)
    training = Training(config_for("dqn", "CartPole-v1", **SMALL), directory)
    training.resumed = True
    (tmp_path / "energy.json").write_text("{")
    with pytest.raises(LoadError, match=r"energy\.json"):
        training._write_energy({"seconds": 1.0})
    directory.close()


def test_the_summary_is_json_without_nan(tmp_path):
    numbers = dict.fromkeys(STATUS_COLUMNS, 1.0) | {"actors_return": math.nan}
    ended = SimpleNamespace(done=True, counts=Counts(), status=Status(**numbers), warnings=[])
    found = json.loads(json.dumps(facts_of(tmp_path, ended), allow_nan=False))
    assert found["status"]["actors_return"] is None and found["status"]["loss"] == 1


def test_a_figure_that_cannot_be_written_is_an_output_error(tmp_path):
    pytest.importorskip("matplotlib")
    figure, axes = plots.figure_of(1, 1, 2, 2)
    axes[0, 0].plot(np.arange(3))
    plots.write_figure(tmp_path / "a.png", figure)
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(OutputError):
        plots.write_figure(tmp_path / "a.png" / "b.png", figure)
