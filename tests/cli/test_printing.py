"""Output for people, and output for machines."""

import json
import os
import pkgutil
import re
import select
import subprocess
import sys
from dataclasses import fields

import pytest

from qgraph import transforms
from qgraph.cli.console import fold_name, progress_bar
from qgraph.cli.tables import _print_trials
from qgraph.errors import QGraphError
from qgraph.pass_text import PASSES
from qgraph.quant.plan import PLAIN
from qgraph.recipes import OPTIONAL, RECIPES
from qgraph.static.agreement import Agreement
from qgraph.static.facts import TrialFacts
from tests.helpers.cli import run, run_process, small_network


@pytest.fixture
def columns(monkeypatch):
    return lambda count: monkeypatch.setenv("COLUMNS", str(count))


HEADING = """\
3 layers, profile graffitist-int8
                                          acc  exact    SQNR
layer      op           weight   output  bits  in         dB
"""


def test_quantize_shows_layers_files_and_what_to_type_next(model, samples, tmp_path, columns):
    columns(80)
    done = run("quantize", model, "-c", samples, "-o", tmp_path / "out")
    lines = [line.rstrip() for line in done.out.splitlines()]
    assert lines[:3] == HEADING.splitlines()
    assert [line.split()[:2] for line in lines[3:6]] == [
        ["first", "conv2d"],
        ["mean/pool", "depthwise"],
        ["second", "matmul"],
    ]
    assert "Ops that stay float, outside the integer graph: scores (softmax)." in lines
    out = tmp_path / "out"
    assert lines[-2:] == [f"next: qgraph verify {out}", f"      qgraph report {out}"]
    assert done.err == ""


def test_one_plan_and_one_sample_are_counted_as_such(model, samples, tmp_path):
    options = ("-c", samples, "-o", tmp_path / "out", "--limit", 1, "--budget", 0)
    lines = run("quantize", model, *options).out.splitlines()
    assert "one plan tried, on 1 sample" in lines
    assert "To repeat this without a search: --plan plain" in lines
    assert any(line.startswith("On 1 sample that calibration saw too: ") for line in lines)


def test_help_shows_the_defaults(columns):
    columns(200)
    text = run("quantize", "--help").out
    assert "[default: (kl_j)]" in text and "[default: (default; in qgraph analyze: plain)]" in text


@pytest.fixture(scope="module")
def deep(tmp_path_factory):
    """The small network with names as long as real ones."""
    graph_def = small_network()
    for node in graph_def.node:
        node.name = _deep(node.name)
        node.input[:] = [_deep(i) for i in node.input]
    path = tmp_path_factory.mktemp("deep") / "deep.pb"
    path.write_bytes(graph_def.SerializeToString())
    return path


def _deep(name):
    return name if name == "image" else f"Mobilenet/Bottleneck_13/expanded_depthwise/{name}"


@pytest.mark.parametrize("width", [80, 120])
def test_only_names_fold(deep, samples, tmp_path, columns, width):
    columns(width)
    done = run("quantize", deep, "-c", samples, "-o", tmp_path / "out")
    lines = [line.rstrip() for line in done.out.splitlines()]
    assert all(len(line) <= width for line in lines[:10])
    numbers = re.compile(r" 8b 2\^-\d+ +8b 2\^-\d+ +\d+  float32 +\d+\.\d$")
    assert len([line for line in lines if numbers.search(line)]) == 3
    table = "\n".join(lines[: lines.index("")])
    folded = "  Bottleneck_13/" in table or "  expanded_depthwise/" in table
    assert folded == (width == 80)


