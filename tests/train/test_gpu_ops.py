"""The fused ops on GPUs, as far as a machine without one shows it.

They are compiled, registered and placed; and their code runs on the CPU with cuda_on_cpu.cpp of
fused_ops/tests/emulated instead of `_cuda.so`, in a separate process.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf

from qgraph.errors import UsageError
from qgraph.train import cuda, fused, gpu
from qgraph.train.quantizer import form_in_use
from tests.helpers.cuda_on_cpu import compiled

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(
    fused.library_path() is None or cuda.cuda_kernels().library is None,
    reason="the fused ops or the CUDA kernels are not built",
)
needs_compiler = pytest.mark.skipif(
    not any(map(shutil.which, gpu.COMPILERS)), reason="no C++ compiler"
)
PLACED = """
import tensorflow as tf
from tensorflow.python.framework import kernels
from qgraph.train.quantizer import form_in_use, quantize

with tf.device("/GPU:0"):
    assert form_in_use()[0] == "fused", form_in_use()
for op in ("QgraphQuantize", "QgraphQuantizeGrad", "QgraphEpilogue", "QgraphEpilogueGrad"):
    found = [k.device_type for k in kernels.get_registered_kernels_for_op(op).kernel]
    assert found.count("GPU") == found.count("CPU") > 0, found

@tf.function
def run(x):
    with tf.device("/GPU:0"):
        return quantize(x, 0.0, 4, True)

graph = run.get_concrete_function(tf.TensorSpec([4], tf.float32)).graph
(op,) = [op for op in graph.get_operations() if op.type == "QgraphQuantize"]
assert op.device == "/device:GPU:0", op.device
if not tf.config.list_physical_devices("GPU"):
    assert run(tf.ones(4)).shape == (4,)  # soft placement: the op has a kernel for CPUs too
    tf.config.set_soft_device_placement(False)
    again = tf.function(run.python_function)
    try:
        again(tf.ones(4))
    except (tf.errors.InvalidArgumentError, ValueError) as error:
        assert "GPU" in str(error), error
    else:
        raise AssertionError("placed on a missing GPU")
print("ok")
"""


def process(*arguments: object, **variables: str) -> str:
    """The output of a Python process that ends well."""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": str(ROOT), **variables}
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=ROOT, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@needs_compiler
def test_the_code_for_gpus_runs_on_the_cpu(tmp_path) -> None:
    assert process("-m", "tests.helpers.gpu_ops_on_cpu", compiled(tmp_path)) == "ok\n"


@pytest.mark.slow
@needs_compiler
@pytest.mark.skipif(not tf.test.is_built_with_cuda(), reason="TensorFlow is built without CUDA")
def test_built_registered_and_placed(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("QGRAPH_CACHE", str(tmp_path))
    path = gpu.build()
    assert path.parent == tmp_path
    assert process("-c", PLACED, QGRAPH_CACHE=str(tmp_path)) == "ok\n"


def test_not_built(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("QGRAPH_CACHE", str(tmp_path))
    gpu.gpu_ops.cache_clear()
    with tf.device("/GPU:0"):
        form, why = form_in_use()
    gpu.gpu_ops.cache_clear()
    assert form == "native"
    assert "qgraph doctor --build-cuda" in why


def test_a_library_that_does_not_load(tmp_path) -> None:
    broken = tmp_path / "stream.so"
    broken.write_bytes(b"not a library")
    found = gpu.register(broken, cuda.cuda_kernels(), "GPU", 0)
    assert found.ops is None
    assert "cannot load" in found.why


def test_each_tensorflow_has_its_library(monkeypatch) -> None:
    before = gpu.stream_library()
    monkeypatch.setattr(tf.sysconfig, "get_compile_flags", lambda: ["-D_GLIBCXX_USE_CXX11_ABI=0"])
    assert gpu.stream_library() != before
    monkeypatch.setattr(tf, "__version__", "2.15.1")
    assert "2.15.1" in gpu.stream_library().name


def test_without_a_compiler(monkeypatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(UsageError, match="no C\\+\\+ compiler"):
        gpu.compiler()


def test_without_cuda(monkeypatch) -> None:
    monkeypatch.setattr(tf.test, "is_built_with_cuda", lambda: False)
    with pytest.raises(UsageError, match="built without CUDA"):
        gpu.build()
