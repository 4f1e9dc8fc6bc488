"""The public names of `qgraph.rl`: all are documented, with examples that run."""

from __future__ import annotations

import importlib
import inspect
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from _pytest.mark.structures import ParameterSet
from onnx import helper, numpy_helper

import qgraph
from qgraph.rl.actor import ActorProgram, ActorStep
from qgraph.rl.correct import Trajectories
from qgraph.rl.head import Head
from qgraph.rl.policy import pack, read_policy
from tests.helpers.docstrings import (
    class_faults,
    failed_examples,
    function_faults,
    has_example,
    public_names,
    value_of,
)
from tests.helpers.sources import needs_sources

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/reference/python_rl.md").read_text("utf-8")
# Packages of `qgraph.rl` for other libraries, with what they need.
OPTIONAL = {
    "pytorch": "torch",
    "rllib": "ray.rllib",
    "sb3": "stable_baselines3",
    "torchrl": "torchrl",
}
MODULES = re.findall(r"^::: (\S+)", PAGE, re.MULTILINE)


def _names() -> Iterator[ParameterSet]:
    """Each public name of each module on the page of the site."""
    for module in MODULES:
        if module.rpartition(".")[2] in OPTIONAL:
            continue
        for name in public_names(importlib.import_module(module)):
            yield pytest.param(module, name, id=f"{module}.{name}")


NAMES = [*_names()]


@needs_sources
def test_every_package_with_public_names_is_on_the_site() -> None:
    packages = {
        f"qgraph.rl.{path.parent.name}"
        for path in (ROOT / "qgraph/rl").glob("*/__init__.py")
        if re.search(r"^__all__", path.read_text("utf-8"), re.MULTILINE)
    }
    assert packages == {*MODULES} - {"qgraph.rl.head"}


@pytest.mark.parametrize(("module", "name"), NAMES)
def test_a_name_is_documented(module, name) -> None:
    _check(importlib.import_module(module), name)


@pytest.mark.parametrize("package", OPTIONAL)
def test_the_names_for_another_library_are_documented(package) -> None:
    pytest.importorskip(OPTIONAL[package], reason="an optional package", exc_type=ImportError)
    module = importlib.import_module(f"qgraph.rl.{package}")
    for name in public_names(module):
        _check(module, name)


def _check(module, name) -> None:
    value = value_of(module, name)
    assert not (class_faults(value) if inspect.isclass(value) else function_faults(value))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A directory with `policy.onnx`, a policy of two layers, and what is made of it.

    `policy.qpol` is dynamic, `static.qpol` static, and `out` is an output directory.
    """
    folder = tmp_path_factory.mktemp("policy")
    random = np.random.default_rng(0)
    arrays = {"w0": (4, 8), "b0": (8,), "w1": (8, 2), "b1": (2,)}
    graph = helper.make_graph(
        [
            helper.make_node("Gemm", ["observation", "w0", "b0"], ["sum"], "hidden"),
            helper.make_node("Relu", ["sum"], ["units"], "relu"),
            helper.make_node("Gemm", ["units", "w1", "b1"], ["logits"], "last"),
        ],
        "policy",
        [helper.make_tensor_value_info("observation", 1, ["n", 4])],
        [helper.make_tensor_value_info("logits", 1, ["n", 2])],
        [
            numpy_helper.from_array(random.normal(size=shape).astype(np.float32), name)
            for name, shape in arrays.items()
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    (folder / "policy.onnx").write_bytes(model.SerializeToString())
    network, seen = read_policy(folder / "policy.onnx"), random.normal(size=(64, 4)).astype("f")
    pack(network, Head("argmax")).write(folder / "policy.qpol")
    pack(network, Head("argmax"), 8, "static", seen).write(folder / "static.qpol")
    qgraph.quantize(folder / "policy.onnx", seen, effort="plain").save(folder / "out")
    return folder


def _values() -> dict[str, object]:
    """The values that examples share, as the docstrings state."""
    layer = ActorStep("dense", ("observation",), "logits", ("kernel", "bias"))
    program = ActorProgram((4,), (layer,), ("logits",), {"kernel": (4, 2), "bias": (2,)})
    weights = {"kernel": np.ones((4, 2), np.float32), "bias": np.zeros(2, np.float32)}
    one = np.ones((2, 1))
    steps = Trajectories(-one, -one, one, 0.5 * one, one, 0 * one, 0 * one)
    return {"program": program, "weights": weights, "steps": steps}


@pytest.mark.parametrize(
    ("module", "name"),
    [
        each
        for each in NAMES
        if has_example(value_of(importlib.import_module(each.values[0]), each.values[1]))
    ],
)
def test_an_example_prints_what_it_shows(module, name, folder, tmp_path, monkeypatch) -> None:
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    if name in ("make", "roll_out"):
        pytest.importorskip("gymnasium", reason="needs the extra `rl`")
    assert not failed_examples(value_of(importlib.import_module(module), name), _values())
