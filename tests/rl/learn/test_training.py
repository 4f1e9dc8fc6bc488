"""Runs: what they write, stop, and continue from."""

import json
import os
import signal
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf

from qgraph.errors import LoadError, OutputError, RunError, TrainingError, UsageError
from qgraph.npz import write_npz
from qgraph.rl.agents import config_for
from qgraph.rl.learn.directory import Rows, RunDirectory
from qgraph.rl.learn.energy import Meter, together
from qgraph.rl.learn.runs import train
from qgraph.rl.learn.training import Training
from tests.helpers.cli import run as qgraph
from tests.helpers.runs import rows

pytest.importorskip("gymnasium", reason="needs the extra `rl`")
SMALL = {
    "in_process": True,
    "steps": 300,
    "hidden_sizes": (16,),
    "min_replay_size": 50,
    "batch_size": 16,
    "samples_per_insert": 4.0,
    "evaluate_every": 30,
    "episodes": 2,
}


@pytest.mark.parametrize(
    "more", [{}, {"dueling": True, "priority_exponent": 0.6, "precision": "mixed_bfloat16"}]
)
def test_a_run_reports_its_results(tmp_path, more):
    training = train(tmp_path / "run", "dqn", "CartPole-v1", {**SMALL, **more})
    assert training.done
    found = rows(tmp_path / "run" / "progress.csv")
    assert [int(row["learner_steps"]) for row in found] == [30, 60, training.counts.learner_steps]
    assert int(found[-1]["actor_steps"]) == 300
    # 250 inserts past the first 50, 4 samples of each, a slack of one batch.
    assert abs(training.limiter.samples - 4 * 250) <= 16
    episodes = rows(tmp_path / "run" / "episodes.csv")
    assert len(episodes) == training.counts.episodes > 3
    assert all(float(row["returned"]) == int(row["length"]) for row in episodes)  # CartPole
    (events,) = (tmp_path / "run" / "tensorboard").iterdir()
    shown = [
        (event.step, value.tag, float(tf.make_ndarray(value.tensor)))
        for event in tf.compat.v1.train.summary_iterator(str(events))
        for value in event.summary.value
    ]
    assert shown == [
        (int(row["actor_steps"]), name, pytest.approx(float(number), rel=1e-6, nan_ok=True))
        for row in found
        for name, number in row.items()
    ]


@pytest.mark.parametrize("algorithm", ["dqn", "impala"])
def test_a_run_of_before_a_setting_is_not_resumed_with_another_value(tmp_path, algorithm):
    def begun(environment, **more):
        """The options of a run whose file lacks `reward_clip`, unless it is given."""
        found = config_for(algorithm, environment).as_json()
        del found["reward_clip"]
        (tmp_path / "checkpoint.npz").touch()
        (tmp_path / "options.json").write_text(json.dumps({**found, **more}))
        with closing(RunDirectory(tmp_path, resume=True)) as directory:
            return directory.config()

    with pytest.raises(LoadError, match="began before `reward_clip` was a setting") as error:
        begun("ALE/Pong-v5")
    assert '"reward_clip": 1.0' in error.value.hint
    assert begun("ALE/Pong-v5", reward_clip=1.0) == config_for(algorithm, "ALE/Pong-v5")
    assert begun("CartPole-v1") == config_for(algorithm, "CartPole-v1")


def test_a_resumed_run_has_the_state_it_was_stopped_in(tmp_path):
    ended = train(tmp_path / "run", "dqn", "CartPole-v1", {**SMALL, "priority_exponent": 0.6})
    directory = RunDirectory(tmp_path / "run", resume=True)
    again = Training(directory.config(), directory, resume=True)
    for name, variable in ended.learner.state.items():
        assert np.array_equal(variable, again.learner.state[name]), name
    assert ended.learner.state["adam/powers"][0] < 0.9  # it did learn
    for name, array in ended.replay.state().items():
        assert array.tobytes() == again.replay.state()[name].tobytes(), name
    assert ended.limiter == again.limiter and ended.counts == again.counts
    assert ended.rng.random() == again.rng.random()
    directory.close()
    went_on = train(tmp_path / "run", settings={"steps": 400}, resume=True)
    assert went_on.limiter.inserts == 400
    steps = [int(row["learner_steps"]) for row in rows(tmp_path / "run" / "progress.csv")]
    assert steps == sorted(set(steps))


