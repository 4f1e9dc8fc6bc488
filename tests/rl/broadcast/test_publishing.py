from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from qgraph.errors import GraphError, LoadError, RunError, TrainingError, UsageError
from qgraph.rl.actor import Actor, ActorProgram, ActorStep, Packer
from qgraph.rl.broadcast import Channel, DirectPublisher, Member, Publisher, Subscriber, Supervisor
from qgraph.rl.broadcast.board import Board
from qgraph.rl.broadcast.subscriber import BlockSource
from qgraph.rl.broadcast.weights import RunEnded, WeightReceiver, WeightSender
from tests.helpers.rl_policies import PROGRAM, X, drawn, outputs
from tests.helpers.watching import until, watched

MODULE = "tests.helpers.rl_processes"


@pytest.fixture
def run() -> Iterator[Supervisor]:
    with Supervisor(4) as found:
        yield found


def test_a_program_goes_through_json() -> None:
    conv = ActorStep(
        "conv", ("observation",), "a", ("w", "b"), {"strides": (2, 1), "pads": ((1, 0),) * 2}
    )
    program = ActorProgram(
        (9, 9, 2), (conv,), ("a",), {"w": (3, 3, 2, 4), "b": (4,)}, "observation"
    )
    assert ActorProgram.from_json(json.loads(json.dumps(program.as_json()))) == program


@pytest.fixture
def ends() -> tuple[WeightSender, WeightReceiver, Member]:
    sender, member = WeightSender(PROGRAM), Member(Board.create(1), 0)
    return sender, WeightReceiver(PROGRAM, sender.channels, member), member


def test_weights_arrive_one_after_the_other(ends: Any) -> None:
    sender, receiver, _ = ends
    for version in (3, 4):
        later = threading.Timer(0.02, sender.send, [drawn(version), version])
        later.start()
        assert receiver.wait()
        found = receiver.take()
        for name, value in drawn(version).items():
            receiver.arrived(name)
            assert np.array_equal(found[name], value)
        assert receiver.version == version
        later.join()


def test_variables_are_sent_as_arrays_are(ends: Any) -> None:
    tf = pytest.importorskip("tensorflow")
    sender, receiver, _ = ends
    sender.send({name: tf.Variable(value) for name, value in drawn(1).items()}, 1)
    found = receiver.take()
    assert all(np.array_equal(found[name], value) for name, value in drawn(1).items())


def test_weights_that_do_not_fit_are_not_sent(ends: Any) -> None:
    sender, _, _ = ends
    with pytest.raises(GraphError, match="w1"):
        sender.send({**drawn(1), "w1": np.zeros((5, 3), np.float32)}, 1)
    with pytest.raises(GraphError, match="b1: the weight has type complex64"):
        sender.send({**drawn(1), "b1": np.zeros(2, np.complex64)}, 1)
    assert sender.version == -1


def test_waiting_for_a_weight_ends_with_the_run(ends: Any) -> None:
    sender, receiver, member = ends
    sender.send(drawn(1), 1)
    receiver.take()
    sender._writer.next_block()
    sender._writer.publish(2)  # the learner was killed before it copied
    receiver.take()
    threading.Timer(0.05, member.board.stop).start()
    with pytest.raises(RunEnded):
        receiver.arrived("w0")


def test_weights_reach_actors_packed(run: Supervisor) -> None:
    publisher = Publisher(run, PROGRAM, readers=2, bits=8)
    member = Member(run.board, 3)
    subscribers = [Subscriber(publisher.settings(i), member) for i in range(2)]
    publisher.publish(drawn(1), 1)
    actors = [Actor(subscriber.first()) for subscriber in subscribers]
    for actor in actors:
        assert np.array_equal(actor(X), outputs(1))
        assert actor.version == 1
    publisher.publish(drawn(5), 5)
    for actor, subscriber in zip(actors, subscribers, strict=True):
        until(lambda s=subscriber, a=actor: s.step(a.switch))
        assert (actor.version, subscriber.version) == (5, 5)
        assert np.array_equal(actor(X), outputs(5))
    assert publisher.packed_version == 5
    until(lambda: publisher.packed[0] == 2)  # it counts after it has published


