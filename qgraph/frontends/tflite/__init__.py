"""Read `.tflite` files. TensorFlow is not imported.

Each operator is written as the TensorFlow ops that compute the same, in NHWC like the file
(`operators`); the importers of those ops (`qgraph.frontends.tf.ops`) do the rest.
"""

from qgraph.frontends.tflite.importing import import_tflite
from qgraph.frontends.tflite.model import SUFFIX, LiteModel, is_tflite, read

__all__ = ["SUFFIX", "LiteModel", "import_tflite", "is_tflite", "read"]
