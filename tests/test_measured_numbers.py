"""Measured numbers in the documentation come from data: they are generated, or link to a result."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.sources import needs_sources

pytestmark = needs_sources

DOCS = Path(__file__).parents[1] / "docs"
PAGES = sorted(p for p in DOCS.rglob("*.md") if "results" not in p.relative_to(DOCS).parts)
UNIT = r"(%|dB|ms|us|µs|s|MB|kB|GB|microseconds|milliseconds|points)"
MEASURED_HEADING = re.compile(rf"(SQNR|accuracy|(, | |^)(?!%|s$|points){UNIT}$)")
MEASURED_CELL = re.compile(rf"[-+]?[\d,]*\.\d+( ?{UNIT})?( ± [\d.]+ ?%?)?|[-+]?[\d,]+ ?{UNIT}")
MEASURED_TEXT = re.compile(rf"\b\d+\.\d+ ?{UNIT}(?![\w%])")
FEW_CELLS = 3
RESULT = "results/"
# Parts of definitions, and sizes that follow from shapes.
FACTS = ("99.9 %", "99.99 %", "1.2 MB for 224x224", "7.8 MB at 84 x 84")


def measured_by_hand(page: str) -> Iterator[str]:
    """Each block of a page that has measured numbers but neither a mark nor a link to a result."""
    page = re.sub(r"<!-- table: .*?<!-- end of table -->", "", page, flags=re.S)
    page = re.sub(r"^```.*?^```", "", page, flags=re.S | re.M)
    for block in re.split(r"\n\s*\n", page):
        if RESULT in block or block.startswith("    "):
            continue
        lines = block.splitlines()
        if any(line.startswith("|") for line in lines):
            if _is_measured([line for line in lines if line.startswith("|")]):
                yield block
        elif MEASURED_TEXT.search(_without_facts(block)):
            yield block


def _is_measured(table: list[str]) -> bool:
    head, *rows = ([cell.strip(" *`") for cell in line.strip("|").split("|")] for line in table)
    cells = [cell for row in rows for cell in row if MEASURED_CELL.fullmatch(cell)]
    return any(map(MEASURED_HEADING.search, head)) or len(cells) >= FEW_CELLS


def _without_facts(text: str) -> str:
    text = " ".join(text.split())
    for fact in FACTS:
        text = text.replace(fact, "")
    return text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_measured_numbers_are_generated_or_linked(page: Path) -> None:
    found = list(measured_by_hand(page.read_text("utf-8")))
    assert not found, "move these to benchmarks/results, or link to a page of results"


TABLE = "| network | {} |\n|---|---|\n| a | {} |\n| b | {} |\n| c | {} |\n"


@pytest.mark.parametrize(
    ("page", "count"),
    [
        (TABLE.format("SQNR, dB", "20.1", "-", "-"), 1),
        (TABLE.format("as float", "97.2 %", "0.5 %", "1 %"), 1),
        (TABLE.format("bits", "8", "16", "32"), 0),
        (
            "<!-- table: x -->\n"
            + TABLE.format("ms", "1.0", "2.0", "3.0")
            + "<!-- end of table -->",
            0,
        ),
        ("It takes 9.8 ms on one core.", 1),
        ("It takes 9.8 ms on one core ([measured](results/small_tensors.md)).", 0),
        ("```console\n$ run\ntook 7.1 s\n```", 0),
        ("    took 7.1 s", 0),
        ("It keeps 99.99 % of all values, and warns above 1 %.", 0),
    ],
)
def test_the_rule_finds_what_was_measured(page: str, count: int) -> None:
    assert len(list(measured_by_hand(page))) == count
