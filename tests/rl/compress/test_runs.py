"""Runs whose actors act by compressed policies."""

import json
import math
import re

import numpy as np
import pytest

from qgraph.errors import UnsupportedError, UsageError
from qgraph.rl.agents import config_for
from qgraph.rl.compress.distill import StudentPlace
from qgraph.rl.compress.student_file import read_students
from qgraph.rl.learn.runs import train
from qgraph.rl.monitor.log import LINES, read_log
from qgraph.words import counted
from tests.helpers.cli import run as qgraph
from tests.helpers.runs import MANY, begun, ends_when, resumed, unwatched

pytest.importorskip("gymnasium", reason="needs the extra `rl`")
FAILS = "tests.helpers.links.FailsAbove(0.0)|quantize(8)"
SMALL = {
    "steps": 400,
    "hidden_sizes": (16, 16),
    "min_replay_size": 50,
    "batch_size": 16,
    "samples_per_insert": 4.0,
    "evaluate_every": 30,
    "episodes": 2,
    "publish_every": 5,
    "monitor_every": 1,
    "actor_update_period": 10,
}


def looks(path):
    """The monitor's measurements of compressed policies."""
    log = path / LINES
    return (
        [row.indicators for row in read_log(log) if row.indicators.kl_mean > 0]
        if log.exists()
        else []
    )


@pytest.mark.parametrize("where", [{"in_process": True}, {"actors": 2}, {"on_demand": True}])
def test_actors_run_what_the_chain_makes(tmp_path, where):
    settings = {**SMALL, **where, "compress": "prune(0.5)|quantize(4)", "steps": MANY}
    settings["monitor"] = "reward_gap:1000"  # more than CartPole's best: the chain stays
    training, acted = begun(tmp_path, "dqn", "CartPole-v1", **settings), []
    ends_when(training, lambda _: any(math.isfinite(seen.reward_gap) for seen in looks(tmp_path)))
    report = training._report

    def reported(actors, watch):
        report(actors, watch)
        acted.append(actors.compressed_actor())

    training._report = reported
    assert training.run(unwatched)
    last = acted[-1]
    assert last._program.weight_shapes["hidden_1/kernel"] == (8, 8)  # of 16, 16
    training.directory.close()


@pytest.mark.parametrize("algo", ["sac", "d4pg"])
@pytest.mark.parametrize("chain", ["prune(0.5)|distill|quantize(8)", "distill(8-8)|factorize(0.9)"])
def test_policies_of_continuous_actions_are_compressed_too(tmp_path, algo, chain):
    settings = {**SMALL, "in_process": True, "compress": chain}
    train(tmp_path, algo, "Pendulum-v1", settings)
    rows = read_log(tmp_path / LINES)
    assert len(rows) > 2 and not any(row.failed for row in rows[1:])
    if algo == "sac":  # whose policies draw
        assert all(row.indicators.kl_mean > 0 for row in rows[1:])


def test_one_seed_one_result(tmp_path):
    settings = {**SMALL, "in_process": True, "compress": "prune(0.25)|quantize(8)"}
    found = []
    for name in "ab":
        train(tmp_path / name, "dqn", "CartPole-v1", settings)
        columns = [line.split(",") for line in (tmp_path / name / "episodes.csv").open()]
        found.append([row[:5] for row in columns])
    assert found[0] == found[1] and len(found[0]) > 5


def test_a_resumed_run_continues_its_log(tmp_path):
    settings = {**SMALL, "in_process": True, "compress": "quantize(4)", "monitor": "kl_max:1e-9"}
    train(tmp_path, "dqn", "CartPole-v1", settings)
    before = read_log(tmp_path / LINES)
    assert [row.decision.compressor.links[0].bits for row in before][-1] == 32
    train(tmp_path, settings={"steps": 600}, resume=True)
    after = read_log(tmp_path / LINES)
    assert repr(after[: len(before)]) == repr(before) and len(after) > len(before)
    versions = [row.indicators.version for row in after]
    assert versions == sorted(versions)
    bits = [row.decision.compressor.links[0].bits for row in after[len(before) :]]
    assert bits[0] == 32 and 4 not in bits  # it does not begin again