def test_a_learner_packs_by_itself(run: Supervisor) -> None:
    publisher = DirectPublisher(PROGRAM, readers=2, bits=8)
    member = Member(run.board, 3)
    given = [publisher.settings(i) for i in range(2)]
    subscribers = [Subscriber(made, member, synchronous=True) for made in given]
    publisher.publish(drawn(1), 1)
    actors = [Actor(subscriber.first()) for subscriber in subscribers]
    publisher.publish(drawn(5), 5)
    for actor, subscriber in zip(actors, subscribers, strict=True):
        assert np.array_equal(actor(X), outputs(1))
        assert subscriber.step(actor.switch)
        assert np.array_equal(actor(X), outputs(5))
    assert publisher.version == publisher.packed_version == 5
    assert publisher.packed[0] == 2
    with pytest.raises(UsageError, match="version 5 after version 5"):
        publisher.publish(drawn(6), 5)
    with pytest.raises(UsageError, match="actor 2 does not exist"):
        publisher.settings(2)


def test_a_learner_that_packs_nan_gets_an_error_and_actors_do_not(run: Supervisor) -> None:
    publisher = DirectPublisher(PROGRAM, readers=1)
    subscriber = Subscriber(publisher.settings(0), Member(run.board, 3))
    publisher.publish(drawn(1), 1)
    actor = Actor(subscriber.first())
    broken = {name: np.full_like(weight, np.nan) for name, weight in drawn(2).items()}
    with pytest.raises(TrainingError, match="NaN"):
        publisher.publish(broken, 2)
    assert not subscriber.step(actor.switch)
    publisher.publish(drawn(3), 3)
    assert subscriber.step(actor.switch)
    assert np.array_equal(actor(X), outputs(3))


def test_in_another_process_too_which_is_restarted(run: Supervisor) -> None:
    publisher = Publisher(run, PROGRAM, readers=1)
    settings = {"task": "subscribe", "policy": publisher.settings(0), "observation": X.tolist()}
    run.start("actor", MODULE, settings, restarts=1, on_release=lambda: publisher.release(0))
    publisher.publish(drawn(1), 1)
    watched(run, lambda: run.numbers("actor")[0] == 1)
    assert np.array_equal(run.numbers("actor")[1:3], outputs(1)[0])
    run.children["actor"].process.kill()
    watched(run, lambda: run.crashes("actor"))
    publisher.publish(drawn(2), 2)
    watched(run, lambda: run.numbers("actor")[0] == 2)
    assert np.array_equal(run.numbers("actor")[1:3], outputs(2)[0])


def test_a_dead_quantizer_ends_the_run(run: Supervisor) -> None:
    publisher = Publisher(run, PROGRAM, readers=1)
    publisher.publish(drawn(1), 1)
    watched(run, lambda: publisher.packed_version == 1)
    run.children["quantizer"].process.kill()
    with pytest.raises(RunError, match="quantizer: was killed by SIGKILL"):
        watched(run, lambda: False)
    reader = Subscriber(publisher.settings(0), Member(run.board, 3))
    assert np.array_equal(Actor(reader.first())(X), outputs(1))  # the last one is still there


def test_weights_that_are_not_finite_end_the_run_with_their_name(run: Supervisor) -> None:
    publisher = Publisher(run, PROGRAM, readers=1)
    publisher.publish({**drawn(1), "b1": np.full(2, np.nan, np.float32)}, 1)
    with pytest.raises(RunError, match=r"quantizer: ended with .* b1: the weight has NaN"):
        watched(run, lambda: False)
    assert publisher.packed_version == -1