def test_without_a_terminal_lines_stay_whole(deep, samples, tmp_path, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    done = run("quantize", deep, "-c", samples, "-o", tmp_path / "out")
    name = re.escape(_deep("second"))
    assert re.search(rf"^{name} +matmul .*\d$", done.out, re.MULTILINE)


def test_fold_name():
    assert fold_name("a/b/c", 9) == ["a/b/c"]
    assert fold_name("block/conv/weights", 11) == ["block/conv/", "  weights"]
    assert "".join(part.strip() for part in fold_name("x" * 20 + "/y", 5)) == "x" * 20 + "/y"


def test_inspect(model, columns):
    columns(80)
    done = run("inspect", model)
    assert done.code == 0 and done.err == ""
    shown = done.out
    assert re.search(r"^input +image +float32\[\?,8,8,3\]", shown, re.MULTILINE)
    assert re.search(r"^output +classes +float32\[\?,4\]", shown, re.MULTILINE)
    assert re.search(r"^conv2d +1$", shown, re.MULTILINE)
    assert "scores  stays float: softmax is a float op" in shown
    assert f"next: qgraph quantize {model} -c samples.npz -o out" in shown
    assert all(step.name in shown for step in RECIPES["static"])


def test_inspect_trace_shows_rewrites_without_walls_of_numbers(model, columns):
    columns(80)
    shown = run("inspect", model, "--trace").out
    assert re.search(r"^mean-to-avg-pool, \d+ rewrites?$", shown, re.MULTILINE)
    assert re.search(r"^    - %mean = mean\(%relu\) \{axes=\(1, 2\)", shown, re.MULTILINE)
    assert "sha256" not in shown and max(map(len, shown.splitlines())) < 200


def test_inspect_text_is_the_graph(model):
    shown = run("inspect", model, "--text").out
    assert shown.startswith('graph "net" {\n  %image = input') and shown.endswith("}\n")


@pytest.mark.parametrize("part", ["", "inference.pb"])
def test_inspect_knows_what_quantize_wrote(written, part, columns):
    columns(80)
    done = run("inspect", written / part)
    assert done.code == 0 and "3 layers, profile graffitist-int8" in done.out
    assert not re.search(r"\bround\b", done.out) and "No float islands" in done.out
    found = json.loads(run("inspect", written / part, "--json").out)
    assert found == {**json.loads((written / "manifest.json").read_text()), "parts": []}


def test_inspect_of_an_output_that_was_tampered_with(written, tmp_path):
    (tmp_path / "manifest.json").write_bytes((written / "manifest.json").read_bytes())
    (tmp_path / "inference.pb").write_bytes((written / "inference.pb").read_bytes() + b"\0")
    done = run("inspect", tmp_path)
    assert done.code == 3 and "inference.pb: changed since it was written" in done.err


def test_inspect_of_a_quantized_graph_away_from_its_manifest(written, tmp_path, columns):
    columns(80)
    (tmp_path / "moved.pb").write_bytes((written / "inference.pb").read_bytes())
    done = run("inspect", tmp_path / "moved.pb")
    assert done.code == 0 and re.search(r"\bround\b", done.out) and len(done.out.splitlines()) < 90


# -- for machines ------------------------------------------------------------------------------


def test_json_is_one_document_and_nothing_else(model, samples, written, tmp_path):
    done = run("quantize", model, "-c", samples, "-o", tmp_path / "out", "--json")
    found = json.loads(done.out)
    assert found.pop("output") == str(tmp_path / "out")
    assert found == json.loads((tmp_path / "out/manifest.json").read_text())
    inspected = json.loads(run("inspect", model, "--json").out)
    assert inspected["inputs"] == {"image": "float32[?,8,8,3]"}
    assert inspected["unsupported"] == []
    assert {p["name"] for p in inspected["passes"]} == {p.name for p in RECIPES["static"]}
    assert inspected["refusals"][0]["node"] == "scores"
    recipes = json.loads(run("passes", "--json").out)
    wanted = {**RECIPES, "optional": OPTIONAL}
    assert {k: [p["name"] for p in v] for k, v in recipes.items()} == {
        k: [p.name for p in v] for k, v in wanted.items()
    }


def test_passes(columns):
    columns(80)
    shown = run("passes").out
    assert all(step.name in shown for recipe in RECIPES.values() for step in recipe)
    assert "as in recipe float" in shown and "recipe static" in shown


def test_every_pass_there_is_is_shown():
    shown = run("passes").out
    modules = [module.name for module in pkgutil.iter_modules(transforms.__path__)]
    assert len(modules) > 20
    for name in modules:
        assert name.replace("_", "-") in shown


def test_every_option_of_a_pass_is_shown_with_default_and_meaning():
    shown = run("passes")
    assert shown.code == 0
    for kind in PASSES.values():
        for field in fields(kind):
            name = field.name.replace("_", "-")
            row = rf"^{kind.name}\s+{name}\s+\S+\s+.*{field.metadata['meaning'][:30]}"
            assert re.search(row, shown.out, re.MULTILINE), (kind.name, name)
    found = json.loads(run("passes", "--json").out)["optional"]
    (equalize,) = (step for step in found if step["name"] == "equalize-channels")
    assert equalize["requires"] == ["batch-norm-folded"] and equalize["options"][0] == {
        "name": "biases", "default": "true", "legal": "true or false",
        "meaning": "Include biases in the range of a channel.",
    }  # fmt: skip


def test_every_pass_is_described():
    for recipe in json.loads(run("passes", "--json").out).values():
        assert all(len(step["summary"]) > 20 for step in recipe)


def test_exit_codes_differ():
    classes, seen = [QGraphError], {}
    while classes:
        classes += (found := classes.pop()).__subclasses__()
        if "exit_code" in vars(found):
            assert seen.setdefault(found.exit_code, found) is found


def test_progress_is_drawn_on_a_terminal_and_nowhere_else(monkeypatch, capfd):
    master, slave = os.openpty()
    with os.fdopen(slave, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        with progress_bar() as report:
            report("loading", 0, 1)
            report("calibrating", 3, 7)
        drawn = ""
        while "3/7" not in drawn and select.select([master], [], [], 5)[0]:
            drawn += os.read(master, 10_000).decode()
        os.close(master)
    assert "calibrating" in drawn and "3/7" in drawn
    with open(os.devnull, "w") as nowhere:
        monkeypatch.setattr(sys, "stderr", nowhere)
        with progress_bar() as report:
            report("loading", 0, 1)
    assert capfd.readouterr() == ("", "")


# -- separate processes --------------------------------------------------------------------


def test_tensorflow_is_silent(model, samples, tmp_path):
    done = run_process("-m", "qgraph", "quantize", model, "-c", samples, "-o", tmp_path / "out")
    shown = re.sub(r"\Atook [\d.]+ s\n\Z", "", done.stderr)
    assert (done.returncode, shown) == (0, "")


def test_help_and_version_import_nothing_heavy():
    code = (
        "import sys; sys.argv = ['qgraph', {!r}]\n"
        "from qgraph.cli.main import main\n"
        "try: main()\n"
        "finally: print([m for m in ('tensorflow', 'numpy', 'onnx', 'networkx', 'yaml') "
        "if m in sys.modules])"
    )
    for flag, shown in (("--help", "quantize"), ("--version", "qgraph ")):
        done = run_process("-c", code.format(flag))
        assert done.returncode == 0 and shown in done.stdout
        assert done.stdout.splitlines()[-1] == "[]"


def test_a_pipe_that_closes_early_is_no_error():
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = f"{sys.executable} -m qgraph passes | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, env=env)
    assert (done.stdout, done.stderr) == ("recipe float\n", "")


@pytest.mark.parametrize("verb", ["quantize", "inspect", "report", "passes"])
def test_help_fits_80_columns(verb, columns):
    columns(80)
    done = run(verb, "--help")
    assert done.code == 0 and "--json" in done.out
    assert max(map(len, done.out.splitlines())) <= 80


@pytest.mark.parametrize(
    ("count", "title"),
    [
        (1, "one plan tried, on 8 samples"),
        (6, "6 plans compared on 8 samples, the best first (it is used)"),
        (13, "13 plans compared on 8 samples, the best first (it is used); 6 are shown"),
    ],
)
def test_the_title_of_plans_counts_those_that_are_not_shown(capsys, count, title):
    _print_trials([TrialFacts(PLAIN, Agreement(10.0, 0.5, 8))] * count)
    first, *rows = capsys.readouterr().out.splitlines()
    assert first == title and sum("50.0%" in row for row in rows) == min(count, 6)
