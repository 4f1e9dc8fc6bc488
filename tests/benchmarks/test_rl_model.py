from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest
import simpy

from benchmarks.rl_model import real_runs
from benchmarks.rl_model.cluster import ACTORS_OF_A_NODE, ClusterModel, NetworkLink
from benchmarks.rl_model.costs import BATCH, ActorCosts, RunCosts, config_of
from benchmarks.rl_model.one_machine import MachineModel, Processors

ACTOR = ActorCosts(8, step=1e-4, beside=1e-4, switch=0.0, pack=0.0, block_bytes=1_000_000)
COSTS = RunCosts(
    learn=0.0, learn_beside=0.0, insert=0.0, turn=1e-6, copy=0.0, record_bytes=100,
    weight_bytes=4_000_000,
)  # fmt: skip


def machine(actors: int, costs: RunCosts = COSTS, foreign: int = 0) -> float:
    return MachineModel(config_of(8, actors), ACTOR, costs, 2, foreign).run(4.0).rate


@pytest.mark.parametrize(("workers", "each"), [(1, 1.0), (2, 1.0), (4, 0.5), (8, 0.25)])
def test_processors_are_shared_alike(workers: int, each: float) -> None:
    clock, done = simpy.Environment(), [0.0] * workers
    processors = Processors(clock, 2)

    def work(number: int):
        own, seconds = processors.process(), 0.001 * (1 + number % 3)
        while True:
            yield from own.work(seconds)
            done[number] += seconds

    for number in range(workers):
        clock.process(work(number))
    clock.run(4)
    assert done == pytest.approx([4 * each] * workers, rel=0.01)


def test_actors_alone_take_a_step_in_its_time() -> None:
    assert machine(1) == pytest.approx(1e4, rel=0.02)
    assert machine(2) == pytest.approx(2e4, rel=0.02)
    assert machine(8) == pytest.approx(2e4, rel=0.05)  # two processors


def test_a_slow_learner_decides_the_rate() -> None:
    learn = 0.1
    slow = replace(COSTS, learn=learn, learn_beside=learn)
    assert machine(4, slow) <= BATCH / learn * 1.01


def test_an_actor_acts_while_the_learner_learns() -> None:
    learn = 0.9 * BATCH * ACTOR.step
    assert machine(1, replace(COSTS, learn=learn, learn_beside=learn)) == machine(1)


def test_processes_of_others_take_their_share() -> None:
    assert machine(2, foreign=2) == pytest.approx(1e4, rel=0.05)


def test_a_link_transfers_one_block_after_the_other() -> None:
    clock = simpy.Environment()
    link = NetworkLink(clock, 1e6)
    for _ in range(3):
        clock.process(link.transfer(1e6))
    clock.run(2.5)
    assert link.bytes == 2e6


def predict(actors: int, gigabits: float, tree: bool = False, bits: int = 8) -> ClusterModel:
    block = ACTOR.block_bytes * bits // 8
    return ClusterModel(actors, gigabits, replace(ACTOR, block_bytes=block), COSTS, tree, 0.05)


def test_a_wide_network_leaves_actors_alone() -> None:
    found = predict(5 * ACTORS_OF_A_NODE, 1000).run()
    assert found.rate == pytest.approx(5 * ACTORS_OF_A_NODE / ACTOR.step, rel=0.02)
    assert found.age < 0.15
    assert found.sent == pytest.approx(5 * ACTOR.block_bytes / 0.05, rel=0.05)


def test_records_that_fill_the_link_decide_the_rate() -> None:
    found = predict(20 * ACTORS_OF_A_NODE, 0.2).run()
    assert found.rate == pytest.approx(2e8 / 8 / COSTS.record_bytes, rel=0.03)


def test_a_tree_pays_where_the_learner_sends_all_the_time() -> None:
    direct, tree = (predict(500, 0.25, tree).run() for tree in (False, True))
    assert direct.sent == pytest.approx(2.5e8 / 8, rel=0.02)
    assert tree.age < direct.age / 3
    assert predict(500, 0.25, bits=32).run().age > 2 * direct.age


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="needs Linux")
def test_running_processes_are_listed_with_their_niceness() -> None:
    nice = min(os.getpriority(os.PRIO_PROCESS, 0) + 1, 19)
    code = "import os, sys; os.setpriority(os.PRIO_PROCESS, 0, int(sys.argv[1])); print(flush=True)"
    command = [sys.executable, "-c", f"{code}\nwhile True: pass", str(nice)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        listed = {pid: niceness for _ in range(20) for pid, niceness in real_runs._running()}
        process.kill()
    assert listed[process.pid] == nice
    assert listed[os.getpid()] == os.getpriority(os.PRIO_PROCESS, 0)


def test_processes_of_lower_priority_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    own, nice = os.getpid(), os.getpriority(os.PRIO_PROCESS, 0)
    found = [(own, nice), (own + 1, nice), (own + 2, nice + 1), (own + 3, nice - 1)]
    monkeypatch.setattr(real_runs, "_running", lambda: found)
    assert real_runs.busy_processes(0.01) == 2
