"""The compressor at work: snapshots in, blocks out, and the last good policy where it fails."""

import re
from dataclasses import replace

import numpy as np
import pytest

from qgraph.errors import UnsupportedError, UsageError
from qgraph.records import from_json, to_object
from qgraph.rl.actor import Actor, Packer, read_block
from qgraph.rl.compress import ChainPolicy, Compressor
from qgraph.rl.compress.prune import Prune
from qgraph.rl.compress.settings import Settings
from qgraph.rl.compress.student_file import read_students
from qgraph.rl.monitor import LearnerFacts
from qgraph.rl.monitor.indicators import unmeasured
from qgraph.rl.monitor.log import LINES, read_log
from tests.helpers.compressors import PROGRAM, SPEC, seen, weights, worker

FAILS = "tests.helpers.links.FailsAbove(0.0)|quantize(8)"
REFUSES = "quantize(8)|tests.helpers.links.RefusesBits(16)"


def original(found, version):
    return ChainPolicy(PROGRAM, found).pack(version)


def test_a_block_is_what_the_chain_makes_with_the_version_of_the_snapshot():
    made = worker("prune(0.5)|quantize(4)|pack").step(weights(), LearnerFacts(version=7))
    chain = Compressor().prune(0.5).quantize(4)
    assert (made == chain(ChainPolicy(PROGRAM, weights())).pack(7)).all()
    assert read_block(made).version == 7


def test_a_failed_link_leaves_the_last_good_policy_acting(tmp_path):
    one = worker(FAILS, folder=str(tmp_path))
    assert read_block(one.step(weights(), LearnerFacts(1))).bits == 8
    assert one.step(weights(bias=1.0), LearnerFacts(2)) is None
    assert one.step(weights(bias=2.0), LearnerFacts(3)) is None
    assert one.failures == 2
    assert read_block(one.step(weights(), LearnerFacts(4))).version == 4
    _, *reasons = [row.decision.reason for row in read_log(tmp_path / LINES)]
    assert reasons[0] == "stays" and "does not fit" in reasons[1]
    assert len(reasons) == 2  # the same complaint once; the next look is later


def test_before_the_first_good_policy_the_original_acts():
    one = worker(FAILS)
    for version in (1, 2):
        found = one.step(weights(bias=1.0), LearnerFacts(version))
        assert (found == original(weights(bias=1.0), version)).all()


def test_weights_that_are_not_finite_fail_too():
    one = worker("quantize(8)")
    one.step(weights(), LearnerFacts(1))
    assert one.step({**weights(), "b1": np.full(3, np.nan, "f4")}, LearnerFacts(2)) is None


def test_the_monitor_looks_at_intervals_and_its_decision_acts(tmp_path):
    one = worker(
        "quantize(4)", monitor="tests.helpers.links.Steps:4", every=2, folder=str(tmp_path)
    )
    bits = [read_block(one.step(weights(), LearnerFacts(i), seen())).bits for i in range(6)]
    assert bits == [4, 8, 8, 16, 16, 32]
    _, *rows = read_log(tmp_path / LINES)
    assert [row.indicators.version for row in rows] == [0, 2, 4]
    assert rows[0].indicators.kl_mean > rows[1].indicators.kl_mean > rows[2].indicators.kl_mean > 0


def test_the_mix_gives_actors_the_original_so_often():
    one = worker("prune(0.9)|quantize(2)", monitor="mix:0.1", every=1)
    wide = {**weights(), "w1": 10 * weights()["w1"]}
    found = [one.step(wide, LearnerFacts(i), seen()) for i in range(20)]
    assert read_block(found[0]).bits == 2  # before the first look
    assert {read_block(block).bits for block in found[1:]} == {32}
    told = LearnerFacts(99, original_return=3.0, compressed_return=3.0, compressed_version=19.0)
    one.step(wide, told, seen())
    assert np.isnan(
        one.monitor.measurements[-1].indicators.reward_gap
    )  # the original was evaluated
    one.step(wide, replace(told, compressed_version=0.0), seen())
    assert one.monitor.measurements[-1].indicators.reward_gap == 0
    one = worker("quantize(8)", monitor="mix:0.1", every=1)
    small = {**weights(), "w1": weights()["w1"] * 1e-3}
    assert {read_block(one.step(small, LearnerFacts(i), seen())).bits for i in range(20)} == {8}


