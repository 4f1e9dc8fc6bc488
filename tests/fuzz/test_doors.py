"""Damaged files of every kind: no exception outside the error tree, no hang, little memory."""

import json
import subprocess
import sys
from importlib.util import find_spec

import pytest

from qgraph.archives import reading
from tests.helpers.damage import TooLong, too_long
from tests.helpers.doors import DOORS as ALL_DOORS

# The package that reads `.tflite` files is optional.
DOORS = {name: door for name, door in ALL_DOORS.items() if name != "tflite" or find_spec("tflite")}
SLOW = ("keras2", "keras2_h5", "keras3", "keras3_h5")  # each opens HDF5 in a separate process
QUICK = tuple(name for name in DOORS if name not in SLOW)


def assert_survives(names, first, count, seconds):
    """Run in a separate process, because a crash or full memory would end the tests too."""
    command = [sys.executable, "-m", "tests.helpers.doors", ",".join(names)]
    done = subprocess.run(
        [*command, str(first), str(count)], capture_output=True, text=True, timeout=seconds
    )
    last = [line for line in done.stderr.splitlines() if line.startswith("seed")][-1:]
    assert done.returncode == 0, f"{last}\n{done.stderr[-3000:]}"
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [ends["door"] for ends in found] == [*names]
    return found


def test_some_mutants_of_every_door():
    found = assert_survives(QUICK, 0, 8, 300) + assert_survives(SLOW, 0, 2, 300)
    refused = [sum(v for k, v in ends.items() if k.endswith("Error")) for ends in found]
    assert all(refused), "the mutants of a door are not damaged"


@pytest.mark.fuzz
@pytest.mark.parametrize("name", DOORS)
def test_many_mutants(name):
    assert_survives([name], 10_000, 4000, 6 * 3600)


def test_the_time_limit_ends_what_catches_every_exception():
    """A loader that turns all exceptions into refusals must not turn a hang into one."""
    with pytest.raises(TooLong), reading("file", "cannot be read"):
        too_long(None, None)
