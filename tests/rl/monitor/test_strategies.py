"""Decisions of strategies on made-up series."""

import math
from collections import deque

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qgraph.errors import UsageError
from qgraph.rl.compress import Compressor
from qgraph.rl.monitor import Indicators, Monitor, parse_strategy
from qgraph.rl.monitor.growth import Growth, trials
from qgraph.rl.monitor.indicators import RECENT
from qgraph.rl.monitor.log import LINES, Log, read_log
from qgraph.rl.monitor.mix import Mix
from qgraph.rl.monitor.monitor import print_strategy
from qgraph.rl.monitor.strategy import Decision, Measurement
from qgraph.rl.monitor.thresholds import KlMax, RewardGap
from qgraph.rl.monitor.watch import Watch

CHAIN = Compressor().prune(0.5).quantize(8).pack()


def decisions(strategy, series, chain=CHAIN):
    """Text and reason after each look; each item of the series is fields of Indicators."""
    monitor, found = Monitor(strategy, chain), []
    for i, fields in enumerate(series):
        made = monitor.decide(Indicators(**{"version": i, "seconds": float(i), **fields}))
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
    assert found[9][1] == "KL max <= 7 for 3 measurements: 32 -> 16 bits"


def test_the_paper_switches_from_8_to_16_bits():
    assert bits(decisions(parse_strategy("kl_max:14"), [{"kl_max": 15.0}])) == [16]


def test_bits_of_layers_of_their_own_come_back_with_the_others():
    begun = Compressor().quantize(4, first=8, last=8)
    found = decisions(KlMax(14, patience=1), [{"kl_max": v} for v in (20.0, 20.0, 1.0, 1.0)], begun)
    assert [text for text, _ in found] == [
        "quantize(8, first=8, last=8)", "quantize(16, first=16, last=16)",
        "quantize(8, first=8, last=8)", "quantize(4, first=8, last=8)",
    ]  # fmt: skip
    assert found[2][1].endswith("16 -> 8 bits") and found[3][1].endswith("8 -> 4 bits")


def test_reward_gap_gives_up_sparsity():
    gaps = [math.nan, 9, 11, 10, 12, 50, 4, 5, 5]
    series = [{"reward_gap": float(gap), "evaluated": float(i)} for i, gap in enumerate(gaps)]
    found = decisions(RewardGap(10, patience=2), series)
    rest = "|quantize(8)|pack"
    wanted = ["0.5", "0.5", "0.2", "0.2", "", "", "", "0.3", "0.3"]
    pruned = [f"prune({sparsity}){rest}" if sparsity else rest[1:] for sparsity in wanted]
    assert [text for text, _ in found] == pruned
    assert found[2][1] == "reward gap 11 > 10: sparsity 0.5 -> 0.2"
    assert found[5][1] == "reward gap 50 > 10: nothing is pruned any more"


def test_looks_between_evaluations_are_no_evaluations():
    gaps = {1.0: [11.0, 1.0, 1.0], 2.0: [1.0, 1.0], 3.0: [1.0, 1.0], 4.0: [1.0]}
    series = [{"reward_gap": gap, "evaluated": e} for e, each in gaps.items() for gap in each]
    found = decisions(RewardGap(10, patience=3), series)
    sparsity = [0.2, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2, 0.5]
    assert [text for text, _ in found] == [f"prune({s})|quantize(8)|pack" for s in sparsity]
    assert found[-1][1] == "reward gap <= 5 for 3 evaluations: sparsity 0.2 -> 0.5"


def test_the_mix_falls_linearly_with_kl_mean():
    monitor, shares = Monitor(Mix(0.5), CHAIN), []
    assert monitor.decision.share == 1
    for i, value in enumerate([0, 0.1, 0.25, 0.5, 2, math.nan]):
        made = monitor.decide(Indicators(i, 0.0, kl_mean=value))
        shares.append(made.share)
        assert made.compressor == CHAIN
    assert shares == pytest.approx([1, 0.8, 0.5, 0, 0, 0])