def test_a_student_learns_from_snapshot_to_snapshot():
    one, x = worker("distill(8, steps=60)"), seen(256)
    assert (
        one.step(weights(), LearnerFacts(0)) == original(weights(), 0)
    ).all()  # nothing seen yet
    assert one.failures == 0

    def error(block):
        wanted = Actor(original(weights(), 0))(x)
        found = Actor(block)(x)
        centred = [y - y.mean(1, keepdims=True) for y in (wanted, found)]
        return float(((centred[0] - centred[1]) ** 2).mean())

    errors = [error(one.step(weights(), LearnerFacts(i), x)) for i in (1, 2, 3)]
    assert errors[2] < errors[1] < errors[0]


def test_more_bits_leave_a_student_what_it_has_learnt(tmp_path):
    chain = "distill(8, steps=60)|quantize(8)"
    one = worker(chain, monitor="kl_max:1e-9", every=3, folder=str(tmp_path))
    for version in range(7):
        one.step(weights(), LearnerFacts(version), seen(256))
    _, *rows = read_log(tmp_path / LINES)
    assert [row.decision.compressor.links[1].bits for row in rows] == [16, 32, 32]
    means = [row.indicators.kl_mean for row in rows]
    assert means[2] < means[1] < means[0]


def test_a_decision_that_does_not_work_is_left(tmp_path):
    """The monitor goes from 8 to 16 bits, which the next link refuses, once. It continues to 32."""
    one = worker(REFUSES, monitor="kl_max:1e-9", every=1, folder=str(tmp_path))
    made = [one.step(weights(), LearnerFacts(i), seen()) for i in range(6)]
    assert [block is None for block in made] == [False, True, False, False, False, False]
    assert one.failures == 1
    bits = [read_block(block).bits for block in made if block is not None]
    assert bits == [8, 8, 32, 32, 32]
    _, *rows = read_log(tmp_path / LINES)
    assert [row.failed for row in rows] == [False, True, False, False, False, False]
    assert "failed, away from quantize(16)" in rows[1].decision.reason
    again = worker(REFUSES, monitor="kl_max:1e-9", folder=str(tmp_path), until=1)
    assert again.monitor.decision.compressor.links[0].bits == 8


def test_earlier_failures_are_not_attributed_to_the_strategy():
    own = "tests.helpers.links.Steps:8"
    one = worker("quantize(8)", monitor=own, every=1)
    good = one.monitor.decision
    one.step(weights(), LearnerFacts(0), seen())
    one.monitor.failed(unmeasured(LearnerFacts(1)), "no layer", good, for_good=True)
    bits = [read_block(one.step(weights(), LearnerFacts(i), seen())).bits for i in (2, 3)]
    assert bits == [8, 32]


@pytest.mark.parametrize("has_policy", [False, True])
def test_a_resumed_run_leaves_a_decision_that_does_not_work(tmp_path, has_policy):
    """The last measurement of the earlier worker made the decision."""
    more = {"monitor": "kl_max:1e-9", "every": 1, "folder": str(tmp_path)}
    worker(REFUSES, **more).step(weights(), LearnerFacts(0), seen())
    again = Settings(REFUSES, **more, until=0).worker(SPEC, has_policy=has_policy)
    assert again.monitor.decision.compressor.links[0].bits == 16
    first = again.step(weights(), LearnerFacts(1), seen())
    assert first is None if has_policy else (first == original(weights(), 1)).all()
    assert [read_block(again.step(weights(), LearnerFacts(i), seen())).bits for i in (2, 3)] == [
        8,
        32,
    ]
    assert again.failures == 1


def test_a_setting_that_fails_before_any_worked_is_left_for_another():
    fails = "tests.helpers.links.FailsAbove(0.0)|quantize(4)"
    one = worker("quantize(8)", monitor=f"growth:{fails};quantize(8);{fails}|pack", every=1)
    found = one.step(weights(bias=1.0), LearnerFacts(0), seen())
    assert (found == original(weights(bias=1.0), 0)).all()
    made = [one.step(weights(bias=1.0), LearnerFacts(i), seen()) for i in (1, 2)]
    assert [read_block(block).bits for block in made] == [8, 8] and one.failures == 1


def test_each_setting_that_fails_for_the_same_reason_is_left():
    """A link's text is the same in all three."""
    fails = "tests.helpers.links.FailsAbove(0.0)"
    arms = f"{fails}|quantize(4);{fails}|quantize(8);quantize(16)"
    one = worker("quantize(8)", monitor=f"growth:{arms}", every=1)
    made = [read_block(one.step(weights(bias=1.0), LearnerFacts(i), seen())).bits for i in range(3)]
    assert made == [32, 32, 16] and one.failures == 2