def test_a_resumed_run_knows_the_returns_that_its_last_look_saw(tmp_path):
    """Its first measurement comes before any episode has ended."""
    settings = {**SMALL, "in_process": True, "compress": "quantize(4)"}
    first = train(tmp_path, "dqn", "CartPole-v1", settings)
    before = read_log(tmp_path / LINES)
    second = resumed(tmp_path)
    assert second.recent == first.recent and len(second.recent) > 5
    second.directory.close()
    train(tmp_path, settings={"steps": 401}, resume=True)
    after = read_log(tmp_path / LINES)[len(before) :]
    assert after[0].indicators.episodes == first.counts.episodes
    assert after[0].indicators.returned == pytest.approx(sum(first.recent) / len(first.recent))


@pytest.mark.parametrize("where", [{"in_process": True}, {"actors": 1}])
def test_students_are_kept_beside_a_run(tmp_path, where):
    settings = {**SMALL, **where, "compress": "distill(8, steps=1)|quantize(8)", "steps": MANY}
    powers = []
    for made in (lambda path: begun(path, "dqn", "CartPole-v1", **settings), resumed):
        training, before = made(tmp_path), len(looks(tmp_path))
        ends_when(training, lambda _, before=before: len(looks(tmp_path)) > before + 1)
        assert training.run(unwatched)
        training.directory.close()
        (memory,) = read_students(tmp_path).values()
        powers.append(memory[StudentPlace.KEPT]["adam/powers"])
    assert (powers[1] < powers[0]).all()  # one step after the other


@pytest.mark.parametrize("where", [{"in_process": True}, {"actors": 1}])
def test_failed_links_are_reported_at_the_end(tmp_path, where):
    settings = {**SMALL, **where, "steps": MANY, "compress": FAILS}
    training = begun(tmp_path, "dqn", "CartPole-v1", **settings)
    ends_when(training, lambda _: bool(training.actors.warnings()))
    assert training.run(unwatched)
    (told,) = training.warnings
    assert re.match(r"\d+ policies were not compressed, .*monitor.csv", told)
    training.directory.close()


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"compress": "prune(1)"}, "above 0 and below 1"),
        ({"compress": "shrink(2)"}, "unknown link `shrink`"),
        ({"monitor": "kl_max:14"}, "monitor and monitor_every need compression"),
        ({"compress": "quantize(8)", "monitor": "kl_max:inf"}, "can never be passed"),
        (
            {"compress": "quantize(8)", "actor_bits": 8},
            "with compress, bits are set by the link `quantize`",
        ),
        ({"compress": "quantize(8)", "synchronous": True}, "cannot be combined with synchronous"),
        ({"compress": "quantize(8)", "ray": "auto"}, "cannot be combined with ray"),
    ],
)
def test_options_that_do_not_fit(given, complaint):
    with pytest.raises(UsageError, match=re.escape(complaint)):
        config_for("dqn", "CartPole-v1", **given)


def test_a_chain_that_does_not_fit_ends_a_run_before_it_begins(tmp_path):
    with pytest.raises(UnsupportedError, match="the student is for images"):
        train(tmp_path / "run", "dqn", "CartPole-v1", {**SMALL, "compress": "distill(net3)"})
    assert not (tmp_path / "run").exists()


def test_links_of_ones_own_lie_in_the_folder_where_one_works(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine_alone.py").write_text(
        "from dataclasses import dataclass\n"
        "from qgraph.rl.compress import Link\n"
        "@dataclass(frozen=True)\n"
        "class Same(Link):\n"
        "    def __call__(self, policy, task):\n"
        "        return policy\n"
    )
    for compress, code in (("mine_alone.Same|quantize(8)", 0), ("mine_too.Same", 2)):
        found = qgraph(
            "rl", "train", "--algo", "dqn", "--env", "CartPole-v1", "--steps", "1050",
            "--hidden", "8", "--spi", "1", "--in-process", "--episodes", "1",
            "--out", str(tmp_path / str(code)), "--compress", compress,
        )  # fmt: skip
        assert found.code == code, found.err
    assert "unknown link `mine_too.Same`: No module named 'mine_too'" in found.err


