"""`--mean-bits`, `--weight-bytes`: bits of weights chosen layer by layer."""

import json

import pytest

from tests.helpers.cli import left_in, run
from tests.helpers.report import Page

USAGE = 2


@pytest.fixture(scope="module")
def mixed(model, samples, tmp_path_factory):
    """Files and output of a run with a budget."""
    out = tmp_path_factory.mktemp("mixed") / "out"
    done = run("quantize", model, "-c", samples, "--mean-bits", 5, "-o", out, "--effort", "plain")
    assert done.code == 0, done.err
    return out, done.out


def test_the_table_shows_what_was_measured_and_kept(mixed):
    out, text = mixed
    manifest = json.loads((out / "manifest.json").read_text())
    (kept,) = [p for p in manifest["mixed"]["points"] if p["kept"]]
    assert kept["mean_bits"] <= 5
    bits = {y["name"]: y["weight_bits"] for y in manifest["layers"] if y["name"] in kept["bits"]}
    assert bits == kept["bits"] and set(bits) == {"first", "second"}
    rows = [line for line in text.splitlines() if line.rstrip().endswith("used")]
    assert len(rows) == 1 and f"{kept['weight_bytes']}" in rows[0]
    assert text.count("same everywhere") == 4


def test_the_profile_gives_the_same_bits_again(mixed, model, samples, tmp_path):
    profile = mixed[0] / "profile.yaml"
    done = run("quantize", model, "-c", samples, "--profile", profile, "-o", tmp_path / "again")
    assert done.code == 0, done.err
    again = json.loads((tmp_path / "again/manifest.json").read_text())
    first = json.loads((mixed[0] / "manifest.json").read_text())
    assert again["profile"] == first["profile"] and "mixed" not in again
    assert [y["weight_bits"] for y in again["layers"]] == [
        y["weight_bits"] for y in first["layers"]
    ]


def test_the_report_has_a_chart(mixed):
    assert run("report", mixed[0]).code == 0
    page = Page((mixed[0] / "report.html").read_text())
    assert not page.wrong and "bits" in page.ids
    assert "Bits of weights" in page.text and "by layer, kept" in page.text
    facts = json.loads(run("report", mixed[0], "--json").out)
    assert facts["mixed"]["points"]


def test_analyze_shows_a_point_for_each_budget(model, samples):
    found = run("analyze", model, "-c", samples, "--mean-bits", "3,5")
    assert found.code == 0, found.err
    assert found.out.count("used") in (1, 2)
    assert found.out.splitlines()[-1].endswith("--mean-bits 5 -o out")
    points = json.loads(run("analyze", model, "-c", samples, "--mean-bits", "3,5", "--json").out)
    assert [p["mean_bits"] for p in points["points"] if p["uniform"]] == [2, 4, 8, 16]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--mean-bits", 1.5], "the smallest budget is 47 bytes, 2 bits on average"),
        (["--weight-bytes", "46"], "the smallest budget is 47 bytes"),
        (["--weight-bytes", "lots"], "`lots` is not a size in bytes"),
        (["--mean-bits", "nan"], "nan is not a valid weight budget"),
        (["--mean-bits", 5, "--weight-bytes", "1k"], "two weight budgets"),
    ],
)
def test_budgets_that_make_no_sense(model, samples, tmp_path, flags, said):
    done = run("quantize", model, "-c", samples, "-o", tmp_path / "out", *flags)
    assert done.code == USAGE and said in done.err and "Traceback" not in done.err
    assert left_in(tmp_path) == set()


@pytest.mark.parametrize("text", ["", "4,", "0", "four", "3,-1", "inf"])
def test_lists_of_bits_that_make_no_sense(model, samples, text):
    done = run("analyze", model, "-c", samples, "--mean-bits", text)
    assert done.code == USAGE and "try --mean-bits 3,4,5,6,8" in done.err


@pytest.mark.parametrize(
    ("text", "count"),
    [("200000", 200_000), ("200k", 200_000), ("1.5M", 1_500_000), ("2KiB", 2048), ("1 kB", 1000)],
)
def test_sizes(text, count):
    from qgraph.cli.options import byte_count

    assert byte_count(text) == count
