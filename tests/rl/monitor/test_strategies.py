"""What strategies decide on made-up series."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qgraph.errors import UsageError
from qgraph.rl.compress import Compressor
from qgraph.rl.monitor import Indicators, Monitor, parse_strategy
from qgraph.rl.monitor.growth import Growth
from qgraph.rl.monitor.mix import Mix
from qgraph.rl.monitor.monitor import print_strategy
from qgraph.rl.monitor.thresholds import KlMax, RewardGap
from qgraph.rl.monitor.watch import Watch

CHAIN = Compressor().prune(0.5).quantize(8).pack()


def decisions(strategy, series, chain=CHAIN):
    """Text and reason after each look; each item of the series is fields of Indicators."""
    monitor, found = Monitor(strategy, chain), []
    for i, fields in enumerate(series):
        made = monitor.look(Indicators(**{"version": i, "seconds": float(i), **fields}))
        found.append((str(made.compressor), made.reason))
    return found


def bits(found):
    return [Compressor.parse(text).links[1].bits for text, _ in found]


def test_kl_max_gives_more_bits_and_takes_them_back_when_it_is_calm():
    series = [3, 14, 14.1, 9, 20, 30, 40, 6, 6.9, 7, 6, 6, 6, 8, 1, 1, 1]
    found = decisions(KlMax(14, patience=3), [{"kl_max": float(v)} for v in series])
    assert bits(found) == [8, 8, 16, 16, 32, 32, 32, 32, 32, 16, 16, 16, 8, 8, 8, 8, 8]
    assert found[2][1] == "KL max 14.1 > 14: 8 -> 16 bits"
    assert found[5][1] == "KL max 30 > 14: all bits used"
    assert found[9][1] == "KL max <= 7 for 3 looks: 32 -> 16 bits"


def test_the_paper_switches_from_8_to_16_bits():
    assert bits(decisions(parse_strategy("kl_max:14"), [{"kl_max": 15.0}])) == [16]


def test_reward_gap_gives_up_sparsity():
    gaps = [math.nan, 9, 11, 10, 12, 50, 4, 5, 5]
    found = decisions(RewardGap(10, patience=2), [{"reward_gap": float(v)} for v in gaps])
    rest = "|quantize(8)|pack"
    wanted = ["0.5", "0.5", "0.2", "0.2", "", "", "", "0.3", "0.3"]
    pruned = [f"prune({sparsity}){rest}" if sparsity else rest[1:] for sparsity in wanted]
    assert [text for text, _ in found] == pruned
    assert found[2][1] == "reward gap 11 > 10: sparsity 0.5 -> 0.2"
    assert found[5][1] == "reward gap 50 > 10: nothing is pruned any more"


def test_the_mix_falls_linearly_with_kl_mean():
    monitor, shares = Monitor(Mix(0.5), CHAIN), []
    assert monitor.decision.share == 1
    for i, value in enumerate([0, 0.1, 0.25, 0.5, 2, math.nan]):
        made = monitor.look(Indicators(i, 0.0, kl_mean=value))
        shares.append(made.share)
        assert made.compressor == CHAIN
    assert shares == pytest.approx([1, 0.8, 0.5, 0, 0, 0])


def test_a_bandit_finds_the_best_of_three_arms():
    arms = "quantize(4);quantize(8);prune(0.5)|quantize(8)"
    grows = {"quantize(4)": 0.3, "quantize(8)": 1.0, "prune(0.5)|quantize(8)": 0.5}
    for seed in range(5):
        rng, monitor = np.random.default_rng(seed), Monitor(Growth(arms), CHAIN)
        returned, seconds, acted = 0.0, 0.0, []
        monitor.look(Indicators(0, seconds, returned=returned))
        for i in range(300):
            acted.append(str(monitor.decision.compressor))
            passed = float(rng.uniform(0.5, 1.5))
            seconds += passed
            returned += passed * (grows[acted[-1]] + rng.normal(0, 0.3))
            monitor.look(Indicators(i, seconds, returned=returned))
        assert set(acted[:4]) == set(grows)  # each is tried at first
        assert acted[100:].count("quantize(8)") > 120


def test_growth_counts_for_what_acted_and_per_second():
    from qgraph.rl.monitor.growth import growths
    from qgraph.rl.monitor.strategy import Decision, Look

    a, b = Compressor().quantize(4), Compressor().quantize(8)
    looks = [
        Look(Indicators(0, 0.0, returned=math.nan), Decision(a)),
        Look(Indicators(1, 1.0, returned=10.0), Decision(a)),
        Look(Indicators(2, 3.0, returned=16.0), Decision(b)),
        Look(Indicators(3, 3.0, returned=20.0), Decision(b)),
        Look(Indicators(4, 4.0, returned=19.0), Decision(a)),
    ]
    assert growths(looks) == [(b, 3.0), (a, -1.0)]


def test_a_setting_that_does_not_work_is_no_setting_of_growth_any_more():
    monitor = Monitor(parse_strategy("growth"), Compressor().quantize(8))
    good = monitor.decision
    assert monitor.look(Indicators(1, 1.0, returned=1.0)) == good
    wanted = monitor.look(Indicators(2, 2.0, returned=2.0))
    assert str(wanted.compressor) == "quantize(8)"
    monitor.failed(Indicators(3, 3.0), "no layer", good, for_good=True)
    next_one = monitor.look(Indicators(4, 4.0, returned=3.0))
    assert str(next_one.compressor) == "quantize(16)"
    monitor.failed(Indicators(5, 5.0), "no layer", good, for_good=True)
    assert str(monitor.look(Indicators(6, 6.0, returned=3.0)).compressor) == "quantize(4)"


@pytest.mark.parametrize(
    ("text", "chain", "complaint"),
    [
        ("kl_max:0", CHAIN, "a threshold of 0.0 for KL max can never be passed or always is"),
        ("kl_max:inf", CHAIN, "a threshold of inf"),
        ("kl_max:nan", CHAIN, "a threshold of nan"),
        ("kl_max:-3", CHAIN, "a threshold of -3.0"),
        ("kl_max:14", Compressor().prune(0.5), "has none to give more to"),
        ("kl_max:14", Compressor().quantize(32), "has none to give more to"),
        ("reward_gap:10", Compressor().quantize(8), "prunes nothing"),
        ("reward_gap:10", Compressor().prune(0.5).distill("8"), "takes the place of what is left"),
        ("reward_gap:10,step=1.5", CHAIN, "above 0 and at most 1"),
        ("reward_gap:10,patience=0", CHAIN, "patience is 0 looks"),
        ("kl_max:10,patience=0", CHAIN, "patience is 0 looks"),
        ("reward_gap:-1", CHAIN, "for reward gap can never"),
        ("mix:0", CHAIN, "for KL mean can never"),
        ("growth", Compressor().prune(0.5), "between two settings or more"),
        ("growth:quantize(8);quantize(8)", CHAIN, "between two settings or more"),
        ("growth:discount=0", CHAIN, "a discount above 0"),
    ],
)
def test_settings_that_make_no_sense(text, chain, complaint):
    with pytest.raises(UsageError, match=complaint):
        Monitor(parse_strategy(text), chain)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("kl_maxi:14", "no strategy is called `kl_maxi`"),
        ("kl_max:high", "`threshold` of `kl_max\\(high\\)` is a number"),
        ("mix", "does not say its limit"),
        ("qgraph.rl.monitor.indicators.Facts", "it has no `check`"),
    ],
)
def test_texts_that_are_no_strategy(text, complaint):
    with pytest.raises(UsageError, match=complaint):
        parse_strategy(text)


def test_a_strategy_of_ones_own_is_found_by_its_name():
    found = parse_strategy("qgraph.rl.monitor.thresholds.KlMax:3,patience=2")
    assert found == KlMax(3.0, 2)


def test_a_bandit_forgets_what_was_long_ago():
    """After so many looks what an arm brought at first counts for 0."""
    monitor = Monitor(Growth("quantize(4);quantize(8)", exploration=0.0, discount=0.5), CHAIN)
    for i in range(1200):
        made = monitor.look(Indicators(i, float(i), returned=float(i)))
        assert made.reason


def test_what_pruned_may_learn_by_itself():
    RewardGap().check(Compressor().prune(0.5).distill().quantize(8))
    RewardGap().check(Compressor().distill("8").prune(0.5))


def test_a_strategy_of_ones_own_that_fails_is_said():
    own = "tests.helpers.plain_links.FailsToDecide"
    with pytest.raises(UsageError, match=f"`{own}:-1` failed: KeyError: 'a mistake of its author'"):
        Monitor(parse_strategy(f"{own}:-1"), CHAIN)


numbers = st.floats(0.1, 100)
strategies = st.one_of(
    st.builds(KlMax, numbers, st.integers(1, 9)),
    st.builds(RewardGap, numbers, st.floats(0.1, 1), st.integers(1, 9)),
    st.builds(Mix, numbers),
    st.builds(Growth, st.sampled_from(["", "prune(0.5);quantize(8, first=16)"]), numbers),
    st.just(Watch()),
)


@given(strategies)
def test_text_and_strategy_are_one(strategy):
    assert parse_strategy(print_strategy(strategy)) == strategy
