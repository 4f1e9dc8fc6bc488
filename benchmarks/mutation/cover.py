"""Measure which tests run which lines, and how long each test takes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import coverage
import pytest

from benchmarks.checkouts import variables_of

# Tests of the code that is changed, without tests that train or play.
SUITE = (
    "tests/exact",
    "tests/program",
    "tests/transforms",
    "tests/test_numerics.py",
    "tests/test_recipes.py",
    "tests/test_passes.py",
    "tests/backends/c",
    "tests/backends/vectors",
    "tests/ir",
    "tests/rewrite",
    "tests/verification",
)


@dataclass(frozen=True)
class Cover:
    """Tests by path and line, and the seconds of each. Tests are pytest's node ids."""

    by_line: Mapping[str, Mapping[int, Collection[str]]]
    seconds: Mapping[str, float]

    def tests(self, path: str, lines: tuple[int, int], loaded: bool) -> list[str]:
        """The tests that run one of the lines, fastest first.

        Lines that run during import count for all tests that run other lines of the file.
        """
        known = self.by_line.get(path, {})
        wanted = known if loaded else range(lines[0], lines[1] + 1)
        found = {test for line in wanted for test in known.get(line, ())}
        return sorted(found, key=lambda test: (self.seconds.get(test, 0.0), test))


class _Contexts:
    """A plugin of pytest that assigns lines to the test that is running."""

    def __init__(self, cover: coverage.Coverage) -> None:
        self.cover = cover
        self.seconds: dict[str, float] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> object:
        self.cover.switch_context(item.nodeid)
        start = time.perf_counter()
        result = yield
        self.seconds[item.nodeid] = time.perf_counter() - start
        self.cover.switch_context("")
        return result


def covered(root: Path, tests: Sequence[str], sources: Sequence[str]) -> Cover:
    """Run `tests` in `root` once. It imports what it measures, so it needs a separate process."""
    paths = [(root / source).resolve() for source in sources]
    files = [f"{path}/**" if path.is_dir() else str(path) for path in paths]
    cover = coverage.Coverage(data_file=None, include=files, messages=False)
    plugin = _Contexts(cover)
    cover.start()
    code = pytest.main(["-q", "-p", "no:cacheprovider", *tests], plugins=[plugin])
    cover.stop()
    if code != pytest.ExitCode.OK:
        raise SystemExit(f"the tests fail without a mutant: exit code {code}")
    data = cover.get_data()
    by_line: dict[str, dict[int, list[str]]] = defaultdict(dict)
    for file in data.measured_files():
        path = Path(file).resolve().relative_to(root.resolve()).as_posix()
        for line, names in data.contexts_by_lineno(file).items():
            by_line[path][line] = [name for name in names if name]
    return Cover(dict(by_line), plugin.seconds)


def cover_of(copy: Path, file: Path, tests: Sequence[str], sources: Sequence[str]) -> Cover:
    """Coverage of `tests` in the tree `copy`, read from `file` or, if it does not exist,
    measured.
    """
    if not file.exists():
        command = [
            sys.executable,
            "-m",
            "benchmarks.mutation.cover",
            str(file.resolve()),
            *tests,
            "--",
            *sources,
        ]
        with variables_of(copy) as variables:
            environment = {**os.environ, **variables}
            silent = subprocess.DEVNULL
            subprocess.run(command, cwd=copy, check=True, stdout=silent, env=environment)
    found = json.loads(file.read_text())
    names, seconds = list(found["seconds"]), found["seconds"]
    return Cover(
        {
            path: {int(line): [names[i] for i in tests] for line, tests in lines.items()}
            for path, lines in found["lines"].items()
        },
        seconds,
    )


def _write(file: Path, found: Cover) -> None:
    index = {name: i for i, name in enumerate(found.seconds)}
    lines = {
        path: {line: sorted(index[name] for name in names) for line, names in by_line.items()}
        for path, by_line in found.by_line.items()
    }
    file.write_text(json.dumps({"seconds": found.seconds, "lines": lines}))


if __name__ == "__main__":
    split = sys.argv.index("--")
    _write(Path(sys.argv[1]), covered(Path.cwd(), sys.argv[2:split], sys.argv[split + 1 :]))
