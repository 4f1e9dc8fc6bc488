from __future__ import annotations

import numpy as np
import pytest

from benchmarks.broadcast.policies import dense_policy, drawn_weights
from benchmarks.broadcast.scaling import BITS, CLUSTER_ACTORS, NETWORK, PERIOD, Costs, _model
from qgraph.rl.actor import Actor, Packer


def test_the_policies_act() -> None:
    program = dense_policy((32, 32))
    actor = Actor(Packer(program).pack(drawn_weights(program)))
    found = actor(np.ones((3, 64), np.float32))
    assert found.shape == (3, 16)
    assert 0 < np.abs(found).max() < 1


def test_the_cost_model_gives_back_what_follows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    cb, ca, co = 0.5, 2.0, 0.25
    found = []
    for n in (1, 2, 8):
        saved = ((cb + ca) * n - co * min(n, 2)) / n
        found.append(Costs(n, BITS[0], 1.0 + cb, 3.0 + ca, 1.0 - (cb + ca - saved), 9.0))
        found.append(Costs(n, BITS[1], 1.0, 3.0, 1.0, 5.0))
    table = _model(found, {BITS[0]: 4_000_000, BITS[1]: 1_000_000})
    for row in table.rows[:-1]:
        assert float(row["measured"]) == pytest.approx(row["model"], abs=0.01)
    link = 1000 / PERIOD * 3_000_000 / NETWORK
    assert table.rows[-1]["model"] == pytest.approx((cb + link + ca - co) * CLUSTER_ACTORS)


@pytest.mark.slow
def test_a_short_run_of_each_path() -> None:
    pytest.importorskip("torch")
    from benchmarks.broadcast.latency import KINDS, latency

    table = latency("small", (32, 32), updates=3, rest=0.0005)
    assert [row["bits"] for row in table.rows] == [bits for _, bits in KINDS]
    assert all(row["ms"] > 0 for row in table.rows)