def test_a_decision_that_numbers_undid_is_made_again():
    """The snapshot after the one with NaN can be packed in 16 bits."""
    one = worker("quantize(8)", monitor="kl_max:1e-9", every=1)
    one.step(weights(), LearnerFacts(0), seen())
    wild = {**weights(), "b1": np.full(3, np.nan, "f4")}
    assert one.step(wild, LearnerFacts(1), seen()) is None
    bits = [read_block(one.step(weights(), LearnerFacts(i), seen())).bits for i in (2, 3)]
    assert bits == [8, 16]


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("FailsToDecide:0", "a mistake of its author"),
        ("DecidesNothing:0", "DecidesNothing:0` decides None, which is not a `Decision`"),
        ("Decides:text=True", "decides on 'quantize(8)', which is not a `Compressor`"),
        ("Decides:2.0", "decides on a share of 2.0, not 0 to 1"),
    ],
)
def test_a_strategy_that_fails_leaves_what_is_in_force(tmp_path, name, complaint):
    own = f"tests.helpers.plain_links.{name}"
    one = worker("quantize(8)", monitor=own, every=1, folder=str(tmp_path))
    made = [read_block(one.step(weights(), LearnerFacts(i), seen())) for i in range(3)]
    assert [(block.version, block.bits) for block in made] == [(0, 8), (1, 8), (2, 8)]
    _, *rows = read_log(tmp_path / LINES)
    assert [row.failed for row in rows] == [False, False, False] and one.failures == 0
    reason = rows[1].decision.reason
    assert reason.startswith("stays, the strategy failed: ") and complaint in reason


def test_links_of_ones_own_that_raise_leave_the_last_good_policy_acting():
    one = worker("tests.helpers.plain_links.RaisesAfter(1)|quantize(8)")
    assert read_block(one.step(weights(), LearnerFacts(1))).version == 1
    assert one.step(weights(), LearnerFacts(2)) is None
    assert one.failures == 1


def test_a_policy_with_nan_outputs_does_not_act():
    one = worker("prune(0.5)")
    assert one.step(weights(), LearnerFacts(1), seen()) is not None
    wild = {name: np.full_like(w, 3e38) if name == "w1" else w for name, w in weights().items()}
    assert one.step(wild, LearnerFacts(2), seen()) is None
    assert one.failures == 1


def test_before_a_measurement_a_policy_runs_on_all_observations():
    one, x = worker("prune(0.5)", every=2), seen()
    wide = {**weights(), "w0": 100 * weights()["w0"]}
    x[40] = 3e38
    for version in range(2):
        assert (one.step(wide, LearnerFacts(version), x) == original(wide, version)).all()
    assert one.failures == 2
    assert read_block(one.step(wide, LearnerFacts(2), seen())).version == 2
    assert one.step(wide, LearnerFacts(3), x) is not None  # between looks


def test_impossible_chains_are_reported():
    with pytest.raises(UnsupportedError, match=r"`distill\(net3\)`: the student is for images"):
        Settings("distill(net3)|quantize(8)").check(SPEC)
    with pytest.raises(UsageError, match="`static` is for deployment"):
        Settings("quantize(8)", monitor="growth:quantize(4);static(8)")


def test_a_policy_that_would_be_larger_is_refused():
    with pytest.raises(UsageError, match="makes the policy larger"):
        Settings("distill(512-512)").check(SPEC)
    one = worker("distill(512-512, steps=1)")
    assert (one.step(weights(), LearnerFacts(1), seen()) == original(weights(), 1)).all()
    assert one.failures == 1


def test_settings_are_checked_before_a_run():
    with pytest.raises(UsageError, match="`static` is for deployment"):
        Settings("static(8)")
    with pytest.raises(UsageError, match="has no `quantize` whose bits can grow"):
        Settings("prune(0.5)", monitor="kl_max:14")
    with pytest.raises(UsageError, match="must be 1 or more"):
        Settings("quantize(8)", every=0)
    with pytest.raises(UnsupportedError, match="the student is for images"):
        Settings("distill(net3)").check(SPEC)
    with pytest.raises(UnsupportedError, match="the student is for images"):
        Settings("quantize(8)", monitor="growth:quantize(4);distill(net1)").check(SPEC)
    Settings("prune(0.5)|distill|quantize(8)|pack").check(SPEC)
    settings = Settings("quantize(8)", until=3)
    assert from_json(Settings, to_object(settings)) == settings


def test_pruning_that_removes_nothing_is_reported_before_a_run():
    with pytest.raises(UnsupportedError, match=r"`prune\(0.01\)`: no layer has enough units"):
        Settings("prune(0.01)|quantize(8)").check(SPEC)
    Settings("distill(8)|prune(0.01)").check(SPEC)  # of the student's units
    one = worker("prune(0.01)")  # as a monitor may come to
    assert one.step(weights(), LearnerFacts(1)) is not None and not one.failures


