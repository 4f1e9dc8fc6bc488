"""One mutant against the tests that run its line, in a process of its own.

The process is forked from one that has imported what does not change, so that a trial costs the
import of qgraph and of a few test files.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from benchmarks.mutation.mutants import Mutant

KILLED, SURVIVED, TIMEOUT = "killed", "survived", "timeout"
# Seconds of processor time that tests may take beside three times their own.
PATIENCE = 20.0
MEMORY = 12 << 30  # bytes of addresses; a mutant may ask for all that there is
STANDING = ("numpy", "hypothesis", "onnx", "networkx", "yaml", "tensorflow", "onnxruntime")


@contextmanager
def workshop(root: Path) -> Iterator[Path]:
    """A copy of the repository at `root`, compiled, in which files can be changed."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as name:
        copy = Path(name) / "tree"
        unwanted = shutil.ignore_patterns(".git", ".venv", "runs", ".hypothesis", "*_cache")
        shutil.copytree(root, copy, symlinks=True, ignore=unwanted)
        yield copy


def import_what_stands() -> None:
    """Import what no mutant changes, before anything is forked."""
    import importlib

    for name in STANDING:
        importlib.import_module(name)


def trial(mutant: Mutant, copy: Path, tests: Sequence[str], seconds: float) -> tuple[str, str]:
    """How it ends when `tests` are run in `copy`, fastest first, and the test that failed.

    seconds: what the tests take without a mutant.
    """
    if not tests:
        return SURVIVED, ""
    file = copy / mutant.path
    original = file.read_bytes()
    source = mutant.source(copy)
    for compiled in file.parent.glob(f"__pycache__/{file.stem}.*.pyc"):
        compiled.unlink()
    note = copy.parent / "failed"
    note.write_text("")
    try:
        file.write_text(source, "utf-8")
        ended = _in_child(copy, tests, note, seconds)
    finally:
        file.write_bytes(original)
    return ended, note.read_text()


def _in_child(copy: Path, tests: Sequence[str], note: Path, seconds: float) -> str:
    limit = 3 * seconds + PATIENCE
    child = os.fork()
    if child == 0:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CPU, (int(limit) + 1, int(limit) + 5))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        code = 70
        try:
            code = int(run_tests(copy, tests, note))
        finally:
            os._exit(code)
    began = time.monotonic()
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        late = time.monotonic() - began > 5 * limit
        if done or late:
            break
        time.sleep(0.02)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # what it started, too
    if not done:
        os.waitpid(child, 0)
        return TIMEOUT
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL):
        return TIMEOUT
    return SURVIVED if status == 0 else KILLED


class Chosen:
    """A plugin of pytest: runs chosen tests, in their order, and notes the first that fails."""

    def __init__(self, tests: Sequence[str], note: Path) -> None:
        self.order = {test: i for i, test in enumerate(tests)}
        self.note = note

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted(
            (item for item in items if item.nodeid in self.order),
            key=lambda item: self.order[item.nodeid],
        )

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.note.write_text(report.nodeid)


def run_tests(copy: Path, tests: Sequence[str], note: Path) -> int:
    """Run `tests` of the tree `copy` in this process, silently, until one fails."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    os.chdir(copy)
    sys.path[0] = str(copy)
    sys.dont_write_bytecode = True
    os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = str(note.parent / "hypothesis")
    shutil.rmtree(note.parent / "hypothesis", ignore_errors=True)
    for name in [n for n in sys.modules if n.partition(".")[0] in ("benchmarks", "qgraph")]:
        del sys.modules[name]  # those of the repository, not of its copy
    files = list(dict.fromkeys(test.partition("::")[0] for test in tests))
    options = ["-q", "-x", "-p", "no:cacheprovider", "--hypothesis-seed=0", "--tb=no"]
    return pytest.main([*options, *files], plugins=[Chosen(tests, note)])