def test_a_better_policy_than_the_checkpoint_knows_of_stays(tmp_path):
    """A run that was killed wrote it after its last checkpoint."""
    run = tmp_path / "run"
    train(run, "dqn", "CartPole-v1", SMALL)
    about = json.loads((run / "policy.json").read_text())
    (run / "policy.json").write_text(json.dumps({**about, "fp32_return_mean": 501.0}))
    policy = (run / "policy.pb").read_bytes()
    train(run, settings={"steps": 400}, resume=True)
    assert (run / "policy.pb").read_bytes() == policy


@pytest.mark.parametrize("period", [1, 7, 1000])
def test_actors_in_this_process_look_for_policies_at_their_period(tmp_path, period):
    settings = {**SMALL, "actors": 2, "publish_every": 1, "actor_update_period": period}
    records = train(tmp_path, "dqn", "CartPole-v1", settings).replay.records
    for actor in (0, 1):
        versions = records["version"][records["actor"] == actor]
        assert len(versions) == 150
        changes = np.flatnonzero(np.diff(versions)) + 1
        assert not (changes % period).any()
        assert len(changes) >= 50 // period


def test_an_environment_may_write_all_observations_into_one_array(tmp_path):
    name = "tests.helpers.environments:Reuses-v0"
    records = train(tmp_path, "dqn", name, {**SMALL, "n": 3}).replay.records
    whole = records[records["discount"] > 0]
    assert len(whole) > 100 and (whole["next_observation"] == whole["observation"] + 3).all()


def test_a_replay_too_large_to_store_is_filled_again(tmp_path, monkeypatch):
    monkeypatch.setattr("qgraph.rl.learn.training.KEPT_REPLAY", 1000)
    ended = train(tmp_path / "run", "dqn", "CartPole-v1", SMALL)
    went_on = train(tmp_path / "run", settings={"steps": 400}, resume=True)
    assert len(went_on.replay) == 100
    # 4 samples of each insert past the first 50 of them, a slack of one batch.
    assert abs(went_on.limiter.samples - ended.limiter.samples - 4 * 50) <= 16


def test_a_replay_half_filled_again_is_filled_further(tmp_path, monkeypatch):
    """A run that is stopped before its replay is full again begins to learn where it would have."""
    run = tmp_path / "run"
    monkeypatch.setattr("qgraph.rl.learn.training.KEPT_REPLAY", 1000)
    ended = train(run, "dqn", "CartPole-v1", SMALL)
    filling = resumed(run, 400)
    filling.replay.add(ended.replay.records[:30])
    filling.limiter.insert(30)
    monkeypatch.setattr("qgraph.rl.learn.training.KEPT_REPLAY", 1 << 28)
    filling.checkpoint()
    again = resumed(run, 400)
    assert len(again.replay) == 30 and again.limiter == filling.limiter
    assert not again.limiter.may_sample() and again.limiter.may_insert() == 20
    went_on = train(run, settings={"steps": 400}, resume=True)
    assert abs(went_on.limiter.samples - ended.limiter.samples - 4 * 50) <= 16


def resumed(path, steps):
    directory = RunDirectory(path, resume=True)
    try:
        return Training(replace(directory.config(), steps=steps), directory, resume=True)
    finally:
        directory.close()


def test_rows_past_the_checkpoint_and_half_rows_are_made_again(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("step,value\n1,5\n2,6\n3,7\n4,")
    rows_again = Rows(path, ("step", "value"), until=2)
    rows_again.add({"step": 3, "value": 8})
    rows_again.close()
    assert [tuple(row.values()) for row in rows(path)] == [("1", "5"), ("2", "6"), ("3", "8")]


@pytest.mark.parametrize(
    "text", ["other\n1\n", "step,value\nx,1\n", "step\n1\n", "step,value\n1\0\xff"]
)
def test_a_table_with_the_wrong_content_is_reported(tmp_path, text):
    path = tmp_path / "rows.csv"
    path.write_bytes(f"{text}\n".encode("latin1"))
    with pytest.raises(LoadError, match="is not a table of step, value"):
        Rows(path, ("step", "value"), until=2)
    assert path.read_bytes() == f"{text}\n".encode("latin1")


def test_rows_that_do_not_fit_the_disk_give_a_clear_error(tmp_path):
    path = tmp_path / "rows.csv"
    written = Rows(path, ("step", "value"))
    written.add({"step": 1, "value": 5})
    written.close()
    written.stream = open("/dev/full", "ab", buffering=0)  # noqa: SIM115
    with pytest.raises(OutputError, match="No space left on device"):
        written.add({"step": 2, "value": 6})
    written.close()  # tries nothing again
    assert [tuple(row.values()) for row in rows(path)] == [("1", "5")]


def test_rows_stay_where_a_resumed_run_cannot_write(tmp_path, monkeypatch):
    path = tmp_path / "rows.csv"
    path.write_text("step,value\n1,5\n")
    monkeypatch.setattr("qgraph.files.os.replace", no_space)
    with pytest.raises(OutputError, match="No space left on device"):
        Rows(path, ("step", "value"), until=2)
    assert path.read_text() == "step,value\n1,5\n"


def no_space(*_):
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("NotFinite-v0", "an observation that is not finite: 1 of 3 numbers"),
        ("NotFiniteReward-v0", "a reward of nan"),
    ],
)
def test_what_is_not_finite_is_not_learnt(tmp_path, name, said):
    name = f"tests.helpers.environments:{name}"
    with pytest.raises(RunError, match=f"`{name}` returned {said}"):
        train(tmp_path / "run", "dqn", name, SMALL)
    (found,) = [resumed(tmp_path / "run", 300)]
    assert found.limiter.inserts == len(found.replay) > 150
    records = found.replay.records[: len(found.replay)]
    assert np.isfinite(records["next_observation"]).all() and np.isfinite(records["reward"]).all()


