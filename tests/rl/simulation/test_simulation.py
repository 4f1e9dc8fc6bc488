"""Schedules of the protocol of a run, and faults planted in it, which they must find."""

from __future__ import annotations

from functools import partial
from itertools import count

import pytest

from qgraph.errors import UsageError
from qgraph.rl.broadcast import Channel
from qgraph.train.gpu import compiler
from tests.rl.simulation.ends import run_ends
from tests.rl.simulation.native_broadcast import PlantedFault, compiled
from tests.rl.simulation.planted import NATIVE, PYTHON
from tests.rl.simulation.scheduler import Dangers, ScheduleFault, TurnScheduler
from tests.rl.simulation.schedules import SCENARIOS, run_schedules, spread
from tests.rl.simulation.simulated_machine import shared_memory

FAST = {"ends": 300}  # schedules of other scenarios: FEW
FEW = 6
ALL = 10_000
SLOW = (
    "a checkpoint is written over the last one",
    "a new relay gets no block until there is a newer one",
)


def _no_compiler() -> bool:
    try:
        return not compiler()
    except UsageError:
        return True


pytestmark = pytest.mark.skipif(_no_compiler(), reason="the simulated machine needs a C++ compiler")


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_no_schedule_breaks_a_rule(scenario: str) -> None:
    schedules = FAST.get(scenario, FEW)
    done, steps, _ = run_schedules(scenario, range(schedules))
    assert done == schedules
    assert steps > 100 * schedules


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_no_schedule_of_many_breaks_a_rule(scenario: str) -> None:
    schedules = spread(ALL)[scenario]
    done, _, kills = run_schedules(scenario, range(schedules))
    assert done == schedules
    assert kills > schedules


def test_many_schedules_are_spread_over_all_scenarios() -> None:
    assert sum(spread(ALL).values()) == ALL
    assert min(spread(ALL).values()) > 100


@pytest.mark.parametrize("fault", NATIVE.values(), ids=NATIVE)
def test_a_fault_of_the_native_code_is_found(fault: PlantedFault) -> None:
    library = compiled(fault)
    with pytest.raises(ScheduleFault, match=r"^(?!Traceback)"):
        for seed in range(1000):
            run_ends(seed, library)


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow if n in SLOW else ()) for n in PYTHON]
)
def test_a_fault_of_the_code_in_python_is_found(name: str) -> None:
    fault = PYTHON[name]
    again = rf"(?s){fault.complaint}.*again: .* {fault.scenario} --seed \d+"
    with fault.patch(), pytest.raises(ScheduleFault, match=again):
        run_schedules(fault.scenario, range(400))


def test_a_failing_seed_fails_again_alike() -> None:
    library = compiled(NATIVE["the writer takes a buffer that a reader holds"])

    def complaint(seed: int) -> str:
        try:
            run_ends(seed, library)
        except ScheduleFault as fault:
            return str(fault)
        return ""

    seed = next(seed for seed in count() if complaint(seed))
    assert complaint(seed) == complaint(seed)


@pytest.mark.parametrize("scenario", ["ends", "quantizer", "relays"])
def test_a_seed_gives_one_schedule(scenario: str) -> None:
    runs = [SCENARIOS[scenario](3, compiled()) for _ in range(2)]
    assert len({(run.steps, run.now, run.kills, len(run.tasks)) for run in runs}) == 1


# The scheduler itself.


def test_a_killed_process_does_nothing_more() -> None:
    scheduler, done = TurnScheduler(0, Dangers()), list[int]()

    def work() -> None:
        for number in count():
            scheduler.step()
            done.append(number)

    def kill() -> None:
        task = scheduler.spawn("work", work)
        while len(done) < 3:
            scheduler.sleep(0.001)
        scheduler.kill(task)
        reached = len(done)
        scheduler.sleep(1.0)
        assert (len(done), task.code) == (reached, -9)

    scheduler.run("kill", kill)


def test_processes_that_wait_for_each_other_are_found() -> None:
    scheduler = TurnScheduler(0, Dangers(), seconds=5.0)

    def wait() -> None:
        while True:
            scheduler.sleep(0.1)

    with pytest.raises(ScheduleFault, match="no end after 5"):
        scheduler.run("wait", wait)


def test_an_error_of_a_process_is_reported() -> None:
    with pytest.raises(ScheduleFault, match="ValueError: of no use"):
        TurnScheduler(0, Dangers()).run("fails", _fails)


def _fails() -> None:
    raise ValueError("of no use")


def test_the_ring_of_a_writer_that_is_killed_does_not_silence_the_next() -> None:
    """A reader may sleep without an end: the next version wakes it."""
    deaths = 0
    for seed in range(300):
        scheduler = TurnScheduler(seed, Dangers(between=30, longest_pause=0.01), seconds=20.0)
        with shared_memory(scheduler, compiled()):
            scheduler.run("reader", partial(_read_beside_mortal_writers, scheduler))
        deaths += scheduler.deaths
    assert deaths > 100


def _read_beside_mortal_writers(scheduler: TurnScheduler) -> None:
    channel = Channel.create(16, readers=1)
    written: list[int] = []

    def write() -> None:
        writer = channel.writer()
        writer.next_block()[:] = 1
        writer.publish(writer.version + 1)
        written.append(writer.version)

    def write_again_and_again() -> None:
        while len(written) < 4:
            scheduler.sleep(0.1)
            task = scheduler.spawn("writer", write)
            while task.code is None:
                scheduler.sleep(0.01)

    scheduler.spawn("writers", write_again_and_again, mortal=False)
    reader = channel.reader(0)
    for _ in range(3):
        assert reader.wait(reader.version + 1, 1000.0)
        reader.latest()
