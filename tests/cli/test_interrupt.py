"""Ctrl-C in the middle, sent to a separate process."""

import os
import signal
import subprocess
import sys
import time

import pytest

from qgraph.cli import start
from qgraph.errors import Interrupted
from tests.helpers.cli import left_in, run_process

SLOW = pytest.mark.slow
SOURCE = """
import pathlib, time

def images():
    pathlib.Path("calibrating").touch()
    for _ in range(600):  # a signal just before a sleep is heard of behind it
        time.sleep(0.1)
"""


def quantizing(model, folder, samples, *flags):
    """A process that quantizes with samples of a module in `folder`."""
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "qgraph",
            "quantize",
            str(model),
            "-c",
            samples,
            "-o",
            "out",
            *flags,
        ],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # In the background of a shell Ctrl-C is ignored, which a child would inherit.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


@pytest.mark.parametrize(
    "flags", [["--json"], pytest.param([], marks=SLOW), pytest.param(["--debug"], marks=SLOW)]
)
def test_interrupt_while_calibrating(model, tmp_path, flags):
    (tmp_path / "slow.py").write_text(SOURCE)
    (tmp_path / "out").mkdir()
    (tmp_path / "out/manifest.json").write_text("earlier")
    process = quantizing(model, tmp_path, "slow:images", "--force", *flags)
    deadline = time.monotonic() + 60
    while not (tmp_path / "calibrating").exists():
        assert process.poll() is None and time.monotonic() < deadline, process.communicate()
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 130 and out == ""
    assert "error: interrupted; no partial output was written\n  to start again" in err
    assert ("Traceback" in err) == (flags == ["--debug"])
    assert left_in(tmp_path) - {"__pycache__"} == {"slow.py", "calibrating", "out"}
    assert (tmp_path / "out/manifest.json").read_text() == "earlier"


def test_interrupt_while_modules_are_imported(tmp_path):
    (tmp_path / "typer.py").write_text("raise KeyboardInterrupt\n")
    done = subprocess.run(
        [sys.executable, "-m", "qgraph", "--version"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


DROPPED = """
import os, signal, time

class Interrupted:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)

Interrupted()  # Python drops an exception of `__del__`; imports drop some too

def images():
    time.sleep(60)
"""


def test_an_interrupt_that_python_drops_is_raised_again(model, tmp_path):
    (tmp_path / "slow.py").write_text(DROPPED)
    out, err = quantizing(model, tmp_path, "slow:images").communicate(timeout=50)
    assert out == ""
    assert err == (
        "error: interrupted; no partial output was written\n"
        "  to start again, run the same command\n"
    )
    assert left_in(tmp_path) - {"__pycache__"} == {"slow.py"}


REPLACED = """
import signal

def images():
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:
        raise ImportError("initialization failed") from None  # as extension modules do
"""


def test_an_interrupt_that_a_library_replaces_by_its_own_error(model, tmp_path):
    (tmp_path / "slow.py").write_text(REPLACED)
    process = quantizing(model, tmp_path, "slow:images")
    out, err = process.communicate(timeout=50)
    assert (process.returncode, out) == (130, "")
    assert err == (
        "error: interrupted; no partial output was written\n"
        "  to start again, run the same command\n"
    )


# Runs `qgraph --version`, and sends Ctrl-C at the import of the given number, counted from the
# entry point on. Prints the number of imports, if it gets there.
AT_IMPORT = """
import os, runpy, signal, sys

at, count, begun = int(sys.argv.pop()), 0, False
# In the background of a shell Ctrl-C is ignored, which a child inherits.
signal.signal(signal.SIGINT, signal.default_int_handler)

def hook(event, arguments):
    global count, begun
    begun |= event == "import" and arguments[0] == "qgraph.cli.start"
    if begun and event == "import":
        count += 1
        if count == at:
            os.kill(os.getpid(), signal.SIGINT)

sys.addaudithook(hook)
sys.argv.append("--version")
try:
    runpy.run_module("qgraph", run_name="__main__")
finally:
    print(count)
"""


def interrupted_at(number: int) -> tuple[int, str, str]:
    """Exit code and text of a process that is interrupted during its n-th import."""
    done = run_process("-c", AT_IMPORT, str(number))
    return done.returncode, done.stdout, done.stderr


def test_an_interrupt_at_any_import_prints_no_traceback():
    code, out, err = interrupted_at(0)
    assert (code, err) == (0, "")
    imports = int(out.splitlines()[-1])
    assert imports > 100
    for number in (3, 6, 14, 50, imports // 2, imports * 3 // 4):
        assert interrupted_at(number) == (130, "", ""), number


def test_the_entry_point_and_the_errors_agree_on_the_exit_code():
    assert Interrupted.exit_code == start.INTERRUPTED
