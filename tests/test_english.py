"""The English checker finds phrases that read badly, and no text has one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers import english
from tests.helpers.sources import needs_sources

pytestmark = needs_sources


def test_no_text_has_a_phrase_that_reads_badly() -> None:
    found = [finding for path in english.sources() for finding in english.findings(path)]
    assert not found, "\n".join(map(str, found))


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
        ("a.h", "// What there is of a file.\nint x;  // a file that lies\n", [1, 2]),
        ("a.md", "one scale a tensor\nin a process of its own\none scale per tensor\n", [1, 2]),
        ("a.md", "Fine.\n```\nit says\n```\n    it says\nit says\n", [6]),
    ],
)
def test_phrases_are_found_at_their_lines(
    tmp_path: Path, name: str, text: str, lines: list[int]
) -> None:
    (tmp_path / name).write_text(text)
    assert [finding.line for finding in english.findings(tmp_path / name)] == lines
