"""Measures of the benchmarks of text and speech, on small cases."""

import numpy as np
import pytest

from benchmarks.real.reading import (
    boxes,
    character_accuracy,
    decoded,
    edit_distance,
    overlap,
    same_boxes,
)
from benchmarks.real.speech import auc


@pytest.mark.parametrize(
    ("a", "b", "wanted"),
    [("", "", 0), ("abc", "abc", 0), ("abc", "", 3), ("kitten", "sitting", 3), ("ab", "ba", 2)],
)
def test_edit_distance(a, b, wanted) -> None:
    assert edit_distance(a, b) == edit_distance(b, a) == wanted


def test_character_accuracy_is_over_all_lines() -> None:
    assert character_accuracy(["abcd", "x"], ["abcf", "xyzw"]) == 1 - 4 / 8


def test_repeated_classes_and_blanks_are_left_out() -> None:
    best = np.array([[0, 1, 1, 0, 1, 2, 2, 0], [2, 2, 2, 0, 0, 2, 1, 0]])
    assert decoded(np.eye(3)[best], ["", "a", "b"]) == ["aab", "bba"]


def test_boxes_are_those_of_connected_pixels() -> None:
    scores = np.zeros((20, 30))
    scores[2:6, 3:10] = scores[10:14, 20:28] = 0.9
    scores[18, 1] = 0.9  # too small
    assert boxes(scores) == [(2, 6, 3, 10), (10, 14, 20, 28)]
    assert overlap((0, 2, 0, 2), (0, 2, 1, 3)) == 1 / 3
    assert overlap((0, 2, 0, 2), (2, 4, 0, 2)) == 0
    shifted = np.zeros_like(scores)
    shifted[2:6, 3:10] = shifted[10:14, 16:24] = 0.9
    assert same_boxes(scores[None, None], scores[None, None]) == 1
    assert same_boxes(scores[None, None], shifted[None, None]) == 0.5


def test_auc_counts_pairs_in_order() -> None:
    labels = np.array([True, True, False, False])
    assert auc(np.array([0.9, 0.8, 0.2, 0.1]), labels) == 1
    assert auc(np.array([0.9, 0.1, 0.2, 0.1]), labels) == (2 + 0 + 0.5) / 4
    assert auc(np.zeros(4), labels) == 0.5
