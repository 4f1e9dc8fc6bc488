"""The GPU that tests of CUDA kernels run on."""

from __future__ import annotations

import pytest

from benchmarks.gpu import Gpu, gpu
from qgraph.train import cuda


@pytest.fixture
def device() -> Gpu:
    """The GPU; without one, or without its kernels, the test is skipped."""
    use, why = cuda.cuda_kernels().status()
    if use != "ready":
        pytest.skip(f"{use}: {why}")
    return gpu()