def test_weights_that_are_not_finite_replace_no_checkpoint(tmp_path):
    ended = train(tmp_path / "run", "dqn", "CartPole-v1", SMALL)
    before = (tmp_path / "run" / "checkpoint.npz").read_bytes()
    weights = next(iter(ended.learner.policy.values()))
    weights.assign(weights * np.nan)
    with pytest.raises(TrainingError, match="not finite after 63 learner steps"):
        ended.checkpoint()
    assert (tmp_path / "run" / "checkpoint.npz").read_bytes() == before


def test_energy_is_of_all_parts_of_a_run(tmp_path):
    pytest.importorskip("codecarbon", reason="needs the extra `energy`")
    train(tmp_path / "run", "dqn", "CartPole-v1", {**SMALL, "energy": True})
    first = json.loads((tmp_path / "run" / "energy.json").read_text())
    assert first["estimated_kwh"] > 0 and first["processor_seconds"]["learner"] > 0
    train(tmp_path / "run", settings={"steps": 400}, resume=True)
    both = json.loads((tmp_path / "run" / "energy.json").read_text())
    assert set(both) == set(first) and set(both["processor_seconds"]) == {"learner"}
    for name in ("estimated_kwh", "seconds", "of_processor", "emissions_kg"):
        assert both[name] > first[name], name


def test_the_country_decides_the_emissions():
    pytest.importorskip("codecarbon", reason="needs the extra `energy`")
    found = {}
    for country in ("FRA", "POL"):
        with closing(Meter(country)) as meter:
            sum(range(1_000_000))
            found[country] = meter.read({})
    each = {name: costs["emissions_kg"] / costs["estimated_kwh"] for name, costs in found.items()}
    assert each["FRA"] < each["POL"] / 4
    with pytest.raises(UsageError, match="does not know the country Mars"):
        Meter("Mars")


def test_parts_of_a_run_are_added():
    parts = {"kwh": 1.0, "each": {"a": 2.0}}, {"kwh": 0.5, "each": {"a": 1.0, "b": 4.0}}
    assert together(*parts) == {"kwh": 1.5, "each": {"a": 3.0, "b": 4.0}}


def test_ctrl_c_ends_with_a_checkpoint(tmp_path):
    calls = []

    def tick(done, total):
        calls.append(done)
        if len(calls) == 20:
            os.kill(os.getpid(), signal.SIGINT)

    stopped = train(tmp_path / "run", "dqn", "CartPole-v1", SMALL, tick=tick)
    assert not stopped.done and len(calls) == 20
    went_on = train(tmp_path / "run", resume=True)
    assert went_on.done and went_on.counts.learner_steps > stopped.counts.learner_steps > 0


def test_one_directory_has_one_run(tmp_path):
    held = RunDirectory(tmp_path, resume=False)
    with pytest.raises(OutputError, match="another run uses this directory"):
        train(tmp_path, "dqn", "CartPole-v1", SMALL)
    held.close()
    train(tmp_path, "dqn", "CartPole-v1", SMALL)
    with pytest.raises(OutputError, match="contains a run"):
        train(tmp_path, "dqn", "CartPole-v1", SMALL)


@pytest.mark.parametrize("more", [{"on_demand": True}, {"compress": "quantize(8)"}, {"ray": "a"}])
def test_settings_that_need_a_quantizer_are_refused_without_one(tmp_path, more):
    with pytest.raises(UsageError, match=r"(on_demand|compress|ray) needs a quantizer"):
        train(tmp_path, "dqn", "CartPole-v1", {**SMALL, "quantizer": False, **more})


