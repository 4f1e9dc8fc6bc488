"""The GPU that tests of CUDA kernels run on."""

from __future__ import annotations

import pytest

from benchmarks.gpu import Gpu, gpu
from qgraph.train import cuda


@pytest.fixture
def device() -> Gpu:
    """The GPU. Skips the test without a GPU or without its kernels."""
    use, why = cuda.cuda_kernels().status()
    if use != "ready":
        pytest.skip(f"{use}: {why}")
    return gpu()
