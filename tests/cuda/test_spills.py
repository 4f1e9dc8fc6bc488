"""The compiler's report on the CUDA kernels: no registers are spilled. Needs nvcc."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ENTRY = re.compile(r"Compiling entry function '(\w+)' for '(\w+)'")
SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")


def report(source: Path, arch: str, target: Path) -> str:
    """The report of ptxas on each kernel of a file."""
    command = ["nvcc", "-std=c++17", "-O3", "-fmad=false", "-Xptxas", "-v", "-cubin"]
    command += [f"-arch={arch}", "-I", str(ROOT / "fused_ops"), "-o", str(target), str(source)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stderr


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize(("name", "kernels"), [("quantize", 49), ("epilogue", 37)])
def test_no_kernel_spills(name, kernels, arch, tmp_path) -> None:
    found = report(ROOT / "fused_ops" / "cuda" / f"{name}.cu", arch, tmp_path / "kernels.cubin")
    spills = SPILLS.findall(found)
    assert len(ENTRY.findall(found)) == len(spills) == kernels
    assert set(spills) == {("0", "0")}
