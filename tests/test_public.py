"""The public names: listed, documented, and short where they are printed."""

import ast
import doctest
import inspect
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import qgraph
from qgraph.ir.graph import Graph
from tests.helpers.cli import run, small_network, typical_images
from tests.helpers.docstrings import (
    class_faults,
    digits_files,
    failed_examples,
    function_faults,
    public_names,
    sections,
    value_of,
)

FUNCTIONS = [n for n in qgraph.__all__ if inspect.isfunction(getattr(qgraph, n))]
CLASSES = [n for n in qgraph.__all__ if inspect.isclass(getattr(qgraph, n))]
DOCUMENTED = public_names(qgraph)
METHODS = [name for name in DOCUMENTED if "." in name]


ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """`net.pb`, `samples.npz` with labels, and `out`, which was made of both."""
    folder = tmp_path_factory.mktemp("public")
    (folder / "net.pb").write_bytes(small_network().SerializeToString())
    images = typical_images()
    np.savez(folder / "samples.npz", image=images, labels=np.arange(len(images)) % 4)
    given = (folder / "net.pb", "-c", folder / "samples.npz", "--effort", "plain")
    assert run("quantize", *given, "-o", folder / "out").code == 0
    return folder


def test_every_public_name_is_there_before_it_is_imported() -> None:
    code = (
        "import sys, qgraph\n"
        "print(dir(qgraph) == sorted(qgraph.__all__))\n"
        "assert all(getattr(qgraph, name) for name in qgraph.__all__)\n"
        "print('tensorflow' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout.split(), done.stderr) == (["True", "False"], "")


def test_they_are_functions_and_classes() -> None:
    assert {*FUNCTIONS, *CLASSES, "__version__"} == {*qgraph.__all__}
    assert {"quantize", "load", "report", "verify", "export", "evaluate"} < {*FUNCTIONS}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_documented(name) -> None:
    function = getattr(qgraph, name)
    assert not function_faults(function)
    assert "Raises" in sections(inspect.getdoc(function))


@pytest.mark.parametrize("name", CLASSES)
def test_classes_are_documented(name) -> None:
    assert not class_faults(getattr(qgraph, name))


@pytest.mark.parametrize("name", METHODS)
def test_methods_are_documented(name) -> None:
    assert not function_faults(value_of(qgraph, name))


@pytest.mark.parametrize("name", DOCUMENTED)
def test_examples_parse_and_use_names_that_exist(name) -> None:
    text = inspect.getdoc(value_of(qgraph, name))
    for example in doctest.DocTestParser().get_examples(text):
        for node in ast.walk(ast.parse(example.source)):
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "qgraph":
                assert node.attr in qgraph.__all__
            if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("qgraph."):
                called = qgraph
                for part in ast.unparse(node.func).split(".")[1:]:
                    called = getattr(called, part, None)
                if called is not None:
                    given = {k.arg: None for k in node.keywords}
                    inspect.signature(called).bind(*node.args, **given)


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """A directory with the files of the digits network, in which examples run, and `out`."""
    folder = digits_files(tmp_path_factory)
    result = qgraph.quantize(folder / "model.pb", folder / "calib.npz", effort="plain")
    result.save(folder / "out")
    return folder


SEARCHES = [
    pytest.param(name, marks=pytest.mark.slow, id=name or "module") for name in ("", "quantize")
]


@pytest.mark.parametrize("name", [*(n for n in DOCUMENTED if n != "quantize"), *SEARCHES])
def test_examples_print_what_they_show(name, digits, tmp_path, monkeypatch) -> None:
    for path in digits.iterdir():
        if name not in ("", "quantize") or path.name != "out":
            (tmp_path / path.name).symlink_to(path)
    monkeypatch.chdir(tmp_path)
    value = value_of(qgraph, name)
    assert not failed_examples(value, {"qgraph": qgraph})


def test_the_verbs_do_what_the_command_line_does(folder, tmp_path) -> None:
    out = folder / "out"
    found = qgraph.verify(out, forms=["engine"])
    assert found.equal and repr(found) == "Verified(net: equal; engine compared)"
    assert "net_test.c" in {file.name for file in _exported(out, tmp_path / "c")}
    assert qgraph.evaluate(out, folder / "samples.npz").samples == 16
    outputs = qgraph.Session.open(out).run({"image": typical_images()})
    assert outputs["classes"].shape == (16, 4)


def _exported(out, path):
    sizes = qgraph.export(out, "c", path)
    assert sum(sizes.values()) > 0
    return [*path.rglob("*")]


def test_printing_a_graph_shows_its_text(folder) -> None:
    graph = qgraph.load(folder / "net.pb")
    assert str(graph).startswith('graph "net" {\n  %image = input {type=float32[?,8,8,3]}')
    assert repr(graph) == (
        f"Graph(net: {len(graph.nodes)} nodes, image float32[?,8,8,3] -> classes float32[?,4])"
    )
    assert repr(Graph("empty")) == "Graph(empty: 0 nodes,  -> )"


def test_values_print_on_one_line_and_as_tables_in_notebooks(folder) -> None:
    images, out = typical_images(), folder / "out"
    values = [
        qgraph.load(folder / "net.pb"),
        qgraph.quantize(folder / "net.pb", images, effort="plain"),
        qgraph.quantize(folder / "net.pb", input_ranges={"": (0.0, 1.0)}),
        qgraph.optimize(folder / "net.pb"),
        qgraph.Session.open(out),
        qgraph.evaluate(out, folder / "samples.npz"),
        qgraph.verify(out, forms=["engine"]),
    ]
    for value in values:
        assert len(repr(value)) < 150 and "\n" not in repr(value)
    assert "graffitist-int8, 3 layers, " in repr(values[1]) and "dB at the" in repr(values[1])
    assert repr(values[2]) == "Quantized(net, graffitist-int8, 3 layers)"
    for value in values:
        html = value._repr_html_()
        assert html.count("<table>") == html.count("</table>") and "net" in html
    assert "&lt;" not in repr(values[1]) and "<td>first</td>" in values[1]._repr_html_()
    assert re.search(r"<td>top-1</td><td>[0-9.]+%</td>", values[5]._repr_html_())