def test_the_verb_takes_both(tmp_path):
    out = tmp_path / "run"
    found = qgraph(
        "rl", "train", "--algo", "dqn", "--env", "CartPole-v1", "--steps", "1100", "--hidden", "16",
        "--spi", "2", "--in-process", "--out", str(out), "--episodes", "1",
        "--compress", "prune(0.5)|quantize(8)", "--monitor", "kl_max:14", "--monitor-every", "1",
    )  # fmt: skip
    assert found.code == 0, found.err
    options = json.loads((out / "options.json").read_text())
    assert options["compress"] == "prune(0.5)|quantize(8)" and options["monitor_every"] == 1
    seen = [row for row in read_log(out / LINES) if row.looked]
    shown = [line.rstrip().split(maxsplit=1) for line in found.out.splitlines()]
    assert ["compression", "prune(0.5)|quantize(8)"] in shown
    assert [
        "monitor",
        f"{counted(len(seen), 'measurement')}, 0 changes of the chain (monitor.csv)",
    ] in shown
    assert found.out.splitlines()[-1] == f"next: qgraph rl evaluate {out}/policy.pb"


@pytest.mark.parametrize("where", [{"in_process": True}, {"actors": 1}])
@pytest.mark.parametrize(
    ("link", "correct", "judges"),
    [
        ("distill(8, steps=1)", "vtrace", True),
        ("distill(8, steps=1, value=0.0)", "vtrace", False),
        ("distill(8, steps=1)", "retrace", False),  # has Q(x, .), and no V(x)
    ],
)
def test_students_of_an_actor_critic_learn_values_that_actors_never_get(
    tmp_path, where, link, correct, judges
):
    settings = {
        **SMALL,
        **where,
        "samples_per_insert": 1.0,
        "unroll_length": 5,
        "batch_size": 20,
        "correction": correct,
    }
    del settings["min_replay_size"]  # impala has no replay
    settings |= {"compress": f"{link}|quantize(8)", "evaluate_every": 5, "steps": MANY}
    training, outputs = begun(tmp_path, "impala", "CartPole-v1", **settings), []
    ends_when(training, lambda _: len(outputs) > 1 and len(looks(tmp_path)) > 1)
    report = training._report

    def reported(actors, watch):
        report(actors, watch)
        acting = actors.compressed_actor()
        outputs.append(acting.outputs)
        assert not any("value" in name for name in acting._program.weight_shapes)

    training._report = reported
    assert training.run(unwatched)
    training.directory.close()
    assert set(outputs) == {("output",)}
    (memory,) = read_students(tmp_path).values()
    assert ("value/kernel" in memory[StudentPlace.KEPT]) == judges
    assert not any(row.failed for row in read_log(tmp_path / LINES)[1:])


@pytest.mark.parametrize(
    ("calls", "where"), [(5, {}), (5, {"on_demand": True}), (2, {"on_demand": True})]
)
def test_a_compressor_that_dies_is_started_again(tmp_path, calls, where):
    """The last good policy acts meanwhile; log and students continue. The first call is a trial."""
    counted, out = tmp_path / "calls", tmp_path / "run"
    chain = (
        f"tests.helpers.links.Dies({counted}, {calls})|distill(8, steps=1, follow=1)|quantize(8)"
    )
    settings = {**SMALL, **where, "steps": MANY, "actors": 1, "compress": chain}
    training, before = begun(out, "dqn", "CartPole-v1", **settings), []

    def acts_again(records):
        if training.actors.warnings() and not before:
            before.append(training.counts.learner_steps)
        return before and records["version"][-1] > before[0]  # of weights that the dead never saw

    records = ends_when(training, acts_again)
    assert training.run(unwatched)
    training.directory.close()
    (told,) = training.warnings
    assert re.match("compressor was restarted: it was killed by SIGKILL", told)
    versions = np.concatenate(records)["version"]
    assert (np.diff(versions) >= 0).all() and versions[-1] > before[0]
    rows = read_log(out / LINES)
    assert [row.indicators.version for row in rows] == sorted(
        row.indicators.version for row in rows
    )
    assert not any(row.failed for row in rows[1:])
