"""Names for custom passes, the engine, profiles and kernels: documented, with examples that run."""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path

import pytest

import qgraph
from qgraph import errors, kernels, pass_text, passes, pipelines, runtime, stored
from qgraph.ir import graph, graph_queries
from qgraph.quant import assign_exponents, exponents, plan, profile
from qgraph.rewrite import rewriter
from tests.helpers.cli import small_network, typical_images
from tests.helpers.docstrings import (
    class_faults,
    failed_examples,
    function_faults,
    has_example,
    methods,
    public_names,
    value_of,
)

ROOT = Path(__file__).parents[1]
CLASSES = [
    (passes, "Pass"),
    (passes, "RewritePass"),
    (passes, "PassResult"),
    (graph, "Graph"),
    (graph, "Node"),
    (runtime, "Engine"),
    (runtime, "levels"),
]
MODULES = (
    errors,
    assign_exponents,
    exponents,
    kernels,
    pass_text,
    passes,
    pipelines,
    plan,
    profile,
    stored,
)
NAMES = [
    *CLASSES,
    *((m, f"{n}.{f}") for m, n in CLASSES if n != "levels" for f in methods(value_of(m, n))),
    *((graph, f"Graph.{name}") for name in methods(graph_queries.GraphQueries)),
    *((module, name) for module in (rewriter, *MODULES) for name in public_names(module)),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """`model.pb`, and `out`, which was made of it."""
    folder = tmp_path_factory.mktemp("passes")
    (folder / "model.pb").write_bytes(small_network().SerializeToString())
    result = qgraph.quantize(folder / "model.pb", typical_images(), effort="plain")
    result.save(folder / "out")
    return folder


@pytest.mark.parametrize(("module", "name"), NAMES)
def test_a_name_is_documented(module, name) -> None:
    value = value_of(module, name)
    assert not (class_faults(value) if inspect.isclass(value) else function_faults(value))


@pytest.mark.parametrize(
    ("module", "name"), [each for each in NAMES if has_example(value_of(*each))]
)
def test_an_example_prints_what_it_shows(module, name, folder, tmp_path, monkeypatch) -> None:
    for path in folder.iterdir():
        (tmp_path / path.name).symlink_to(path)
    monkeypatch.chdir(tmp_path)
    value = value_of(module, name)
    names = vars(sys.modules[value.__module__]) if module in MODULES else {}
    assert not failed_examples(value, {**names, "qgraph": qgraph})


def test_every_class_is_on_the_site() -> None:
    pages = "python.md", "python_passes.md"
    text = "\n".join((ROOT / "docs/reference" / page).read_text("utf-8") for page in pages)
    listed = {name.rpartition(".")[2] for name in re.findall(r"^::: (\S+)", text, re.MULTILINE)}
    assert {name for _, name in CLASSES} <= listed
    assert "rewriter" in listed
