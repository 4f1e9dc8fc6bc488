from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qgraph.errors import RunError
from qgraph.rl.actor import Packer
from qgraph.rl.broadcast import Experience, Publisher, Supervisor
from qgraph.rl.broadcast.ray import RayNodes
from qgraph.rl.broadcast.relay import Relay, form_text
from tests.helpers.ray_cluster import two_nodes
from tests.helpers.rl_policies import PROGRAM, X, drawn, outputs
from tests.helpers.watching import gone, until

MODULE = "tests.helpers.rl_processes"

RECORD = np.dtype([("actor", "i4"), ("version", "i4"), ("pid", "i8"), ("output", "f4", (2,))])


def settings(actor: int) -> dict[str, Any]:
    return {"task": "play", "actor": actor, "observation": X.tolist()}


def checked(records: np.ndarray) -> np.ndarray:
    """Assert that each record was made with the policy of its version."""
    for version in np.unique(records["version"]):
        found = records["output"][records["version"] == version]
        assert (found == outputs(int(version))[0]).all()
    return records


class Afar:
    """A relay on another machine, which exchanges bytes only."""

    def __init__(self, actors: int, restarts: int = 0, numbers: Any = ()) -> None:
        rings = Experience.create(RECORD, 50, 1)
        texts = [json.dumps(settings(actor)) for actor in range(actors)]
        size = Packer(PROGRAM).size
        self.relay = Relay(form_text(rings), size, 50, MODULE, texts, {}, restarts, numbers)
        self.crashes, self.asked = 0, False

    def until(
        self, enough: Callable[[np.ndarray], bool], block: bytes = b"", version: int = -1
    ) -> np.ndarray:
        found, end = np.empty(0, RECORD), time.monotonic() + 30
        while not enough(found):
            assert time.monotonic() < end
            records, asked, self.crashes, self.numbers = self.relay.exchange(block, version, 100)
            self.asked = self.asked or asked
            found = np.concatenate([found, np.frombuffer(records, RECORD)])
        return checked(found)


@pytest.fixture
def afar() -> Iterator[Callable[..., Afar]]:
    made: list[Afar] = []

    def make(*given: Any) -> Afar:
        made.append(Afar(*given))
        return made[-1]

    yield make
    for found in made:
        found.relay.stop()


def packed(version: int) -> bytes:
    return Packer(PROGRAM).pack(drawn(version), version).tobytes()


def test_actors_of_a_relay_act_with_the_blocks_it_receives(afar: Callable[..., Afar]) -> None:
    here = afar(2)
    here.until(lambda found: here.asked)  # actors without a policy ask for one
    found = here.until(lambda found: set(found["actor"]) == {0, 1}, packed(1), 1)
    assert set(found["version"]) == {1}
    here.until(lambda found: set(found["actor"][found["version"] == 2]) == {0, 1}, packed(2), 2)
    found = here.until(lambda found: len(found) > 200, packed(1), 1)  # late: an old one
    assert set(found["version"]) == {2}
    # What they show of themselves.
    here.until(lambda _: [numbers[0] for numbers in here.numbers] == [2, 2])


def test_a_relay_restarts_its_actors_and_counts_it(afar: Callable[..., Afar]) -> None:
    here = afar(1, 1)
    pid = int(here.until(lambda found: len(found) > 0, packed(1), 1)["pid"][-1])
    os.kill(pid, signal.SIGKILL)
    here.until(lambda found: here.crashes == 1)
    again = here.until(lambda found: len(set(found["pid"]) - {pid}) > 0)
    os.kill(int(again["pid"][-1]), signal.SIGKILL)
    with pytest.raises(RunError, match="actor 0: was killed by SIGKILL"):
        here.until(lambda found: False)


def test_actors_of_a_new_relay_find_what_those_before_them_showed(
    afar: Callable[..., Afar],
) -> None:
    here = afar(1, 0, [[7.0, *[0.5] * 7]])
    here.until(lambda found: here.asked)
    assert here.numbers == [[7.0, *[0.5] * 7]]
    here.until(lambda found: here.numbers[0][0] == 1, packed(1), 1)  # its first one


# With Ray: two nodes of a cluster, on this machine.


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with two_nodes() as found:
        yield found


