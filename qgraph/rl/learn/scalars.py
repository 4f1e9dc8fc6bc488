"""Progress for TensorBoard.

Imports TensorFlow: import it late.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import tensorflow as tf


class Scalars:
    """Writes numbers by name and step."""

    def __init__(self, folder: Path) -> None:
        self._writer = tf.summary.create_file_writer(str(folder))

    def add(self, numbers: Mapping[str, float], step: int) -> None:
        # Like `tf.summary.scalar`, which needs TensorBoard even to write.
        plugin = tf.compat.v1.SummaryMetadata.PluginData(plugin_name="scalars")
        metadata = tf.compat.v1.SummaryMetadata(plugin_data=plugin, data_class=1)  # a scalar
        with self._writer.as_default():
            for name, number in numbers.items():
                tf.summary.write(name, tf.constant(number, tf.float32), step, metadata)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()
