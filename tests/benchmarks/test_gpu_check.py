"""The check of GPUs, as far as a machine without one shows it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import cuda_quantizer, gpu_check
from benchmarks.tables import Table
from benchmarks.training_step import FLOAT_FROZEN, ON_GPUS, Case
from qgraph.train import cuda, gpu
from tests.benchmarks.test_training_step import network
from tests.helpers.cuda_on_cpu import CpuAsGpu, compiled

ROOT = Path(__file__).parents[2]
needs_compiler = pytest.mark.skipif(
    not any(map(shutil.which, gpu.COMPILERS)), reason="no C++ compiler"
)


@pytest.mark.skipif(cuda.cuda_kernels().status()[0] == "ready", reason="there is a GPU")
def test_without_a_gpu_it_ends_with_the_reason() -> None:
    command = [sys.executable, "-m", "benchmarks.gpu_check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    use, why = cuda.cuda_kernels().status()
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == f"nothing was checked, {use}: {why}\n"


@pytest.fixture
def stand_in(tmp_path, monkeypatch) -> CpuAsGpu:
    """A CPU that runs the kernels, in place of the benchmarks' GPU."""
    made, kernels = CpuAsGpu(), cuda.load(compiled(tmp_path))
    for module in (cuda_quantizer, gpu_check):
        monkeypatch.setattr(module, "gpu", lambda: made)
    monkeypatch.setattr(cuda, "cuda_kernels", lambda: kernels)
    monkeypatch.setattr(cuda_quantizer, "CACHES", 1 << 14)
    monkeypatch.setattr(cuda_quantizer, "ROUNDS", 1)
    monkeypatch.setattr(gpu_check, "SIZES", (1024, 2048))
    monkeypatch.setattr(gpu_check, "AIMED_FROM", 2048)
    return made


@needs_compiler
def test_bandwidth_of_every_kernel(stand_in: CpuAsGpu) -> None:
    table, fault = gpu_check.bandwidth()
    kinds = {(row["kernel"], row["type"], row["channels"]) for row in table.rows}
    assert not fault
    assert len(table.rows) == 2 * len(kinds) == 2 * 2 * (len(cuda.TYPES) + 2)
    assert all(min(row["forward"], row["backward"], row["copy, GB/s"]) > 0 for row in table.rows)
    assert "of 10 rows of 2,048 elements and more reach 92%" in table.notes[0]
    assert stand_in.blocks == 0  # everything is freed


def test_counts_and_reasons_of_tests() -> None:
    table = Table("", {"tests": "", "passed": "d", "failed": "d", "skipped": "d"})
    text = """<testsuites><testsuite>
      <testcase classname="tests.cuda.test_a" name="1"/>
      <testcase classname="tests.cuda.test_a" name="2"><failure message="differs"/></testcase>
      <testcase classname="tests.cuda.test_b" name="3"><skipped message="no GPU"/></testcase>
    </testsuite></testsuites>"""
    gpu_check.add_counts(table, ET.fromstring(text))
    assert table.rows == [
        {"tests": "test_a", "passed": 1, "failed": 1, "skipped": 0},
        {"tests": "test_b", "passed": 0, "failed": 0, "skipped": 1},
    ]
    assert table.notes == ["skipped: no GPU"]


def test_the_last_table_is_what_ran() -> None:
    table, faults = Table("numbers", {}), list[str]()
    runs = gpu_check.Part("good", lambda: None, lambda: (table, ""))
    parts = (
        runs,
        replace(runs, name="bad", run=lambda: (table, "a bit differs")),
        replace(runs, name="absent", missing=lambda: "JAX is not installed"),
    )
    *numbers, summary = gpu_check.checked(parts, "a GPU", faults)
    assert numbers == [table, table]
    assert [tuple(row.values()) for row in summary.rows] == [
        ("good", "ran"),
        ("bad", "failed"),
        ("absent", "not run: JAX is not installed"),
    ]
    assert faults == ["bad: a bit differs"]


@pytest.mark.slow
def test_steps_with_and_without_xla() -> None:
    found = gpu_check.step_table({"small": Case(network, (8, 8, 3), batch=16)}, rounds=1)
    assert [row["step"] for row in found.rows] == list(ON_GPUS)
    assert found.row(step=FLOAT_FROZEN)["of float"] == 1