@pytest.mark.parametrize("each", [1, 3, 30])
def test_a_bandit_finds_the_best_of_three_arms(each):
    """As in a run: the reported value is the mean of the newest 20 episodes, `each` a look."""
    arms = "quantize(4);quantize(8);prune(0.5)|quantize(8)"
    grows = {"quantize(4)": 0.3, "quantize(8)": 1.0, "prune(0.5)|quantize(8)": 0.5}
    for seed in range(3):
        rng, monitor = np.random.default_rng(seed), Monitor(Growth(arms), CHAIN)
        level, returns, acted = 0.0, deque(maxlen=RECENT), []
        while len(acted) < max(800, 60 * each):
            for _ in range(each):
                acted.append(str(monitor.decision.compressor))
                level += grows[acted[-1]]
                returns.append(level + rng.normal(0, 1))
            ended = len(acted)
            mean = float(np.mean(returns))
            monitor.decide(Indicators(ended, float(ended), returned=mean, episodes=float(ended)))
        assert set(acted[: 7 * max(RECENT, each)]) == set(grows)  # each is tried at first
        late = acted[len(acted) // 3 :]
        assert late.count("quantize(8)") > 0.6 * len(late)


def test_growth_counts_for_what_acted_and_per_second():
    a, b = Compressor().quantize(4), Compressor().quantize(8)
    measurements = [
        (a, Indicators(0, 0.0)),
        (a, Indicators(1, 1.0, returned=10.0, episodes=19.0)),
        (a, Indicators(2, 2.0, returned=11.0, episodes=20.0)),  # from here on it is a's alone
        (a, Indicators(3, 4.0, returned=12.0, episodes=39.0)),
        (a, Indicators(4, 5.0, returned=17.0, episodes=41.0)),  # 6 in 3 seconds
        (a, Indicators(5, 9.0, returned=13.0, episodes=61.0)),  # and -4 in 4
        (b, Indicators(6, 10.0, returned=90.0, episodes=80.0)),  # some of them are a's
        (b, Indicators(7, 11.0, returned=95.0, episodes=81.0)),
        (b, Indicators(8, 11.0, returned=95.0, episodes=101.0)),  # in no time
        (b, Indicators(9, 12.0, returned=94.0, episodes=101.0)),
        (b, Indicators(10, 13.0, returned=99.0, episodes=110.0)),
    ]
    made = [Measurement(seen, Decision(chain)) for chain, seen in measurements]
    assert trials(made) == ([(a, 2.0), (a, -1.0), (b, -1.0)], False)
    assert trials(made[:5]) == ([(a, 2.0)], True)
    assert trials([]) == ([], True)


def test_returns_that_are_not_known_end_no_trial():
    """As the first look of a run that continues may have them."""
    a = Compressor().quantize(4)
    returned = [0.0, 3.0, math.nan, 8.0, math.nan, 9.0]
    measurements = [
        Measurement(Indicators(i, float(i), returned=value, episodes=20.0 * (i + 1)), Decision(a))
        for i, value in enumerate(returned)
    ]
    assert trials(measurements) == ([(a, 3.0), (a, 2.5), (a, 0.5)], True)
    assert trials(measurements[:3]) == ([(a, 3.0)], False)
    assert trials(measurements[2:3]) == ([], False)


def trial(monitor, number):
    """Two looks that end a trial, with returns that grow: what is decided then."""
    for i in (2 * number, 2 * number + 1):
        made = monitor.decide(Indicators(i, float(i), returned=float(i), episodes=20.0 * (i + 1)))
    return made


def test_a_setting_that_does_not_work_is_no_setting_of_growth_any_more():
    monitor = Monitor(parse_strategy("growth"), Compressor().quantize(8))
    good = monitor.decision
    seen = Indicators(1, 1.0, returned=1.0, episodes=19.0)
    assert monitor.decide(seen).reason == "stays: quantize(4) is being tried"
    wanted = trial(monitor, 1)
    assert str(wanted.compressor) == "quantize(8)" and wanted.reason == "not tried yet"
    monitor.failed(Indicators(4, 4.0), "no layer", good, for_good=True)
    assert str(trial(monitor, 3).compressor) == "quantize(16)"
    monitor.failed(Indicators(8, 8.0), "no layer", good, for_good=True)
    assert str(trial(monitor, 5).compressor) == "quantize(4)"


def test_settings_that_fail_before_any_worked_are_left_for_others():
    monitor, tried = Monitor(parse_strategy("growth"), Compressor().quantize(8)), []
    for i in range(4):
        tried.append(monitor.decision)
        monitor.failed(Indicators(i, float(i)), "no layer", for_good=True)
    assert [str(one.compressor) for one in tried] == [
        "quantize(4)", "quantize(8)", "quantize(16)", "quantize(16)"
    ]  # fmt: skip
    assert tried[1].reason == "failed, away from quantize(4): no layer"
    assert tried[3].reason == "failed, the last policy acts: no layer"


def test_what_numbers_undid_at_first_is_not_left():
    monitor = Monitor(parse_strategy("growth"), Compressor().quantize(8))
    monitor.failed(Indicators(0, 0.0), "not finite")
    assert str(monitor.decision.compressor) == "quantize(4)" and not monitor.refused


@pytest.mark.parametrize(
    ("strategy", "begun", "refused", "reasons"),
    [
        (
            KlMax(14, patience=1),
            Compressor().quantize(8),
            Compressor().quantize(16),
            ["KL max 20 > 14: 8 -> 32 bits", "KL max <= 7 for 1 measurements: 32 -> 8 bits"],
        ),
        (
            KlMax(14, patience=1),
            Compressor().quantize(16),
            Compressor().quantize(32),
            ["KL max 20 > 14: what would be next has failed before", "stays"],
        ),
        (
            RewardGap(10, patience=1),
            Compressor().prune(0.9),
            Compressor().prune(0.6),
            [
                "reward gap 20 > 10: sparsity 0.9 -> 0.3",
                "reward gap <= 5 for 1 evaluations: sparsity 0.3 -> 0.9",
            ],
        ),
    ],
)
def test_steps_to_what_has_failed_are_passed_over(strategy, begun, refused, reasons):
    monitor = Monitor(strategy, begun)
    good = monitor.decision
    monitor.decide(Indicators(0, 0.0, kl_max=20.0, reward_gap=20.0, evaluated=0.0))
    monitor.failed(Indicators(1, 1.0), "no layer", good, for_good=True)
    assert monitor.refused == (refused,) and monitor.decision.compressor == begun
    found = [
        monitor.decide(
            Indicators(i, 2.0, kl_max=value, reward_gap=value, evaluated=float(i))
        ).reason
        for i, value in ((2, 20.0), (3, 1.0))
    ]
    assert found == reasons


def test_the_last_quantize_is_given_more_bits():
    begun = Compressor.parse("quantize(32)|quantize(4)")
    found = decisions(KlMax(14), [{"kl_max": 20.0}], begun)
    assert found == [("quantize(32)|quantize(8)", "KL max 20 > 14: 4 -> 8 bits")]
    assert [str(arm) for arm in Growth().chains(begun)] == [
        "quantize(32)|quantize(4)", "quantize(32)|quantize(8)", "quantize(32)|quantize(16)"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("told", "complaint"),
    [
        ("share=2.0", "decides on a share of 2.0, not 0 to 1"),
        ("share=-0.5", "decides on a share of -0.5"),
        ("share=nan", "decides on a share of nan"),
        ("text=True", "decides on 'prune(0.5)|quantize(8)|pack', which is not a `Compressor`"),
    ],
)
def test_invalid_decisions_change_nothing(told, complaint):
    monitor = Monitor(parse_strategy(f"tests.helpers.plain_links.Decides:{told}"), CHAIN)
    made = monitor.decide(Indicators(0, 0.0))
    assert made.reason.startswith("stays, the strategy failed: ")
    assert complaint in made.reason and (made.compressor, made.share) == (CHAIN, 1.0)


def test_numbers_of_numpy_are_a_share(tmp_path):
    log = Log(tmp_path)
    monitor = Monitor(parse_strategy("tests.helpers.plain_links.Decides:0.25"), CHAIN, log)
    monitor.decide(Indicators(0, 0.0))
    assert [row.decision.share for row in read_log(tmp_path / LINES)] == [1.0, 0.25]


@pytest.mark.parametrize(
    ("text", "chain", "complaint"),
    [
        ("kl_max:0", CHAIN, "a threshold of 0.0 for KL max can never be passed or always is"),
        ("kl_max:inf", CHAIN, "a threshold of inf"),
        ("kl_max:nan", CHAIN, "a threshold of nan"),
        ("kl_max:-3", CHAIN, "a threshold of -3.0"),
        ("kl_max:14", Compressor().prune(0.5), "has no `quantize` whose bits can grow"),
        ("kl_max:14", Compressor().quantize(32), "has no `quantize` whose bits can grow"),
        (
            "kl_max:14",
            Compressor().quantize(8).quantize(32),
            "has no `quantize` whose bits can grow",
        ),
        ("reward_gap:10", Compressor().quantize(8), "prunes nothing"),
        ("reward_gap:10", Compressor().prune(0.5).distill("8"), "takes the place of what is left"),
        ("reward_gap:10,step=1.5", CHAIN, "above 0 and at most 1"),
        ("reward_gap:10,patience=0", CHAIN, "patience is 0 evaluations"),
        ("kl_max:10,patience=0", CHAIN, "patience is 0 measurements"),
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
        ("kl_maxi:14", "unknown strategy `kl_maxi`"),
        ("kl_max:high", "`threshold` of `kl_max\\(high\\)` must be a number"),
        ("mix", "needs its limit"),
        ("qgraph.rl.monitor.indicators.LearnerFacts", "it has no `check`"),
    ],
)
def test_texts_that_are_no_strategy(text, complaint):
    with pytest.raises(UsageError, match=complaint):
        parse_strategy(text)


def test_a_strategy_of_ones_own_is_found_by_its_name():
    found = parse_strategy("qgraph.rl.monitor.thresholds.KlMax:3,patience=2")
    assert found == KlMax(3.0, 2)


def test_a_bandit_forgets_what_was_long_ago():
    """After many looks the first result of an arm counts for 0."""
    monitor = Monitor(Growth("quantize(4);quantize(8)", exploration=0.0, discount=0.1), CHAIN)
    for i in range(340):
        assert trial(monitor, i).reason


def test_what_pruned_may_learn_by_itself():
    RewardGap().check(Compressor().prune(0.5).distill().quantize(8))
    RewardGap().check(Compressor().distill("8").prune(0.5))


def test_a_failure_of_a_custom_strategy_is_reported():
    own = "tests.helpers.plain_links.FailsToDecide"
    with pytest.raises(
        UsageError, match=f"`{own}:-1` failed: key 'a mistake of its author' is missing"
    ):
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
