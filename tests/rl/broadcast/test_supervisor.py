from __future__ import annotations

import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from qgraph.errors import RunError, UsageError
from qgraph.rl.broadcast import Channel, Experience, Supervisor, clock
from qgraph.rl.broadcast.board import ProcessState
from tests.helpers.watching import gone, until, watched

MODULE = "tests.helpers.rl_processes"


def kill(run: Supervisor, name: str) -> None:
    run.children[name].process.kill()


def test_processes_end_with_the_run_and_import_no_framework() -> None:
    with Supervisor(2) as run:
        run.start("a", MODULE, {"task": "modules"})
        watched(run, lambda: run.state("a") == ProcessState.RUNNING)
        process = run.children["a"].process
    assert process.returncode == 0
    assert run.state("a") == ProcessState.STOPPED


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("refuse", "exit code 2: it: this task is refused"),
        ("raise", "ValueError: an error of no known kind"),
        ("exit", "exit code 7, after\nlast words"),
    ],
)
def test_the_death_of_a_required_process_ends_the_run_with_its_reason(
    task: str, message: str
) -> None:
    with Supervisor(2) as run:
        run.start("other", MODULE, {"task": "wait"})
        run.start("learner", MODULE, {"task": task})
        with pytest.raises(RunError, match="learner: ended with") as caught:
            watched(run, lambda: False)
        other = run.children["other"].process
    assert message in str(caught.value)
    assert other.returncode == 0


def test_settings_are_as_long_as_they_need_be() -> None:
    with Supervisor(1) as run:
        run.start("ray", MODULE, {"task": "refuse", "actors": ["x" * 1250] * 1000})
        with pytest.raises(RunError, match="this task is refused"):
            watched(run, lambda: False)


def test_one_that_is_killed_is_named_with_its_signal() -> None:
    with Supervisor(1) as run:
        run.start("quantizer", MODULE, {"task": "wait"})
        watched(run, lambda: run.state("quantizer") == ProcessState.RUNNING)
        kill(run, "quantizer")
        with pytest.raises(RunError, match="quantizer: was killed by SIGKILL"):
            watched(run, lambda: False)


def test_one_that_hangs_is_killed() -> None:
    with Supervisor(1) as run:
        run.start("a", MODULE, {"task": "stuck"}, silence=2.0)
        with pytest.raises(RunError, match="no heartbeat for 2 s"):
            watched(run, lambda: False)


def test_no_process_hangs_after_the_run_was_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """As by Ctrl-Z and `fg`: the clock continues meanwhile."""
    with Supervisor(1) as run:
        run.start("a", MODULE, {"task": "wait"}, silence=20.0)
        watched(run, lambda: run.state("a") == ProcessState.RUNNING)
        run.check()
        pid, now = run.children["a"].process.pid, clock.now
        os.kill(pid, signal.SIGSTOP)
        monkeypatch.setattr(clock, "now", lambda: now() + 1000)
        run.check()
        run.check()
        os.kill(pid, signal.SIGCONT)
        run.check()


def test_one_that_does_not_stop_is_killed() -> None:
    with Supervisor(1) as run:
        run.start("a", MODULE, {"task": "stuck"})
        watched(run, lambda: run.state("a") == ProcessState.RUNNING)
        run.stop(grace=0.1)
        assert run.children["a"].process.returncode == -9


def test_an_actor_is_restarted_and_frees_what_it_held() -> None:
    channel = Channel.create(1000, readers=1)
    writer = channel.writer()
    with Supervisor(1) as run:
        settings = {"task": "read", "channel": channel.name, "reader": 0}
        writer.next_block()[:] = 1
        writer.publish(1)
        run.start("actor", MODULE, settings, restarts=1, on_release=lambda: channel.clear(0))
        watched(run, lambda: run.numbers("actor")[1] == 1)
        writer.next_block()[:] = 2
        writer.publish(2)
        kill(run, "actor")
        watched(run, lambda: len(run.crashes("actor")) == 1)
        assert run.crashes("actor")[0].startswith("was killed by SIGKILL")
        watched(run, lambda: run.numbers("actor")[1] == 2)
        kill(run, "actor")
        with pytest.raises(RunError, match=r"SIGKILL \(after 1 restart\)"):
            watched(run, lambda: False)


def test_what_a_killed_actor_had_put_is_whole_and_nothing_is_lost() -> None:
    record = np.dtype([("count", "i8"), ("filling", "i8", (500,))])
    rings = Experience.create(record, capacity=50, writers=1)
    reader = rings.reader()
    expected = 0
    with Supervisor(1) as run:
        settings = {"task": "act", "rings": rings.name, "actor": 0}
        run.start("actor", MODULE, settings, restarts=2)
        for crash in range(3):
            while expected < 400 * (crash + 1):
                run.check()
                for found in reader.take(10, timeout=0.1):
                    assert found["count"] == expected
                    assert (found["filling"] == expected).all()
                    expected += 1
            if crash < 2:
                kill(run, "actor")


def test_a_writer_killed_in_the_midst_of_a_block_leaves_the_last_one() -> None:
    channel = Channel.create(100000, readers=1)
    reader = channel.reader(0)
    with Supervisor(1) as run:
        run.start("writer", MODULE, {"task": "write", "channel": channel.name, "count": 5})
        with pytest.raises(RunError, match="SIGKILL"):
            watched(run, lambda: False)
    assert set(reader.latest()) == {4}
    writer = channel.writer()
    writer.next_block()[:] = 9
    writer.publish(9)
    assert set(reader.latest()) == {9}


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_processes_end_with_the_one_that_started_them(how: signal.Signals) -> None:
    script = (
        "import signal, time; from qgraph.rl.broadcast import Supervisor\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # where it was ignored
        "with Supervisor(1) as run:\n"
        f"    run.start('a', '{MODULE}', dict(task='wait'))\n"
        "    while run.state('a') != 1: time.sleep(0.01)\n"
        "    try:\n"
        "        print(run.children['a'].process.pid, flush=True)\n"
        # A signal that comes just before a sleep does not end it.
        "        for _ in range(600): time.sleep(0.1)\n"
        "    finally:\n"
        "        time.sleep(1.5); run.check(); print('all well')\n"
    )
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    parent = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        env=variables, text=True, start_new_session=True,
    )  # fmt: skip
    pid = int(parent.stdout.readline())
    if how == signal.SIGINT:  # as Ctrl-C does, to all of them
        os.killpg(parent.pid, how)
    else:
        parent.send_signal(how)
    said, _ = parent.communicate(timeout=30)
    until(lambda: gone(pid))
    assert ("all well" in said) == (how == signal.SIGINT)


def test_full_memory_is_an_error_with_a_clear_message() -> None:
    script = (
        "import resource; from qgraph.rl.broadcast import Channel\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))\n"
        "Channel.create(1 << 24, 1)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert "OutputError: channel: no shared memory: File too large" in ended.stderr


def test_names_and_places_are_limited() -> None:
    with Supervisor(1) as run:
        run.start("a", MODULE, {"task": "wait"})
        with pytest.raises(UsageError, match="already has a process `a`"):
            run.start("a", MODULE, {"task": "wait"})
        with pytest.raises(UsageError, match="all 1 places of the run are in use"):
            run.start("b", MODULE, {"task": "wait"})


def test_a_process_of_a_run_is_not_started_by_hand() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", MODULE, "{}"], capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert ended.returncode != 0
    assert "must be started by it" in ended.stderr
