"""Results are data: pages show what the JSON files say, and each file is shown."""

from __future__ import annotations

import argparse
import re
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import result as results
from benchmarks.result import MEASURED, RESULTS, ROOT, Machine, Result, add_json_option
from benchmarks.tables import Table, merged, written
from benchmarks.topics.figures import Bars, Lines, Points, figure
from benchmarks.topics.search import PLAN_CHOICE
from benchmarks.topics.site import OTHERS, TOPICS, figures
from benchmarks.topics.topic import generated

PAGES = sorted((ROOT / "docs/results").glob("*.md"))
MOST_LINES = 150
OPTION = re.compile(r"JsonFile|add_json_option")
PARTS = ("## Question", "## Setup", "## Result", "## What it does not show")


def small() -> Result:
    table = Table("Times", {"what": "", "ms": ".1f", "change": "+.1%"}, notes=["a note"])
    table.add("one", 1.25, (0.5, 0.125))
    table.add("a|b", None, (-0.5, 0.0))
    machine = Machine("some processor", 2, ("AVX2",), 0.5)
    versions = {"python": "3.12.0"}
    return Result("python -m some", "abc", "2026-11-05", machine, versions, (0, 1, 2), (table,))


def test_a_result_is_read_as_it_was_written(tmp_path: Path) -> None:
    small().write(tmp_path / "small.json")
    again = results.read("small", tmp_path)
    assert replace(again, tables=()) == replace(small(), tables=())
    assert again.table("Times").markdown() == small().table("Times").markdown()


def test_a_row_takes_one_line_of_the_file(tmp_path: Path) -> None:
    small().write(tmp_path / "small.json")
    assert '{"what": "one", "ms": 1.25, "change": [0.5, 0.125]}' in (
        line.strip().removesuffix(",")
        for line in (tmp_path / "small.json").read_text().splitlines()
    )


def test_cells_are_written_as_columns_say() -> None:
    lines = small().table("Times").markdown().splitlines()
    assert lines[2] == "| one | 1.2 | +50.0% ± 12.5% |"
    assert lines[3] == "| a\\|b | - | -50.0% ± 0.0% |"


def test_three_digits_are_written_without_exponents() -> None:
    found = [written(value, ".3g") for value in (0.06624, 20.6, 1364.4, 26537.0)]
    assert found == ["0.0662", "20.6", "1,364", "26,537"]


def test_the_command_leaves_out_where_the_json_goes() -> None:
    said = ["--only", "x y", "--json", "/somewhere/file.json", "--json=other", "--steps", "3"]
    assert results.command("benchmarks.some", said) == (
        "python -m benchmarks.some --only 'x y' --steps 3"
    )


def test_the_command_has_no_path_of_this_machine() -> None:
    said = ["--tool", "/somewhere/bin/python", "results/a.json"]
    assert results.command("benchmarks.some", said) == (
        "python -m benchmarks.some --tool python results/a.json"
    )


def test_parsers_get_the_option() -> None:
    parser = argparse.ArgumentParser()
    add_json_option(parser)
    assert parser.parse_args(["--json", "a.json"]).json == Path("a.json")
    assert parser.parse_args([]).json is None


