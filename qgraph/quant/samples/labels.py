"""Which arrays of a data set are labels, by their names."""

from __future__ import annotations

from collections.abc import Collection

LABELS = ("labels", "label", "y")
OF_OUTPUT = "labels/"  # prefix of the name of an output, if a network has several


def labels_among(names: Collection[str], inputs: Collection[str]) -> str | None:
    """The name of the array of labels; an array with the name of an input is that input."""
    return next((name for name in LABELS if name in names and name not in inputs), None)


def inputs_among(names: Collection[str], inputs: Collection[str]) -> list[str]:
    """The names of arrays that are not labels."""
    labels = labels_among(names, inputs)
    return [name for name in names if name != labels and not name.startswith(OF_OUTPUT)]
