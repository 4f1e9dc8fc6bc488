"""Run the tests of a mutant's line on it, in a separate process.

The process is forked from one that has imported all unchanged modules, so that a trial costs the
import of qgraph and of a few test files only.
"""

from __future__ import annotations

import gc
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from benchmarks.checkouts import copy_native_libraries, remove_editable_hooks
from benchmarks.mutation.mutants import Mutant

KILLED, SURVIVED, TIMEOUT = "killed", "survived", "timeout"
# A test is stopped after three times its time without a mutant, plus this number of seconds.
PATIENCE = 5.0
MEMORY = 12 << 30  # bytes of address space, because a mutant may ask for all memory
UNCHANGED = ("numpy", "hypothesis", "onnx", "networkx", "yaml", "tensorflow", "onnxruntime")


@contextmanager
def compiled_copy(root: Path) -> Iterator[Path]:
    """A compiled copy of the repository at `root`, in which files can be changed."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as name:
        copy = Path(name) / "tree"
        unwanted = shutil.ignore_patterns(".git", ".venv", "runs", ".hypothesis", "*_cache")
        shutil.copytree(root, copy, symlinks=True, ignore=unwanted)
        copy_native_libraries(copy)
        yield copy


def import_unchanged_modules() -> None:
    """Import the modules that no mutant changes, before processes are forked."""
    import importlib

    for name in UNCHANGED:
        importlib.import_module(name)
    # Exclude these objects from garbage collection, which makes pytest's collections fast.
    gc.freeze()


def trial(mutant: Mutant, copy: Path, tests: Mapping[str, float]) -> tuple[str, str]:
    """Run `tests` in `copy`, in order; return the outcome, and the test that failed.

    tests: the seconds of each test without a mutant, by node id.
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
        ended = _in_child(copy, tests, note)
    finally:
        file.write_bytes(original)
    return ended, "" if ended == SURVIVED else note.read_text()


def _in_child(copy: Path, tests: Mapping[str, float], note: Path) -> str:
    # Limits processes that wait, or that run in other programs.
    longest = 10 * (sum(tests.values()) + PATIENCE)
    child = os.fork()
    if child == 0:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        code = 70
        try:
            code = int(run_tests(copy, tests, note))
        finally:
            os._exit(code)
    began = time.monotonic()
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        late = time.monotonic() - began > longest
        if done or late:
            break
        time.sleep(0.02)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # ends also the processes that it has started
    if not done:
        os.waitpid(child, 0)
        return TIMEOUT
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGPROF, signal.SIGKILL):
        return TIMEOUT
    return SURVIVED if status == 0 else KILLED


class Chosen:
    """A plugin of pytest that runs chosen tests in order and records the first that fails.

    SIGPROF ends the process if a test takes too long.
    """

    def __init__(self, tests: Mapping[str, float], note: Path) -> None:
        self.seconds = tests
        self.order = {test: i for i, test in enumerate(tests)}
        self.note = note

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted(
            (item for item in items if item.nodeid in self.order),
            key=lambda item: self.order[item.nodeid],
        )

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        self.note.write_text(item.nodeid)
        signal.setitimer(signal.ITIMER_PROF, 3 * self.seconds[item.nodeid] + PATIENCE)

    def pytest_sessionfinish(self) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.note.write_text(report.nodeid)


def run_tests(copy: Path, tests: Mapping[str, float], note: Path) -> int:
    """Run `tests` of the tree `copy` in this process without output, until one fails."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    os.chdir(copy)
    sys.path[0] = str(copy)
    remove_editable_hooks()
    sys.dont_write_bytecode = True
    storage = note.parent / "hypothesis"
    shutil.rmtree(storage / "examples", ignore_errors=True)  # files of another mutant
    os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = str(storage)
    for name in [n for n in sys.modules if n.partition(".")[0] in ("benchmarks", "qgraph")]:
        del sys.modules[name]  # modules of the repository instead of its copy
    files = list(dict.fromkeys(test.partition("::")[0] for test in tests))
    options = ["-q", "-x", "-p", "no:cacheprovider", "--hypothesis-seed=0", "--tb=no"]
    return pytest.main([*options, *files], plugins=[Chosen(tests, note)])
