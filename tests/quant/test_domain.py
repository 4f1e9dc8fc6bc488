"""Samples that are not like the training data are recognized by the statistics of batch norms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from qgraph.passes import PassManager
from qgraph.quant.domain import Domain, Drift, domain_of, drifts
from qgraph.recipes import CLEAN
from tests.helpers.trained import images, trained, without_norms

REAL = images(32, seed=8)
RNG = np.random.default_rng(0)


def seen(x: np.ndarray, **options: Any) -> Domain:
    graph = trained(**options)
    PassManager(CLEAN).run(graph)
    found = domain_of(graph, {"image": x.astype(np.float32)})
    assert found is not None
    return found


@pytest.mark.parametrize("behind_relu", [False, True])
def test_unseen_samples_of_the_same_kind_are_fine(behind_relu: bool) -> None:
    found = seen(REAL, behind_relu=behind_relu)
    assert not found.warning and not found.cause and found.samples == 32
    assert [drift.batch_norm for drift in found.drifts] == ["bn0", "bn1", "bn2"]


@pytest.mark.parametrize(
    ("x", "cause"),
    [
        (REAL / 255, "multiplied by 255"),
        (REAL * 255, "divided by 255"),
        (REAL / 127.5 - 1, "as (x + 1) * 127.5"),
        (REAL[..., ::-1] * 2 - 255, ""),
        (RNG.uniform(0, 255, REAL.shape), ""),
        (REAL + 12, ""),  # just foreign: nothing halves it
        (REAL * 0.3, ""),
    ],
)
def test_foreign_samples(x: np.ndarray, cause: str) -> None:
    found = seen(x)
    assert found.warning.startswith("the samples look unlike the training data: at ")
    assert found.cause == cause and (f"; they would fit {cause}" in found.warning) == bool(cause)


def test_channels_in_reverse_order_where_they_differ_much() -> None:
    apart = np.float32([100, 0, -90])
    data = images() + apart
    found = seen((REAL + apart)[..., ::-1], data=data)
    assert "they would fit with channels in reverse order" in found.warning


def test_by_hand() -> None:
    """A mean 2 deviations off and a deviation of a quarter of that of training."""
    graph = trained(data=images())
    PassManager(CLEAN).run(graph)
    first, *_ = drifts(graph, {"image": REAL})
    mean, variance = graph.constant("mean0"), graph.constant("variance0")
    assert mean is not None and variance is not None
    graph.set_attrs("mean0", value=mean + 2 * np.sqrt(variance))
    graph.set_attrs("variance0", value=16 * variance)
    moved, *_ = drifts(graph, {"image": REAL})
    assert moved.mean == pytest.approx(2 / 4, abs=1.001 * first.mean)
    assert moved.deviation == pytest.approx(2, abs=1.001 * first.deviation)


def test_dead_channels_do_not_count() -> None:
    graph = trained()
    PassManager(CLEAN).run(graph)
    variance = graph.constant("variance0")
    assert variance is not None
    few = variance.copy()
    few[1:] = 0
    graph.set_attrs("variance0", value=few)
    first, *_ = drifts(graph, {"image": REAL})
    assert first.mean < 0.2 and first.deviation < 0.3


def test_one_sample_is_given_more_room() -> None:
    off = (Drift("bn", 0.2, 0.1),)
    assert Domain(8, off).warning and not Domain(7, off).warning
    assert Domain(1, (Drift("bn", 0.1, 0.7),)).warning


def test_without_batch_norms_samples_cannot_be_checked() -> None:
    assert domain_of(without_norms(), {"x": np.ones((4, 3), np.float32)}) is None
