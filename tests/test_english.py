"""The English checker finds phrases; each folder has no more of them than stated here."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.helpers import english

# Phrases that remain. A number here only goes down; a folder that is not listed has none.
MOST: dict[str, int] = {
    "CHANGELOG.md": 13,
    "CONTRIBUTING.md": 2,
    "README.md": 1,
    "benchmarks": 105,
    "cli": 21,
    "docs": 121,
    "examples": 2,
    "fused_ops": 49,
    "qgraph": 43,
    "qgraph/backends": 52,
    "qgraph/evaluation": 2,
    "qgraph/exact": 12,
    "qgraph/frontends": 62,
    "qgraph/ir": 22,
    "qgraph/kernels": 1,
    "qgraph/ops": 6,
    "qgraph/program": 27,
    "qgraph/quant": 56,
    "qgraph/reporting": 11,
    "qgraph/retrain": 6,
    "qgraph/rewrite": 15,
    "qgraph/rl": 87,
    "qgraph/runtime": 3,
    "qgraph/static": 23,
    "qgraph/train": 49,
    "qgraph/verification": 9,
    "tests": 11,
    "tests/backends": 5,
    "tests/benchmarks": 8,
    "tests/cli": 17,
    "tests/engine": 3,
    "tests/evaluation": 1,
    "tests/exact": 3,
    "tests/frontends": 21,
    "tests/helpers": 35,
    "tests/ir": 2,
    "tests/program": 3,
    "tests/quant": 13,
    "tests/real": 1,
    "tests/reporting": 1,
    "tests/rl": 40,
    "tests/train": 12,
    "tests/transforms": 9,
    "tests/verification": 1,
    "transforms": 23,
}


def test_each_folder_has_no_more_phrases_than_stated() -> None:
    found = [finding for path in english.sources() for finding in english.findings(path)]
    counts = Counter(english.room_of(finding.path) for finding in found)
    over = {room for room, count in counts.items() if count > MOST.get(room, 0)}
    assert not over, "\n".join(str(f) for f in found if english.room_of(f.path) in over)


@pytest.mark.parametrize(
    ("name", "text", "lines"),
    [
        ("a.py", '"""Of a thing."""\n', [1]),
        ("a.py", '"""Do it.\n\nA list is no table.\n"""\n', [3]),
        ("a.py", 'text = f"the file {name} is not there"\n', [1]),
        ("a.py", "x = 1  # as Keras has it\n", [1]),
        ("a.py", '"""Return what `says` means."""\n', []),
        ("a.py", '"""A file is no longer read; there is no file."""\n', []),
        ("a.h", "// none\n/* the log\n * says so */\n", [3]),
        ("a.cpp", 'throw Error("shape is not known");\n', [1]),
        ("a.md", "Fine.\n```\nit says\n```\n    it says\nit says\n", [6]),
    ],
)
def test_phrases_are_found_at_their_lines(
    tmp_path: Path, name: str, text: str, lines: list[int]
) -> None:
    (tmp_path / name).write_text(text)
    assert [finding.line for finding in english.findings(tmp_path / name)] == lines