def test_a_report_writes_what_it_has_so_far(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("sys.argv", ["some", "--seed", "1", "--json", str(tmp_path / "a.json")])

    def fails():
        yield small().tables[0]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        results.report("benchmarks.some", fails(), tmp_path / "a.json", (1,), ("numpy",))
    found = results.read("a", tmp_path)
    assert (found.command, found.seeds) == ("python -m benchmarks.some --seed 1", (1,))
    assert found.tables[0].rows[0]["ms"] == 1.25
    assert found.source == MEASURED and found.machine.cores > 0 and found.versions["numpy"]


def test_rows_are_picked_and_turned() -> None:
    table = Table("T", {"who": "", "batch": "", "ms": ".0f"})
    for who, batch, ms in (("a", 1, 2), ("a", 32, 3), ("b", 1, 4)):
        table.add(who, batch, ms)
    assert table.where(who="a", batch=(1, 32)).only("ms").rows == [{"ms": 2}, {"ms": 3}]
    turned = table.pivot("who", "batch", "ms")
    assert turned.rows == [{"who": "a", "1": 2, "32": 3}, {"who": "b", "1": 4, "32": None}]
    assert table.row(who="b")["ms"] == 4
    with pytest.raises(ValueError, match="too many"):
        table.row(who="a")


def test_a_note_about_a_column_goes_with_the_column() -> None:
    table = Table("T", {"who": "", "ms": ""}, notes=["ms: medians", "who: a or b", "on one thread"])
    assert table.only("who").notes == ["who: a or b", "on one thread"]


def test_networks_with_the_same_samples_share_a_note() -> None:
    notes = ["a: 64 images", "b: 32 images", "c: 64 images", "quiet"]
    table = Table("T", {"network": "", "gain dB": ""}, notes=notes)
    result = replace(small(), tables=(table,))
    assert PLAN_CHOICE.table(result).notes == ["a, c: 64 images", "b: 32 images", "quiet"]


def test_tables_are_merged_by_a_column_in_front() -> None:
    made = merged("All", "batch", ((name, small().tables[0]) for name in ("1", "32")))
    assert list(made.columns) == ["batch", "what", "ms", "change"]
    assert [(row["batch"], row["what"]) for row in made.rows][1:3] == [("1", "a|b"), ("32", "one")]
    assert made.notes == ["a note"]


@pytest.mark.parametrize("kind", [Bars("ms"), Bars("ms", stacked=True), Lines("what", "ms")])
def test_a_figure_is_drawn_again_only_for_different_data(kind, tmp_path: Path) -> None:
    file, table = tmp_path / "figure.svg", small().tables[0].only("what", "ms", "change")
    file.write_bytes(figure("Times", table, kind, file))
    file.write_bytes(file.read_bytes() + b"<!-- same data -->")
    assert figure("Times", table, kind, file).endswith(b"<!-- same data -->")
    table.rows[0]["ms"] = 1.5
    assert not figure("Times", table, kind, file).endswith(b"<!-- same data -->")


def test_points_have_names_and_a_colour_for_each_series(tmp_path: Path) -> None:
    table = Table("Times", {"tool": "", "way": "", "s": "", "right": ""})
    table.add("one", "fast", 1.0, (0.5, 0.1))
    table.add("one", "slow", 20.0, (0.9, 0.1))
    table.add("two", "other", 5.0, 0.7)
    drawn = figure("Times", table, Points("s", "right", log_x=True), tmp_path / "a.svg").decode()
    assert all(f">{name}</text>" in drawn for name in ("fast", "slow", "other", "one", "two"))
    table.rows[2]["right"] = 0.8
    (tmp_path / "a.svg").write_text(drawn)
    assert figure("Times", table, Points("s", "right", log_x=True), tmp_path / "a.svg") != (
        drawn.encode()
    )


def test_each_file_of_results_is_shown_and_each_page_is_a_topic() -> None:
    names = sorted(topic.name for topic in TOPICS)
    assert sorted(p.stem for p in RESULTS.glob("*.json")) == sorted(
        {*names, *(name for name, _ in OTHERS.values())}
    )
    assert sorted(p.stem for p in PAGES) == sorted([*names, "index"])


def test_each_figure_belongs_to_a_topic() -> None:
    drawn = {path for path, _ in figures()}
    found = (ROOT / "docs/images/results").glob("*")
    assert {p.relative_to(ROOT).as_posix() for p in found} == drawn


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_is_short_and_points_to_no_other_commit(page: Path) -> None:
    text = page.read_text("utf-8")
    assert len(text.splitlines()) <= MOST_LINES
    assert not re.search(r"(file|table|version)s? (is |are )?at commit", text)


@pytest.mark.parametrize("topic", TOPICS, ids=lambda topic: topic.name)
def test_a_page_has_its_parts_one_figure_and_the_script(topic) -> None:
    text = (ROOT / topic.page).read_text("utf-8")
    assert [line for line in text.splitlines() if line.startswith("## ")] == list(PARTS)
    assert text.count("![") == 1
    assert len(re.findall(r"^\|(?: --- \|)+$", text, re.MULTILINE)) == 1
    data = results.read(topic.name)
    assert generated(topic, data) in text
    module = re.match(r"python -m ([\w.]+)", data.command)[1].replace(".", "/")
    assert (ROOT / f"{module}.py").exists() or (ROOT / module / "__main__.py").exists()


@pytest.mark.parametrize("file", sorted(RESULTS.glob("*.json")), ids=lambda file: file.stem)
def test_a_file_names_no_folder_of_a_machine(file: Path) -> None:
    assert not re.search(r'[" =](/\w+)+/', file.read_text("utf-8"))


def scripts() -> list[Path]:
    """Files that can be run, without the processes of a package whose `__main__` has the option."""
    files = sorted((ROOT / "benchmarks").rglob("*.py"))
    found = [file for file in files if 'if __name__ == "__main__"' in file.read_text("utf-8")]
    mains = [file for file in found if file.stem == "__main__" and OPTION.search(file.read_text())]
    parts = {file.parent for file in mains}
    return [file for file in found if file in mains or file.parent not in parts]


@pytest.mark.parametrize("script", scripts(), ids=lambda p: p.relative_to(ROOT).as_posix())
def test_a_script_that_prints_tables_writes_them(script: Path) -> None:
    text = script.read_text("utf-8")
    tables = "import Table" in text or re.search(r'^\s*print\(f?"\|', text, re.MULTILINE)
    assert not tables or OPTION.search(text)


def test_figures_show_no_marks_of_code(tmp_path: Path) -> None:
    table = Table("", {"way": "", "`ms`": ""})
    table.add("`fast`", 1.0)
    drawn = figure("Rounding `double`", table, Bars("ms"), tmp_path / "a.svg").decode()
    assert "`" not in drawn and ">fast</text>" in drawn and ">Rounding double</text>" in drawn


def test_a_name_that_does_not_fit_is_an_error(tmp_path: Path) -> None:
    table = Table("t", {"bits": "", "x": ".1f"})
    for bits in (2, 3, 4):
        table.add(bits, bits / 10)
    long = "return of the trained policy minus return of the quantized one, of the range"
    drawn = figure("Bits", table, Lines("bits", long), tmp_path / "a.svg").decode()
    assert "2.25" not in drawn
    with pytest.raises(ValueError, match="is longer than the figure"):
        figure("Bits", table, Lines(long * 3, "return"), tmp_path / "a.svg")
    with pytest.raises(ValueError, match="is longer than the figure"):
        figure(long * 3, table, Lines("bits", "return"), tmp_path / "a.svg")
