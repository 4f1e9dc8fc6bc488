"""Actors as processes: what they bring, and what happens when one dies."""

import csv
import os
import signal
import subprocess
import sys
import time
from contextlib import closing

import numpy as np
import pytest

from qgraph.errors import RunError
from qgraph.rl.learn.runs import train
from tests.helpers.runs import MANY, begun, ends_when, resumed, unwatched
from tests.helpers.watching import gone, until

pytest.importorskip("gymnasium", reason="needs the extra `rl`")
SMALL = {
    "hidden_sizes": (16,),
    "min_replay_size": 50,
    "batch_size": 16,
    "samples_per_insert": 4.0,
    "evaluate_every": 50,
    "episodes": 1,
    "actors": 2,
    "actor_bits": 8,
}


def of_cartpole(tmp_path, **more):
    return begun(tmp_path / "run", "dqn", "CartPole-v1", **{**SMALL, "steps": 600, **more})


def kill(training, name):
    os.kill(training.actors.run.children[name].process.pid, signal.SIGKILL)


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"synchronous": True},
        {"on_demand": True},
        {"broadcast_bits": 16},
        {"first_bits": 16},
        {"quantizer": False},
        {"quantizer": False, "synchronous": True},
    ],
)
def test_actors_fill_the_replay_by_policies_that_they_are_sent(tmp_path, more):
    training = of_cartpole(tmp_path, actor_update_period=10, steps=MANY, **more)

    def versions(records, actor):
        return records["version"][records["actor"] == actor]

    def both_have(records):
        found = [versions(records, actor) for actor in (0, 1)]
        return all(len(each) >= 200 and each[-1] > 0 for each in found)

    came = ends_when(training, both_have)
    assert training.run(unwatched)
    records, steps = np.concatenate(came), training.limiter.inserts
    assert training.replay.records[:steps].tobytes() == records.tobytes()
    assert records["version"][0] == 0
    assert set(records["actor"]) == {0, 1}
    for actor in (0, 1):
        assert (np.diff(versions(records, actor)) >= 0).all()
    # Actors without a limiter would have run far ahead.
    assert abs(training.limiter.samples - 4 * (steps - 50)) <= 16
    with (tmp_path / "run" / "actors.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert {row["actor"] for row in rows} == {"0", "1"}
    assert float(rows[-1]["steps"]) > 0 and float(rows[-1]["environment"]) > 0


def test_an_actor_brings_the_next_batch_while_the_learner_learns(tmp_path):
    few = {"hidden_sizes": (16,), "batch_size": 320, "actors": 1}
    training = begun(tmp_path / "run", "impala", "CartPole-v1", **few)
    with closing(training._actors()) as actors:
        actors.publish(training.teacher.weights, 0)
        until(lambda: actors.experience.unread(0) == 320)


def test_an_actor_that_is_killed_is_replaced(tmp_path):
    training = of_cartpole(tmp_path)
    killed, taken = [], []

    def tick(done, total):
        if done > 200 and not killed:
            until(lambda: training.actors.run.numbers("actor 1")[0] > 0)  # it has begun
            kill(training, "actor 1")
            training.actors.run.children["actor 1"].process.wait()
            killed.append(training.actors)
        elif killed and killed[0].run.crashes("actor 1"):
            numbers = killed[0].run.numbers("actor 1")
            taken.append(numbers[0])
            until(lambda: numbers[0] != taken[0])  # the new one is there

    assert training.run(unwatched, tick)
    (actors,) = killed
    assert len(actors.run.crashes("actor 1")) == 1
    assert training.warnings == ["actor 1 was restarted: it was killed by SIGKILL"]
    # Who takes its place continues to explore where it was, and counts on from there.
    assert taken[0] > 0 and sorted(taken) == taken and taken[-1] > taken[0]
    late = training.replay.records[-100:]
    assert set(late["actor"]) == {0, 1}


def test_an_actor_whose_environment_fails_begins_another_episode(tmp_path):
    name = "tests.helpers.environments:NotFinite-v0"
    training = begun(tmp_path / "run", "dqn", name, **{**SMALL, "steps": 600, "actors": 1})
    assert training.run(unwatched)
    records = training.replay.records
    assert len(records) == 600 and np.isfinite(records["next_observation"]).all()
    assert len(training.warnings) in (2, 3)  # of 199 steps each, and some that were not taken
    assert all("1 of 3 numbers" in trouble for trouble in training.warnings)


@pytest.mark.parametrize(
    ("process", "more"),
    [("quantizer", {}), ("compressor", {"actor_bits": 32, "compress": "quantize(8)"})],
)
def test_without_what_packs_the_run_ends_with_a_checkpoint(tmp_path, process, more):
    training = of_cartpole(tmp_path, **more)

    def tick(done, total):
        if done > 200:
            kill(training, process)
            time.sleep(0.05)

    with pytest.raises(RunError, match=f"{process}: was killed by SIGKILL"):
        training.run(unwatched, tick)
    training.directory.close()
    went_on = train(tmp_path / "run", resume=True)
    assert went_on.limiter.inserts == 600
    assert went_on.counts.learner_steps > training.counts.learner_steps > 0


@pytest.mark.slow
def test_a_killed_learner_takes_all_with_it(tmp_path):
    """And what was checkpointed is there."""
    program = (
        "import sys; from pathlib import Path; from qgraph.rl.learn import runs, training as t;"
        "t.CHECKPOINT_SECONDS = 0.2;"
        "runs.train(Path(sys.argv[1]), 'dqn', 'CartPole-v1',"
        f"{ {**SMALL, 'steps': 10**6, 'spi': 1.0}!r})"
    )
    out = tmp_path / "run"
    command = [sys.executable, "-c", program, str(out)]
    learner = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        until(lambda: _reported(out), 60)
        time.sleep(0.5)  # for a checkpoint
        children = _children(learner.pid)
    finally:
        learner.kill()
        learner.wait()
    assert len(children) == 3
    until(lambda: all(map(gone, children)))
    training = resumed(out)
    training.directory.close()
    assert training.limiter.inserts >= 50


def _reported(out):
    return (out / "progress.csv").exists() and (out / "progress.csv").read_text().count("\n") > 1


def _children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as stream:
        return [int(child) for child in stream.read().split()]


def test_actors_load_no_framework():
    program = (
        "import sys; import qgraph.rl.learn.actor_process;"
        "from qgraph.rl.environments import make; make('CartPole-v1').reset(0);"
        "print([m for m in ('tensorflow', 'keras', 'torch', 'onnx') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert found.stdout.strip() == "[]", found.stderr
