"""Two Ray nodes on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest


@contextmanager
def two_nodes() -> Iterator[Any]:
    pytest.importorskip("ray", reason="pip install 'qgraph-compiler[ray]'")
    from ray.cluster_utils import Cluster

    options = {"num_cpus": 1, "object_store_memory": 100 << 20, "include_dashboard": False}
    found = Cluster(initialize_head=True, head_node_args=options)
    found.add_node(num_cpus=1, object_store_memory=100 << 20)
    try:
        yield found
    finally:
        found.shutdown()
