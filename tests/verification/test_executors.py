"""Programs that run exported files are named with their versions, in the table and as JSON."""

from __future__ import annotations

import json
import re
from importlib.metadata import version
from pathlib import Path

import onnx
import pytest

from qgraph import quantize
from qgraph.backends.c.c_form import compiler_title, titled_compiler
from qgraph.backends.tosa.tosa_tools import reference_model_title
from tests.helpers.cli import run
from tests.helpers.forms import needs_tool
from tests.helpers.read_back import IMAGES, network_model

LAYERS = [
    onnx.helper.make_node("Conv", ["x", "w", "b"], ["a"], pads=[1, 1, 1, 1]),
    onnx.helper.make_node("Relu", ["a"], ["y"]),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    place: Path = tmp_path_factory.mktemp("made")
    onnx.save(network_model(LAYERS), place / "net.onnx")
    for profile in ("tosa", "int32-bias"):
        quantize(place / "net.onnx", IMAGES[:3], plan="plain", profile=profile).save(
            place / profile
        )
    return place


TITLES = {
    "onnx-qdq": lambda: f"ONNX Runtime {version('onnxruntime')}",
    "tensorflow": lambda: f"TensorFlow {version('tensorflow')}",
    "qonnx": lambda: f"qonnx {version('qonnx')}",
    "c": compiler_title,
    "tosa": reference_model_title,
    "engine": lambda: None,
    "vectors": lambda: None,
}


@pytest.mark.parametrize("form", [pytest.param(name, marks=needs_tool(name)) for name in TITLES])
def test_the_executor_of_a_form_is_listed(folder, form) -> None:
    out = folder / ("tosa" if form == "tosa" else "int32-bias")
    found = run("verify", out, "--format", form)
    (row,) = (line for line in found.out.splitlines() if line.startswith(form))
    named = TITLES[form]()
    assert row.endswith(f" {named}: equal" if named else " equal") and len(row) <= 96
    certificate = json.loads((out / "certificate.json").read_text("utf-8"))
    assert certificate["forms"][form].get("executor") == named


def test_the_compiler_says_its_version() -> None:
    assert re.fullmatch(r"(gcc|clang) \d+(\.\d+)+", compiler_title())


@needs_tool("tosa")
def test_the_reference_model_says_its_version() -> None:
    assert re.fullmatch(r"TOSA reference model \d+\.\d+\S*", reference_model_title())


@pytest.mark.parametrize(
    ("said", "title"),
    [
        ("cc (Debian 12.2.0-14+deb12u1) 12.2.0\nCopyright (C) 2022", "gcc 12.2.0"),
        ("gcc (GCC) 14.1.1 20240522 (Red Hat 14.1.1-4)", "gcc 14.1.1"),
        ("Debian clang version 14.0.6\nTarget: x86_64-pc-linux-gnu", "clang 14.0.6"),
        ("Apple clang version 15.0.0 (clang-1500.3.9.4)\n", "clang 15.0.0"),
        ("", "C compiler"),
    ],
)
def test_compilers_are_named_by_what_they_say(said: str, title: str) -> None:
    assert titled_compiler(said) == title
