"""Models of Keras 2 (tf-keras) and Keras 3: from `.h5`, `.hdf5` and `.keras`, and in memory."""

from __future__ import annotations

from qgraph.frontends.keras.freeze import freeze_model, is_model
from qgraph.frontends.keras.saved_file import read

__all__ = ["freeze_model", "is_model", "read"]
