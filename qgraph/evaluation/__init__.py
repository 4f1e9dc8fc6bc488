"""Accuracy of a quantized network and of its float network, on labelled samples.

found = evaluate("out", "test.npz")
found.outputs[0].quantized
"""

from qgraph.evaluation.comparison import evaluate
from qgraph.evaluation.labelled import Labelled, has_labels, labelled
from qgraph.evaluation.result import Accuracy, Error, Evaluation, OutputScore, Sizes, Speed

__all__ = [
    "Accuracy",
    "Error",
    "Evaluation",
    "Labelled",
    "OutputScore",
    "Sizes",
    "Speed",
    "evaluate",
    "has_labels",
    "labelled",
]