def test_on_demand_only_what_is_asked_for_is_packed(run: Supervisor) -> None:
    publisher = Publisher(run, PROGRAM, readers=1, on_demand=True)
    subscriber = Subscriber(publisher.settings(0), Member(run.board, 3))
    for version in range(1, 6):
        publisher.publish(drawn(version), version)
    time.sleep(0.2)
    assert publisher.packed_version == -1
    actor = Actor(subscriber.first())
    assert actor.version == 5
    publisher.publish(drawn(6), 6)
    time.sleep(0.1)
    assert publisher.packed_version == 5
    until(lambda: subscriber.step(actor.switch))
    assert actor.version == 6


@pytest.mark.parametrize("on_demand", [False, True])
def test_synchronous_actors_have_what_the_learner_had_published(
    run: Supervisor, on_demand: bool
) -> None:
    publisher = Publisher(run, PROGRAM, readers=1, on_demand=on_demand)
    member = Member(run.board, 3)
    publisher.publish(drawn(0), 0)
    subscriber = Subscriber(publisher.settings(0), member, period=2, synchronous=True)
    actor = Actor(subscriber.first())
    for version in range(1, 20):
        publisher.publish(drawn(version), version)
        assert not subscriber.step(actor.switch)
        assert actor.version == version - 1
        assert subscriber.step(actor.switch)
        assert actor.version == version
    assert subscriber.waited > 0


# Without a quantizer: what it publishes is made up here.


def by_hand(size: int) -> tuple[Channel, BlockSource]:
    blocks = Channel.create(size, 1)
    return blocks, BlockSource(blocks.name, "", 0, on_demand=False)


def test_a_corrupt_block_is_refused_and_the_last_one_kept() -> None:
    packer = Packer(PROGRAM)
    blocks, settings = by_hand(packer.size)
    writer = blocks.writer()
    packer.pack(drawn(1), 1, out=writer.next_block())
    writer.publish(1)
    subscriber = Subscriber(settings, Member(Board.create(1), 0))
    actor = Actor(subscriber.first())
    packer.pack(drawn(2), 2, out=writer.next_block())
    writer.next_block()[-100] ^= 1
    writer.publish(2)
    for _ in range(3):
        assert not subscriber.step(actor.switch)
        writer.next_block()[:] = 255  # what the actor still uses is not touched
        assert np.array_equal(actor(X), outputs(1))
    assert (subscriber.refused, subscriber.version, actor.version) == (1, 1, 1)
    packer.pack(drawn(3), 3, out=writer.next_block())
    writer.publish(3)
    assert subscriber.step(actor.switch)
    assert np.array_equal(actor(X), outputs(3))


def test_only_every_so_many_steps_are_a_look() -> None:
    blocks, settings = by_hand(64)
    writer = blocks.writer()
    subscriber = Subscriber(settings, Member(Board.create(1), 0), period=5)
    looked = []
    for step in range(1, 31):
        writer.next_block()[:] = step
        writer.publish(step)
        if subscriber.step(lambda block: None):
            looked.append((step, subscriber.version))
    assert looked == [(step, step) for step in range(5, 31, 5)]


def test_waiting_ends_with_the_run() -> None:
    board = Board.create(1)
    _blocks, settings = by_hand(64)
    subscriber = Subscriber(settings, Member(board, 0))
    later = threading.Timer(0.1, board.stop)
    later.start()
    assert subscriber.first() is None
    later.join()


def test_what_does_not_fit_is_refused(run: Supervisor) -> None:
    publisher = Publisher(run, PROGRAM, readers=1)
    with pytest.raises(UsageError, match="actor 1 does not exist: the publisher has 1"):
        publisher.settings(1)
    publisher.publish(drawn(1), 1)
    with pytest.raises(UsageError, match="version 1 after version 1"):
        publisher.publish(drawn(1), 1)
    with pytest.raises(LoadError):
        Subscriber(replace(publisher.settings(0), blocks="/proc/self/exe"), Member(run.board, 3))