def test_what_cannot_be_resumed_is_reported(tmp_path):
    with pytest.raises(UsageError, match="the run to resume does not exist"):
        train(tmp_path / "none", resume=True)
    train(tmp_path / "run", "dqn", "CartPole-v1", SMALL)
    options = (tmp_path / "run" / "options.json").read_text()
    with pytest.raises(UsageError, match="has reached its end"):
        train(tmp_path / "run", settings={"steps": 200}, resume=True)
    assert (tmp_path / "run" / "options.json").read_text() == options
    with pytest.raises(UsageError, match="batch_size is 8, but the run began with 16"):
        train(tmp_path / "run", settings={"batch_size": 8}, resume=True)
    file = tmp_path / "run" / "checkpoint.npz"
    arrays = dict(np.load(file))
    del arrays[next(n for n in arrays if n.startswith("variable/") and "replay/" not in n)]
    write_npz(file, arrays)
    with pytest.raises(LoadError, match=r"checkpoint\.npz: variable `.*` is missing"):
        train(tmp_path / "run", settings={"steps": 400}, resume=True)
    file.write_bytes(b"damaged")
    with pytest.raises(LoadError, match="not a checkpoint that can be read"):
        train(tmp_path / "run", settings={"steps": 400}, resume=True)


def test_a_loss_that_is_not_finite_ends_the_run(tmp_path):
    with pytest.raises(TrainingError, match="the loss is"):
        train(
            tmp_path / "run",
            "dqn",
            "CartPole-v1",
            {**SMALL, "learning_rate": 1e30, "samples_per_insert": 64.0},
        )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--algo", "d4pg", "--env", "CartPole-v1"), "whose actions are one of several"),
        (("--algo", "dqn", "--env", "CartPol-v1"), "did you mean CartPole-v1"),
        (
            ("--algo", "dqn", "--env", "CartPole-v1", "--actor-bits", "9"),
            "--actor-bits must be one of 32, 16, 8",
        ),
        (
            ("--algo", "d4pg", "--env", "tests.helpers.environments:Unbounded-v0"),
            "which is not supported",
        ),
        (
            ("--algo", "dqn", "--env", "CartPole-v1", "--steps", "1000"),
            "--steps 1000 is too few: learning starts after 1000 steps",
        ),
        (
            ("--algo", "impala", "--env", "CartPole-v1", "--steps", "160", "--actors", "2"),
            "--steps 160 is too few for one batch: --batch-size is 160, and --actors 2",
        ),
        (
            ("--algo", "dqn", "--env", "CartPole-v1", "--spi", "inf"),
            "--samples-per-insert must be a finite number above 0, not inf",
        ),
        (("--algo", "dqn"), "a new run needs an algorithm and an environment"),
        (
            ("--algo", "dqn", "--env", "CartPole-v1", "--hidden", "x"),
            "--hidden-sizes must be a list of whole numbers",
        ),
    ],
)
def test_wrong_arguments_write_nothing(tmp_path, arguments, said):
    out = tmp_path / "run"
    result = qgraph("rl", "train", *arguments, "--out", out)
    assert result.code == 2 and said in result.err
    assert not out.exists()


def test_a_full_disk_is_an_error_with_a_clear_message(tmp_path, monkeypatch):
    monkeypatch.setattr("qgraph.files.os.replace", no_space)
    with pytest.raises(OutputError, match="No space left on device"):
        train(tmp_path / "run", "dqn", "CartPole-v1", SMALL)


def test_d4pg_learns_numbers(tmp_path):
    small = {**SMALL, "critic_hidden_sizes": (16,), "evaluate_every": 100, "episodes": 1}
    training = train(tmp_path / "run", "d4pg", "Pendulum-v1", small)
    assert training.done
    records = training.replay.records
    assert np.abs(records["action"]).max() <= 1
    assert records["action"].std() > 0.05


@pytest.mark.slow
def test_dqn_balances(tmp_path):
    settings = {"steps": 25_000, "actor_bits": 8}
    training = train(tmp_path / "run", "dqn", "CartPole-v1", settings)
    best = max(float(row["return_mean"]) for row in rows(tmp_path / "run" / "progress.csv"))
    assert training.done and best == 500


@pytest.mark.slow
def test_d4pg_balances(tmp_path):
    pytest.importorskip("dm_control", reason="needs the extra `rl`")
    settings = {"steps": 25_000, "actor_bits": 8, "actors": 2}
    train(tmp_path / "run", "d4pg", "dm_control:cartpole-balance", settings)
    best = max(float(row["return_mean"]) for row in rows(tmp_path / "run" / "progress.csv"))
    assert best > 900
