"""Keras files, `.keras` (a zip archive) and `.h5`, read by the Keras that wrote them.

The order makes it safe: first the limits of the file are checked, then its config, as JSON; only
then Keras builds a model, whose variables may not be larger than the file's weights.
"""

from __future__ import annotations

import json
import math
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

from qgraph.archives import Archive, parse_json, reading
from qgraph.distribution import install_hint
from qgraph.errors import LoadError, first_line
from qgraph.foreign import KerasModel
from qgraph.frontends.keras.freeze import freeze_model, is_model
from qgraph.frontends.keras.hdf5 import read_contents
from qgraph.frontends.keras.known import OF_APPLICATIONS
from qgraph.frontends.keras.screen import EXPORT, check, without_compile
from qgraph.frontends.keras.topology import check_calls
from qgraph.frontends.tf.frozen import Frozen
from qgraph.names import path_text

CONFIG, METADATA, WEIGHTS = "config.json", "metadata.json", "model.weights.h5"
SUFFIXES = (".h5", ".hdf5")
KERAS_2 = "tf-keras"
EXTRA_ELEMENTS = 1 << 20  # elements of variables that files need not contain: counters, seeds


def read(path: Path, *, zipped: bool, trust: bool) -> Frozen:
    """The model in `path`, frozen for inference.

    With `trust`, code and functions that the file names may run. Raises LoadError.
    """
    with tempfile.TemporaryDirectory() as folder:
        model = (_of_zip if zipped else _of_hdf5)(path, trust, Path(folder))
        return freeze_model(model)


def _of_zip(path: Path, trust: bool, folder: Path) -> KerasModel:
    archive = Archive(path)
    if CONFIG not in archive.members or METADATA not in archive.members:
        raise LoadError(
            "a zip archive, but not a Keras model: no config.json and metadata.json",
            node=str(path),
            hint="if it holds a model, unpack it and give that",
        )
    if WEIGHTS not in archive.members:
        raise LoadError(f"`{WEIGHTS}` is missing from the file", node=str(path), hint=EXPORT)
    with reading(path, "its metadata cannot be read"):
        version = parse_json(archive.read(METADATA)).get("keras_version")
        config: object = parse_json(archive.read(CONFIG))
    archive.copy(WEIGHTS, folder / WEIGHTS)
    weights = read_contents(folder / WEIGHTS, str(path))
    source = path
    if not trust:
        with reading(path, "its config cannot be read"):
            config = without_compile(config)
            check(config)
        source = folder / "model.keras"
        with zipfile.ZipFile(source, "w") as written:
            written.writestr(METADATA, archive.read(METADATA))
            written.writestr(CONFIG, json.dumps(config))
            written.write(folder / WEIGHTS, WEIGHTS)
    return _loaded(source, path, version, config, weights.size, trust)


def _of_hdf5(path: Path, trust: bool, folder: Path) -> KerasModel:
    contents = read_contents(path, str(path))
    text = contents.attributes.get("model_config")
    if text is None:
        is_weights = "layer_names" in contents.attributes or "layers" in contents.members
        raise LoadError(
            "the file holds weights only, not the model" if is_weights else "not a Keras model",
            node=str(path),
            hint="save the whole model: model.save(FILE.keras) or model.export(DIRECTORY)",
        )
    with reading(path, "its model_config cannot be read"):
        config = parse_json(text)
    if not trust:
        with reading(path, "its config cannot be read"):
            check(config)
    source = path
    if path.suffix not in SUFFIXES or path_text(path) != str(
        path
    ):  # Keras selects the reader by the suffix
        source = folder / "model.h5"
        source.symlink_to(path.resolve())
    version = contents.attributes.get("keras_version")
    return _loaded(source, path, version, config, contents.size, trust)


def _loaded(
    source: Path, path: Path, version: object, config: object, weights: int, trust: bool
) -> KerasModel:
    """The model that Keras builds from `source`, in the version that wrote it."""
    name, load_model = _library(version, path)
    if name == KERAS_2:
        with reading(path, "its config cannot be read"):
            check_calls(config)
    try:
        with _bounded_variables(weights + EXTRA_ELEMENTS):
            found = load_model(
                str(source), _of_applications(name), compile=False, safe_mode=not trust
            )
    except LoadError as error:
        error.node = str(path)
        raise
    except Exception as error:  # Keras may raise anything on a foreign file
        raise LoadError(
            f"{name} cannot read this model: {first_line(error)}", node=str(path), hint=EXPORT
        ) from None
    if not is_model(found):
        raise LoadError(
            f"{name} reads a {type(found).__name__} from this file, not a model", node=str(path)
        )
    return found


def _of_applications(library: str) -> dict[str, KerasModel]:
    """The layers of a library's applications by name."""
    package = "tf_keras" if library == KERAS_2 else "keras"
    return {
        name: getattr(import_module(f"{package}.src.applications.{module}"), name)
        for name, module in OF_APPLICATIONS.items()
    }


def _library(version: object, path: Path) -> tuple[str, KerasModel]:
    """Keras 2 or 3: its name, and its function that loads a model."""
    if not str(version).startswith("3."):
        import tf_keras

        return KERAS_2, tf_keras.models.load_model
    try:
        keras: KerasModel = import_module("keras")
    except ImportError:
        keras = None
    if keras is None or not str(keras.__version__).startswith("3."):
        raise LoadError(
            f"written by Keras {str(version)[:20]}, and Keras 3 is not installed",
            node=str(path),
            hint=f"{install_hint('keras>=3')}, or {EXPORT}",
        )
    if keras.backend.backend() != "tensorflow":
        raise LoadError(
            f"Keras uses the backend {keras.backend.backend()}",
            node=str(path),
            hint=f"set KERAS_BACKEND=tensorflow, or {EXPORT}",
        )
    return "Keras 3", keras.models.load_model


@contextmanager
def _bounded_variables(most: int) -> Iterator[None]:
    """Context in which variables of more than `most` elements in total raise LoadError."""
    import tensorflow as tf

    made = 0

    def creator(create: KerasModel, **options: KerasModel) -> KerasModel:
        nonlocal made
        made += _elements(options)
        if made > most:
            raise LoadError("the model's layers are larger than the weights in the file")
        return create(**options)

    with tf.variable_creator_scope(creator):
        yield


def _elements(options: Mapping[str, KerasModel]) -> int:
    """The number of elements of a variable; its initializer is traced, not run."""
    import tensorflow as tf

    shape, value = options.get("shape"), options.get("initial_value")
    if shape is None and callable(value):
        with tf.Graph().as_default():
            shape = value().shape
    return math.prod(tf.TensorShape(shape).as_list()) if shape is not None else 0
