"""The advice on shapes makes the array fit."""

import numpy as np
import pytest

from qgraph.quant.samples.mistakes import shape_advice

CASES = [
    ((5, 3, 8, 9), (None, 8, 9, 3), "numpy.moveaxis(array, 1, -1)"),
    ((5, 8, 9, 3), (None, 3, 8, 9), "numpy.moveaxis(array, -1, 1)"),
    ((5, 2, 7), (None, 7, 2), "numpy.moveaxis(array, 1, -1)"),
    ((5, 1, 4, 6, 8), (None, 4, 6, 8, 1), "numpy.moveaxis(array, 1, -1)"),
    ((8, 9, 3), (None, 8, 9, 3), "array[None]"),
    ((8, 9, 3), (1, None, None, 3), "array[None]"),
    ((5, 8, 9), (None, 8, 9, 1), "numpy.expand_dims(array, 3)"),
    ((5, 8, 9), (None, 1, 8, 9), "numpy.expand_dims(array, 1)"),
    ((5, 64), (None, 8, 8, 1), "array.reshape(-1, 8, 8, 1)"),
    ((5, 8, 8, 1), (None, 64), "array.reshape(-1, 64)"),
]


@pytest.mark.parametrize(("given", "wanted", "remedy"), CASES)
def test_the_remedy_works(given, wanted, remedy) -> None:
    assert remedy in shape_advice(given, wanted)
    made = eval(remedy, {"numpy": np, "array": np.zeros(given)})
    assert len(made.shape) == len(wanted)
    assert all(w in (None, m) for w, m in zip(wanted[1:], made.shape[1:], strict=True))


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ((5, 8, 8, 2), (None, 8, 8, 3)),
        ((), (None, 3)),
        ((5, 4), (None, None, 3)),
        ((5,), (None, 2)),
    ],
)
def test_nothing_is_invented_where_no_remedy_fits(given, wanted) -> None:
    sizes = ", ".join("any" if size is None else str(size) for size in wanted[1:])
    assert shape_advice(given, wanted) == f"give an array of shape (samples, {sizes})"