def start(
    run: Supervisor, cluster: Any, restarts: int = 1
) -> tuple[Publisher, Experience, RayNodes]:
    rings = Experience.create(RECORD, 200, writers=2)
    publisher = Publisher(run, PROGRAM, readers=1)
    nodes = RayNodes(
        run,
        publisher,
        rings,
        module=MODULE,
        actors=[[settings(0), settings(1)], [settings(2)]],
        reader=0,
        writers=[0, 1],
        address=cluster.address,
        restarts=restarts,
    )
    return publisher, rings, nodes


def taken(run: Supervisor, rings: Experience, enough: Callable[[np.ndarray], bool]) -> np.ndarray:
    reader, end = rings.reader(), time.monotonic() + 90
    found = np.empty(0, RECORD)
    while not enough(found):
        assert time.monotonic() < end
        run.check()
        found = np.concatenate([found, reader.take(100, 0.1)])
    return checked(found)


@pytest.mark.extra
@pytest.mark.slow
def test_actors_on_two_ray_nodes(cluster: Any) -> None:
    with Supervisor(5) as run:
        publisher, rings, nodes = start(run, cluster)
        publisher.publish(drawn(1), 1)
        found = taken(run, rings, lambda found: set(found["actor"]) == {0, 1, 2})
        publisher.publish(drawn(2), 2)
        last = taken(run, rings, lambda r: set(r["actor"][r["version"] == 2]) == {0, 1, 2})
        assert nodes.sent >= 2
        assert nodes.numbers(0, 1)[0] >= 1
        assert nodes.numbers(1, 0)[0] >= 1
        os.kill(int(last["pid"][-1]), signal.SIGKILL)
        taken(run, rings, lambda found: nodes.crashes == 1)
        pids = {int(pid) for pid in (*found["pid"], *last["pid"])}
    until(lambda: all(map(gone, pids)))  # actors end with the run


@pytest.mark.extra
@pytest.mark.slow
def test_a_lost_node_is_started_again(cluster: Any) -> None:
    with Supervisor(5) as run:
        publisher, rings, _ = start(run, cluster)
        publisher.publish(drawn(1), 1)
        found = taken(run, rings, lambda found: set(found["actor"]) == {0, 1, 2})
        actor = int(found["pid"][found["actor"] == 2][-1])
        status = Path(f"/proc/{actor}/status").read_text()
        os.kill(int(status.split("PPid:")[1].split()[0]), signal.SIGKILL)  # its relay
        taken(run, rings, lambda r: (r["pid"][r["actor"] == 2] != actor).any())
    until(lambda: gone(actor))


@pytest.mark.extra
@pytest.mark.slow
def test_actors_of_a_machine_that_is_gone_begin_elsewhere() -> None:
    with two_nodes() as cluster, Supervisor(5) as run:
        # The cluster may learn of the loss only after the first try on the same machine.
        publisher, rings, nodes = start(run, cluster, restarts=2)
        publisher.publish(drawn(1), 1)
        found = taken(run, rings, lambda found: set(found["actor"]) == {0, 1, 2})
        lost = set(found["pid"][found["actor"] == 0])
        (machine,) = cluster.worker_nodes  # the learner's own is the last: it has actor 2
        cluster.remove_node(machine, allow_graceful=False)
        taken(run, rings, lambda r: bool(set(r["pid"][r["actor"] == 0]) - lost))
        assert nodes.crashes == 0


@pytest.mark.extra
@pytest.mark.slow
def test_an_actor_afar_that_crashes_too_often_ends_the_run(cluster: Any) -> None:
    with Supervisor(5) as run:
        publisher, rings, _ = start(run, cluster, restarts=0)
        publisher.publish(drawn(1), 1)
        found = taken(run, rings, lambda found: len(found) > 10)
        os.kill(int(found["pid"][-1]), signal.SIGKILL)
        with pytest.raises(RunError, match=r"ray: ended with .*was killed by SIGKILL"):
            taken(run, rings, lambda found: False)


@pytest.mark.extra
@pytest.mark.slow
def test_a_cluster_with_too_few_nodes_is_refused(cluster: Any) -> None:
    with Supervisor(5) as run:
        publisher = Publisher(run, PROGRAM, readers=1)
        rings = Experience.create(RECORD, 10, writers=3)
        RayNodes(
            run, publisher, rings, module=MODULE, actors=[[settings(0)]] * 3, reader=0,
            writers=range(3), address=cluster.address,
        )  # fmt: skip
        with pytest.raises(RunError, match="actors need 3 nodes, but the cluster has 2"):
            taken(run, rings, lambda found: False)
