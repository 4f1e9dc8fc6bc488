"""Actors on two Ray nodes of this machine."""

import csv

import pytest

from qgraph.errors import UsageError
from qgraph.rl.agents import config_for
from tests.helpers.ray_cluster import two_nodes

SETTINGS = {
    "hidden_sizes": (16,),
    "min_replay_size": 50,
    "batch_size": 16,
    "samples_per_insert": 4.0,
    "actors": 3,
    "actor_bits": 8,
}
SETTINGS |= {"evaluate_every": 200, "episodes": 1, "actor_update_period": 10, "steps": 1500}


@pytest.mark.extra
@pytest.mark.slow
def test_a_run_with_actors_on_two_nodes(tmp_path):
    pytest.importorskip("gymnasium", reason="needs the extra `rl`")
    from qgraph.rl.learn.runs import train

    with two_nodes() as cluster:
        where = {"ray": cluster.address, "nodes": 2}
        # Long enough for the last actor to begin, whose process may be seconds behind the first.
        settings = {**SETTINGS, **where, "steps": 8000}
        training = train(tmp_path / "run", "dqn", "CartPole-v1", settings)
    assert training.done
    records = training.replay.records
    assert set(records["actor"]) == {0, 1, 2}
    for actor in range(3):
        assert records["version"][records["actor"] == actor].max() > 0
    with (tmp_path / "run" / "actors.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert {row["actor"] for row in rows if float(row["steps"]) > 0} == {"0", "1", "2"}


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ({"nodes": 2}, "nodes 2 needs ray"),
        ({"nodes": 4, "ray": "auto"}, "nodes is 4, but actors is only 3"),
        ({"ray": "auto", "in_process": True}, "ray and in_process exclude each other"),
    ],
)
def test_places_that_cannot_be_are_refused(where, message):
    with pytest.raises(UsageError, match=message):
        config_for("dqn", "CartPole-v1", **{**SETTINGS, **where})
