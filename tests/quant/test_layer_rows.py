"""Rows of a layer are what its product sees, and second moments give the errors that rows give."""

import numpy as np
import pytest

from qgraph.interpret import evaluate
from qgraph.ir.types import Array
from qgraph.quant.paired import PairedLayer
from qgraph.quant.reconstruction.layer_rows import HELD_OUT, LayerRows, as_products
from qgraph.quant.reconstruction.output_moments import OutputMoments, RowErrors, second_moments
from tests.quant.test_reconstruct import LAYERS, samples


def paired(name: str, counts: tuple[int, ...]) -> tuple[PairedLayer, Array]:
    """A layer that sees in both graphs the same, in chunks of so many images; its weights."""
    graph = LAYERS[name]
    data = samples(graph, sum(counts))
    cuts = np.cumsum(counts)[:-1]
    y = evaluate(graph, data, ["layer"])["layer"]
    chunks = np.split(data["x"], cuts), np.split(y, cuts)
    return PairedLayer(graph.nodes["layer"], *chunks), graph.constant("w")


@pytest.mark.parametrize("count", [7, 50, 10_000])
@pytest.mark.parametrize("name", LAYERS)
def test_rows_times_weights_are_the_output(name: str, count: int) -> None:
    """Padding, strides, groups and their order: nothing is left where inputs are the float ones."""
    layer, w = paired(name, (5, 5, 2))
    rows = LayerRows.of(layer, w, count, map)
    y = rows.x @ as_products(layer, w)
    assert np.abs(rows.rest).max() < 1e-5 * np.abs(y).max()
    checked = float(np.square(y[:, rows.checked], dtype=np.float64).sum())
    assert rows.power == pytest.approx(checked, rel=1e-5)


@pytest.mark.parametrize("name", ["conv", "matmul"])
def test_whole_images_are_held_out(name: str) -> None:
    layer, w = paired(name, (5, 5, 2))
    rows = LayerRows.of(layer, w, 10_000, map)
    positions = rows.x.shape[1] // 12
    assert rows.used == slice(0, 9 * positions)
    assert rows.checked == slice(9 * positions, 12 * positions)
    held = np.concatenate(layer.wanted)[HELD_OUT - 1 :: HELD_OUT]
    found = (rows.x[:, rows.checked] @ as_products(layer, w))[0]
    # A product of rows sums in another order than a convolution.
    np.testing.assert_allclose(found, held.reshape(found.shape), 1e-4, 1e-4)


def test_one_row_is_used_and_judged() -> None:
    layer, w = paired("matmul", (1,))
    rows = LayerRows.of(layer, w, 100, map)
    assert rows.used == rows.checked == slice(0, 1)


@pytest.mark.parametrize(("groups", "k", "n"), [(1, 600, 530), (70, 9, 1), (3, 20, 4)])
def test_moments_give_the_errors_of_rows(groups: int, k: int, n: int) -> None:
    rng = np.random.default_rng(k)
    x = (rng.normal(size=(groups, 900, k)) + 1).astype(np.float32)
    rest = rng.normal(size=(groups, 900, n)).astype(np.float32)
    off = rng.uniform(-0.1, 0.1, (groups, k, n))
    exact = np.square(x.astype(np.float64) @ off - rest).sum(axis=1)
    for errors in (OutputMoments.of(x, rest, map), RowErrors(x, rest)):
        np.testing.assert_allclose(errors.errors(off, map), exact, 1e-4)  # of float32 rows


def test_moments_of_codes_are_exact() -> None:
    codes = np.random.default_rng(0).integers(-128, 128, (2, 3000, 700))
    x = codes.astype(np.float32)
    found = second_moments(x / np.float32(64), map)
    assert (found * 64**2 == np.swapaxes(codes, 1, 2) @ codes).all()
    assert (found == np.swapaxes(found, 1, 2)).all()
