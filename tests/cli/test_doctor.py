"""`qgraph doctor` shows which fast code is in use, and why not where it is not."""

import json

from qgraph import kernels
from qgraph.train import cuda, fused, quantizer
from tests.helpers.cli import run


def test_for_machines() -> None:
    done = run("doctor", "--json")
    found = json.loads(done.out)
    assert done.code == 0
    assert found["kernels"]["use"] == kernels.backend().partition(":")[0]
    assert found["instruction set"]["use"] == kernels.instruction_set()
    assert found["engine level"]["use"] in (*kernels.NATIVE_LEVELS, "none")
    assert found["training quantizer"]["use"] in ("fused", "native")
    assert found["cuda kernels"]["use"] == cuda.cuda_kernels().status()[0]
    assert all(facts["use"] for facts in found.values())


def test_for_people() -> None:
    done = run("doctor")
    lines = [line.split() for line in done.out.splitlines()]
    assert done.code == 0
    assert ["part", "in", "use", "where,", "or", "why"] in lines
    assert any(line[:2] == ["training", "quantizer"] for line in lines)


def test_why_there_are_no_fused_ops(monkeypatch) -> None:
    monkeypatch.setattr(quantizer, "fused_ops", lambda: fused.load(None))
    done = run("doctor")
    assert "_tf_ops.so is not installed" in done.out
    assert "slower than it could be: training quantizer" in done.out


def test_why_a_library_does_not_load(monkeypatch, tmp_path) -> None:
    broken = tmp_path / "_tf_ops.so"
    broken.write_bytes(b"not a library")
    monkeypatch.setattr(quantizer, "fused_ops", lambda: fused.load(broken))
    found = json.loads(run("doctor", "--json").out)["training quantizer"]
    assert found["use"] == "native"
    assert "cannot load" in found["why"]


def test_why_there_are_no_cuda_kernels(monkeypatch) -> None:
    monkeypatch.setattr(cuda, "cuda_kernels", lambda: cuda.load(None))
    found = json.loads(run("doctor", "--json").out)["cuda kernels"]
    assert found["use"] == "not built"
    assert "without nvcc" in found["why"]
