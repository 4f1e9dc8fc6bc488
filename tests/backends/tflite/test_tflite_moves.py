"""Transposes on fewer axes move the same elements."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from qgraph.backends.tflite.moves import joined_axes


@given(st.lists(st.integers(1, 3), min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_joined_axes_move_the_same_elements(shape: list[int], random) -> None:
    perm = random.sample(range(len(shape)), len(shape))
    x = np.arange(np.prod(shape)).reshape(shape)
    sizes, order = joined_axes(shape, perm)
    assert np.array_equal(x.reshape(sizes).transpose(order).ravel(), x.transpose(perm).ravel())
    assert len(order) <= len(perm)


def test_depth_to_space_has_four_axes() -> None:
    assert joined_axes((1, 4, 5, 2, 2, 3), (0, 1, 3, 2, 4, 5)) == ([4, 5, 2, 6], [0, 2, 1, 3])
