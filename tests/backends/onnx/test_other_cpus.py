"""ONNX Runtime's kernels for CPUs without VNNI give the same codes, under an emulator of one."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EMULATOR = shutil.which("qemu-x86_64")
CASES = (
    "extreme_codes or layers_of_extreme or integer_kernels or comparisons or tie or random_programs"
)


@pytest.mark.slow
@pytest.mark.skipif(EMULATOR is None, reason="qemu-x86_64 (package qemu-user) is not here")
@pytest.mark.parametrize(
    "file", ["test_onnx_integer.py", "test_onnx_qdq.py", "test_onnx_qoperator.py"]
)
def test_without_vnni(file: str) -> None:
    command = [EMULATOR, "-cpu", "Haswell", sys.executable, "-m", "pytest", "-q", "-x"]
    ran = subprocess.run(
        [*command, "-p", "no:cacheprovider", str(Path(__file__).with_name(file)), "-k", CASES],
        cwd=Path(__file__).parents[3],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0 and " passed" in ran.stdout, ran.stdout[-2000:]
