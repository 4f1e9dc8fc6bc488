"""Parts of the benchmarks of policies."""

import numpy as np
import pytest

from benchmarks import policies_bits, policies_deployed
from qgraph.rl.head import Head
from qgraph.rl.policy import load_policy, pack, read_policy
from qgraph.rl.policy.affine import Simulated
from qgraph.rl.policy.study import forms, study
from tests.helpers.playing import chaser


def test_tables_have_a_row_for_each_policy(made):
    network, head = read_policy(chaser()), Head("argmax")
    several = forms(network, [16, 8], ["papers", "static"], head, "Chase")
    floating = Simulated(network.program, network.weights)
    found = study(floating, several, head, "Chase", episodes=3, steps=20)
    tables = list(policies_bits.tables([("chaser", found)]))
    assert [row["policy"] for table in tables for row in table.rows] == ["chaser"] * 4
    papers, static = tables[0].rows
    assert papers["fp16"] == papers["float"] and static["fp16"] is None
    assert all("| chaser |" in t.markdown() for t in tables)


@pytest.mark.parametrize("evict", [False, True])
@pytest.mark.parametrize(("bits", "form"), [(32, "dynamic"), (4, "dynamic"), (8, "static")])
def test_a_deployed_policy_is_measured(bits, form, evict, tmp_path):
    network = read_policy(policies_deployed.policy_of((16, 16)))
    seen = policies_deployed.seen(64) if form == "static" else None
    file = pack(network, Head("argmax"), bits, form, seen).write(tmp_path / "p.qpol")
    found = policies_deployed.child(str(file), 0.01, 0, evict)
    assert found["median"] > 0 and found["memory"] >= 0


@pytest.mark.parametrize("needed", [1, 100_000, 3_000_000, 12_345_678])
def test_the_least_space_is_found(needed, monkeypatch, tmp_path):
    def measured(file, seconds, limit=0, evict=False):
        return {} if limit >= needed else {"failed": "MemoryError"}

    monkeypatch.setattr(policies_deployed, "measured", measured)
    found = policies_deployed.least_space(tmp_path)
    assert needed <= found <= needed + policies_deployed.GRAIN


def test_a_static_policy_is_written_in_c(tmp_path):
    network = read_policy(policies_deployed.policy_of((16,)))
    packed = pack(network, Head("argmax"), 8, "static", policies_deployed.seen(64))
    policy = load_policy(packed.write(tmp_path / "p.qpol"))
    found = policies_deployed.in_c(policy, tmp_path)
    if found is None:
        pytest.skip("no C compiler")
    assert np.isfinite(found[0]) and found[1] > 0
