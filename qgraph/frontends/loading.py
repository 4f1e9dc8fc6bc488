"""Select the reader of a file by its content first, then by its suffix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from qgraph.errors import GraphError, LoadError, QGraphError, UsageError
from qgraph.foreign import KerasModel, Proto
from qgraph.frontends import keras, onnx, other_formats, tflite
from qgraph.frontends.tf import checkpoint, graphdef, saved_model
from qgraph.frontends.tf.frozen import Frozen
from qgraph.frontends.tf.importing import import_graph_def
from qgraph.ir.cast import cast_floats
from qgraph.ir.graph import Graph
from qgraph.ir.narrow_floats import WIDE, note
from qgraph.ir.types import Shape
from qgraph.names import path_text
from qgraph.quiet import quiet_tensorflow

HDF5 = b"\x89HDF\r\n\x1a\n"


@quiet_tensorflow()
def load(
    model: str | Path | Graph | KerasModel,
    *,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    input_shapes: Mapping[str, Shape] | None = None,
    signature: str | None = None,
    trust: bool = False,
    keep_scales: bool = False,
) -> Graph:
    """Load a trained network as a graph, ready to be transformed.

    The graph computes in float32, whatever float types the model has (noted in `Graph.notes`).

    Args:
        model: A model of Keras 2 or 3 in memory, or the path of a file: a frozen GraphDef (`.pb`,
            `.pbtxt`), a SavedModel directory, a Keras file (`.h5`, `.hdf5`, `.keras`), a checkpoint
            with its MetaGraph (the `.meta` file or the prefix), an ONNX model (`.onnx`) or a
            TensorFlow Lite model (`.tflite`); for the last two, TensorFlow is not imported. A graph
            gives a copy; other arguments have no effect.
        inputs: Names of nodes that are inputs, needed if they cannot be detected.
        outputs: Names of nodes that are outputs, needed if they cannot be detected.
        input_shapes: Shapes of inputs by name, instead of those of the model.
        signature: One of several signatures of a SavedModel.
        trust: Whether a Keras file may run code: Lambda layers, functions, registered custom
            classes. Otherwise, and in every other format, loading runs no code of the file.
        keep_scales: Whether an already quantized model (ONNX, TensorFlow Lite) keeps its quantizers
            where their scales are powers of two, as in `qgraph.quantize`. Otherwise the graph is
            the float network that the model stands for.

    Returns:
        The graph; `print` shows its text.

    Raises:
        LoadError: The file cannot be read.
        GraphError: The graph is not well formed.
        UnsupportedError: A part of the model is not supported.
        UsageError: A name does not exist.

    Examples:
        >>> graph = qgraph.load("model.pb")
        >>> graph
        Graph(model: 130 nodes, image float32[?,8,8,1] -> probabilities float32[?,10])
        >>> print(graph)
        graph "model" {
          %image = input {type=float32[?,8,8,1]}
        ...
    """
    if isinstance(model, Graph):
        return model.copy()
    if keras.is_model(model):
        return load_keras(model, inputs=inputs, outputs=outputs, input_shapes=input_shapes)
    path = Path(model)
    try:
        other_formats.refuse(path)
        proto = _onnx_model(path)
        if signature is not None and not _is_saved_model(path):
            raise UsageError(
                "only a SavedModel has signatures", node=str(path), hint="leave --signature out"
            )
        if proto is not None:
            return _in_float32(
                onnx.import_model(
                    onnx.read(proto, path.parent, keep_scales),
                    inputs=inputs,
                    outputs=outputs,
                    input_shapes=input_shapes,
                    name=path_text(path.stem),
                )
            )
        lite = _lite_model(path)
        if lite is not None:
            return _in_float32(
                tflite.import_tflite(
                    lite,
                    inputs=inputs,
                    outputs=outputs,
                    input_shapes=input_shapes,
                    name=path_text(path.stem),
                    keep_scales=keep_scales,
                )
            )
        frozen = _read(path, outputs, signature, trust)
        return _import(frozen, path_text(path.stem), inputs, outputs, input_shapes)
    except QGraphError as error:
        if error.node is None and isinstance(error, LoadError | GraphError):
            error.node = str(path)
        raise
    except OSError as error:
        raise LoadError(f"cannot be read: {error.strerror or error}", node=str(path)) from None


def load_keras(
    model: KerasModel,
    *,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    input_shapes: Mapping[str, Shape] | None = None,
) -> Graph:
    """A model of Keras 2 or 3 in memory as a Graph, in inference mode."""
    return _import(keras.freeze_model(model), str(model.name), inputs, outputs, input_shapes)


def _import(
    frozen: Frozen,
    name: str,
    inputs: Sequence[str] | None,
    outputs: Sequence[str] | None,
    input_shapes: Mapping[str, Shape] | None,
) -> Graph:
    return _in_float32(
        import_graph_def(
            frozen.graph_def,
            inputs=inputs or frozen.inputs or None,
            outputs=outputs,
            input_shapes=input_shapes,
            signature=frozen.outputs,
            name=name,
        )
    )


def _in_float32(graph: Graph) -> Graph:
    """The graph itself, or a copy in float32 where it has float64, after shapes are computed."""
    if all(kind.dtype != "float64" for kind in graph.types.values()):
        return graph
    single = cast_floats(graph, WIDE)
    single.notes.append(note({"float64"}))
    return single


def _read(path: Path, outputs: Sequence[str] | None, signature: str | None, trust: bool) -> Frozen:
    if path.is_dir():
        return saved_model.read(path, signature)
    prefix = checkpoint.prefix_of(path)
    if prefix is not None:
        return checkpoint.read(prefix, outputs)
    if not path.exists():
        raise LoadError("no such file or directory", node=str(path))
    data = path.read_bytes()
    if data.startswith((HDF5, other_formats.ZIP)):
        return keras.read(path, zipped=data.startswith(other_formats.ZIP), trust=trust)
    return _read_protobuf(path, data, signature)


def _read_protobuf(path: Path, data: bytes, signature: str | None) -> Frozen:
    graph_def = graphdef.parse_binary(data)
    if graph_def is not None:
        return Frozen(graph_def)
    saved = graphdef.parse(data, "SavedModel")
    if saved is not None and saved.meta_graphs and saved.meta_graphs[0].graph_def.node:
        if path.name == "saved_model.pb":
            return saved_model.read(path.parent, signature)
        hint = "name it saved_model.pb, next to its `variables`, and load the directory"
        raise LoadError(
            "the graph of a SavedModel without its directory", node=str(path), hint=hint
        )
    meta = graphdef.parse(data, "MetaGraphDef")
    if meta is not None and meta.graph_def.node:
        hint = "name it NAME.meta, next to NAME.index and NAME.data-*"
        raise LoadError("a MetaGraph without its checkpoint", node=str(path), hint=hint)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise other_formats.unreadable(
            path, "not a GraphDef or any other supported format"
        ) from None
    return Frozen(graphdef.parse_text(path, text))


def _is_saved_model(path: Path) -> bool:
    return path.is_dir() or path.name == "saved_model.pb"


def is_onnx(path: Path) -> bool:
    """Whether `path` is an ONNX model, or claims to be one by its suffix."""
    try:
        return path.suffix == ".onnx" or _onnx_model(path) is not None
    except (OSError, QGraphError):
        return False


def _lite_model(path: Path) -> tflite.LiteModel | None:
    """The TensorFlow Lite model in `path`, recognised by its content; None for other files.

    Raises LoadError where only the suffix suggests one.
    """
    if not path.is_file():
        return None
    with path.open("rb") as file:
        head = file.read(8)
    if tflite.is_tflite(head):
        return tflite.read(path.read_bytes())
    if path.suffix == tflite.SUFFIX:
        raise other_formats.unreadable(path, "not a TensorFlow Lite file")
    return None


def _onnx_model(path: Path) -> Proto | None:
    """The ONNX model in `path`, recognised by its content; None for other files.

    Raises LoadError where only the suffix suggests one.
    """
    if not path.is_file():
        return None
    with path.open("rb") as file:
        head = file.read(8)
    if head.startswith((HDF5, other_formats.ZIP)) or tflite.is_tflite(head):
        return None
    model = onnx.parse(path.read_bytes())
    if model is None and path.suffix == ".onnx" and head:
        raise other_formats.unreadable(path, "not an ONNX model")
    return model
