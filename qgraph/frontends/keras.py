"""Keras models, read by tf-keras: `.h5`, `.hdf5`, `.keras`, or in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from qgraph.errors import LoadError, QGraphError
from qgraph.frontends.frozen import Frozen, freeze_function


def read(path: Path, *, zipped: bool) -> Frozen:
    """The model in `path`, frozen for inference. Raises LoadError if tf-keras cannot read it."""
    import tf_keras

    try:
        model = _load(tf_keras, path, zipped)
    except Exception as error:  # whatever a foreign file makes of tf-keras
        text = (str(error).strip().splitlines() or [type(error).__name__])[0]
        hint = (
            "it may be by Keras 3 or need custom layers: save it as a SavedModel"
            if zipped
            else "it may hold weights only, or need custom layers: save it as a SavedModel"
        )
        raise LoadError(
            f"tf-keras cannot read this model: {text}", node=str(path), hint=hint
        ) from None
    return freeze_model(model)


def _load(tf_keras: Any, path: Path, zipped: bool) -> Any:
    if zipped or path.suffix in (".h5", ".hdf5"):
        return tf_keras.models.load_model(path, compile=False)
    import h5py  # tf-keras goes by the suffix; an open file says that it is HDF5

    with h5py.File(path, "r") as file:
        return tf_keras.models.load_model(file, compile=False)


def freeze_model(model: Any) -> Frozen:
    """A built tf-keras model as a frozen graph; outputs carry the model's output names."""
    import tensorflow as tf

    if not getattr(model, "inputs", None):
        raise LoadError(
            "the model's inputs are not known", node=str(model.name), hint="call or build it first"
        )
    names = [str(n) for n in model.input_names]
    specs = [
        tf.TensorSpec(t.shape, t.dtype, name=n) for t, n in zip(model.inputs, names, strict=True)
    ]

    def call(*tensors: Any) -> Any:
        arguments = tensors[0] if len(tensors) == 1 else list(tensors)
        return tuple(tf.nest.flatten(model(arguments, training=False)))

    try:
        function = tf.function(call, autograph=False).get_concrete_function(*specs)
        return freeze_function(function, [str(n) for n in model.output_names])
    except QGraphError:
        raise
    except Exception as error:  # whatever a foreign model makes of TensorFlow
        text = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise LoadError(f"no graph can be made of this model: {text}", node=model.name) from None
