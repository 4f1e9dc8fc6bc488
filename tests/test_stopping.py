"""Ctrl-C: a request to stop, and an error that is not lost."""

import signal
import subprocess
import sys
from contextlib import contextmanager, suppress

import pytest

from qgraph.cli.console import at_work
from qgraph.stopping import Interrupter, accept_interrupt, raise_dropped, stoppable


@contextmanager
def handler(found):
    before = signal.signal(signal.SIGINT, found)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def test_the_first_requests_a_stop_the_second_interrupts(capfd):
    with handler(signal.default_int_handler):
        with pytest.raises(KeyboardInterrupt), stoppable() as stopped:
            assert not stopped()
            signal.raise_signal(signal.SIGINT)
            assert stopped()
            assert capfd.readouterr().err.startswith("stopping after this step; Ctrl-C again")
            signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_one_that_a_library_dropped_stops_before_the_first_step():
    raising = Interrupter()
    with handler(raising):
        with suppress(BaseException):  # a library that catches everything
            signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt), stoppable():
            pytest.fail("a step")
        assert signal.getsignal(signal.SIGINT) is raising


def test_one_that_a_library_dropped_ends_a_command_at_its_next_stage():
    with handler(Interrupter()), at_work(as_json=True) as progress:
        progress("reading", 0, 1)
        with suppress(BaseException):  # an import that catches everything
            signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            progress("calibrating", 0, 1)
        progress("calibrating", 1, 1)  # of the same Ctrl-C, which was raised


def test_one_that_ends_a_search_does_not_end_the_command():
    with handler(Interrupter()):
        with suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        accept_interrupt()
        raise_dropped()


def test_a_signal_that_is_ignored_stays_so():
    code = """
import signal
from qgraph.stopping import raise_interrupts
signal.signal(signal.SIGINT, signal.SIG_IGN)
raise_interrupts()
assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
"""
    subprocess.run([sys.executable, "-c", code], check=True)
