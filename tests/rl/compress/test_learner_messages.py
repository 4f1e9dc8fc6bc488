"""Facts and observations on their way to the compressor."""

import math

import numpy as np

from qgraph.rl.compress.learner_messages import (
    BYTES,
    ROWS,
    MessageReceiver,
    MessageSender,
    Sample,
    rows_for,
)
from qgraph.rl.monitor import LearnerFacts


def test_the_latest_message_is_received():
    sender = MessageSender((3, 2))
    receiver = MessageReceiver(sender.channel, (3, 2))
    facts, seen = receiver.latest()
    assert facts.version == 0 and math.isnan(facts.returned) and seen is None
    sender.send(LearnerFacts(3, 1.5, 20.0), None)
    facts, seen = receiver.latest()
    assert (facts.version, facts.seconds, facts.returned, seen) == (3, 1.5, 20.0, None)
    assert math.isnan(facts.staleness)
    x = np.random.default_rng(0).normal(size=(5, 3, 2)).astype("f4")
    sender.send(LearnerFacts(4), x[:2])
    sender.send(LearnerFacts(5, staleness=7.0), x)
    for _ in range(2):  # until something newer is told
        facts, seen = receiver.latest()
        assert (facts.version, facts.staleness) == (5, 7.0) and (seen == x).all()


def test_a_sample_is_of_all_that_was_seen():
    sample = Sample((1,))
    assert sample.observations() is None
    sample.add(np.arange(3)[:, None])
    assert sample.observations().tolist() == [[0], [1], [2]]
    numbers = np.arange(3, 4 * ROWS)
    for part in np.array_split(numbers, 100):
        sample.add(part[:, None])
    found = sample.observations()[:, 0]
    assert len(found) == ROWS == len(np.unique(found))
    assert (found < ROWS).sum() > 50 and (found >= 3 * ROWS).sum() > 500
    sample.add(np.zeros((2, 3 * ROWS, 1)))  # of any leading shape, and more than it holds
    assert (sample.observations() == 0).all()


def test_large_observations_are_fewer():
    assert rows_for((4,)) == ROWS
    one, rows = 4 * 84 * 84 * 4, rows_for((84, 84, 4))
    assert rows * one <= BYTES < (rows + 1) * one
    assert rows_for((10**8,)) == 1
