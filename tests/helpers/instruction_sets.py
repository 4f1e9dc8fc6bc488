"""A pytest plugin: fixtures for each instruction set and several numbers of threads."""

from collections.abc import Iterator

import pytest

from qgraph import kernels


@pytest.fixture(params=kernels.INSTRUCTION_SETS, scope="module")
def instruction_set(request) -> Iterator[str]:
    before = kernels.instruction_set()
    if not kernels.use_instruction_set(request.param):
        pytest.skip(f"no {request.param} here")
    yield request.param
    kernels.use_instruction_set(before)


@pytest.fixture(params=[1, 2, 3, 8])
def threads(request) -> Iterator[int]:
    kernels.set_threads(request.param)
    yield request.param
    kernels.set_threads(2)