@pytest.mark.parametrize("name", ["Writes", "Rebinds", "WritesSeen"])
def test_links_cannot_write_to_what_they_are_given(name):
    x, given = seen(), weights()
    policy, text = ChainPolicy(PROGRAM, given), f"tests.helpers.links.{name}(7.0)"
    with pytest.raises(UnsupportedError, match=re.escape(f"`{text}` failed: ")):
        Compressor.parse(text)(policy, x)
    assert (x == seen()).all() and (policy.pack() == original(weights(), 0)).all()
    assert all((given[name] == array).all() for name, array in weights().items())
    one = worker(text)
    assert (one.step(given, LearnerFacts(1), x) == original(weights(), 1)).all()
    assert one.failures == 1


def test_what_is_given_to_a_policy_stays_ones_own():
    given = weights()
    policy = ChainPolicy(PROGRAM, given)
    given["w0"] = np.zeros_like(given["w0"])
    assert (policy.pack() == original(weights(), 0)).all()
    given["b0"][0] = 5.0  # its own array can be written to


def test_links_of_ones_own_have_all_texts_of_their_memory(tmp_path):
    text = "tests.helpers.links.Remembers(mine)|distill(8, steps=1)"
    one = worker(text, folder=str(tmp_path))
    one.step(weights(), LearnerFacts(0), seen())
    one.keep()
    assert list(read_students(tmp_path)) == ["distill(8, steps=1)"]


def test_weights_that_are_not_finite_at_first_give_no_policy():
    one = worker("prune(0.5)")
    assert one.step({**weights(), "b1": np.full(3, np.nan, "f4")}, LearnerFacts(1)) is None
    assert one.step(weights(), LearnerFacts(2)) is not None


def test_a_beat_is_heard_while_a_student_learns():
    beats = []
    one = Settings("distill(8, steps=30)").worker(SPEC, lambda: beats.append(1))
    one.step(weights(), LearnerFacts(1), seen())
    assert len(beats) > 30


def test_compressed_blocks_fit_where_original_blocks_fit():
    one = worker("quantize(8)")
    assert len(Packer(PROGRAM, 32).pack(weights())) < one.max_block_size


def test_a_gap_measured_with_another_chain_is_ignored(tmp_path):
    one = worker("prune(0.9)|quantize(8)", monitor="reward_gap:10", every=1, folder=str(tmp_path))
    gap = LearnerFacts(original_return=100.0, compressed_return=0.0)
    for version, evaluated in ((1, 0), (2, 0), (3, 1), (4, 2), (5, 4), (6, 4)):
        told = replace(gap, version=version, compressed_version=float(evaluated))
        one.step(weights(), told, seen())
    _, *rows = read_log(tmp_path / LINES)
    chains = [row.decision.compressor.first(Prune).sparsity for row in rows]
    assert chains == [0.6, 0.6, 0.6, 0.3, 0.3, 0.3]
    assert [row.indicators.reward_gap for row in rows][::3] == [100.0, 100.0]
    assert all(np.isnan(rows[i].indicators.reward_gap) for i in (1, 2, 4, 5))


def test_a_gap_that_was_measured_before_a_restart_is_not_counted_twice(tmp_path):
    more = {"monitor": "reward_gap:10", "every": 1, "folder": str(tmp_path)}
    gap = LearnerFacts(original_return=100.0, compressed_return=0.0, compressed_version=0.0)
    worker("prune(0.9)", **more).step(weights(), replace(gap, version=1), seen())
    again = Settings("prune(0.9)", **more, until=9).worker(SPEC, has_policy=True)
    for version, evaluated in ((2, 0), (3, 1), (4, 1)):  # 1: the chain of that one is unknown
        told = replace(gap, version=version, compressed_version=float(evaluated))
        again.step(weights(), told, seen())
        assert str(again.monitor.decision.compressor) == "prune(0.6)"
    again.step(weights(), replace(gap, version=5, compressed_version=2.0), seen())
    assert str(again.monitor.decision.compressor) == "prune(0.3)"


def test_an_original_that_acts_before_the_first_policy_is_not_measured_as_the_chain():
    one = worker("distill(8, steps=1)", every=1)
    gap = LearnerFacts(original_return=5.0, compressed_return=5.0)
    assert (
        one.step(weights(), LearnerFacts(0)) == original(weights(), 0)
    ).all()  # nothing seen yet
    for version, evaluated in ((1, 0), (2, 1)):
        told = replace(gap, version=version, compressed_version=float(evaluated))
        one.step(weights(), told, seen())
    gaps = [look.indicators.reward_gap for look in one.monitor.measurements]
    assert np.array_equal(gaps, [np.nan, 0.0], equal_nan=True)
