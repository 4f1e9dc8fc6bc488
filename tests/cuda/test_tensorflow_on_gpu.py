"""TensorFlow's ops on a GPU: the bits of the CPU, and a whole training step."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

tf = pytest.importorskip("tensorflow")


@pytest.fixture(autouse=True)
def on_a_gpu() -> Iterator[None]:
    """Places ops on the first GPU; without one, or without the ops for it, tests are skipped."""
    from qgraph.train.gpu import gpu_ops

    if not tf.config.list_physical_devices("GPU"):
        pytest.skip("TensorFlow sees no GPU")
    if gpu_ops().ops is None:
        pytest.skip(gpu_ops().why)
    with tf.device("/GPU:0"):
        yield


def test_ops_give_the_bits_of_the_cpu() -> None:
    from tests.helpers.gpu_ops_on_cpu import check_ops

    check_ops()


def test_a_training_step() -> None:
    from qgraph.retrain import make_deterministic
    from tests.helpers.gpu_ops_on_cpu import check_training

    make_deterministic()
    check_training()
