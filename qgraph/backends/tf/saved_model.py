"""A GraphDef as a SavedModel with one signature."""

from __future__ import annotations

from pathlib import Path

from qgraph.backends.tf.emit import end_names
from qgraph.foreign import Proto, Tensor, TFModule
from qgraph.ir.graph import Graph


def write_saved_model(graph_def: Proto, graph: Graph, path: Path) -> None:
    """Write `graph_def` as `serving_default`; the signature has the user's names of both ends.

    Raises OSError, as any other writer does: for TensorFlow a full disk is an error of its own.
    """
    import tensorflow as tf

    with tf.Graph().as_default() as holder:
        tf.import_graph_def(graph_def, name="")
        ends = end_names(graph)
        inputs = {n: holder.get_tensor_by_name(f"{t}:0") for n, t in ends.inputs.items()}
        outputs = {n: holder.get_tensor_by_name(f"{t}:0") for n, t in ends.outputs.items()}
        signature = _signature(tf, inputs, outputs)
        builder = tf.compat.v1.saved_model.builder.SavedModelBuilder(str(path))
        with tf.compat.v1.Session() as session:
            builder.add_meta_graph_and_variables(
                session, [tf.saved_model.SERVING], signature_def_map={"serving_default": signature}
            )
        try:
            with _quiet(tf):
                builder.save()
        except tf.errors.OpError as error:
            raise OSError(error.message.rpartition("; ")[2]) from error


def _signature(tf: TFModule, inputs: dict[str, Tensor], outputs: dict[str, Tensor]) -> Proto:
    with _quiet(tf):
        info = tf.compat.v1.saved_model.build_tensor_info
        return tf.compat.v1.saved_model.build_signature_def(
            inputs={name: info(tensor) for name, tensor in inputs.items()},
            outputs={name: info(tensor) for name, tensor in outputs.items()},
            method_name="tensorflow/serving/predict",
        )


class _quiet:
    """Keeps TensorFlow's deprecation notices about its own v1 API off the terminal."""

    def __init__(self, tf: TFModule) -> None:
        self.logger = tf.get_logger()

    def __enter__(self) -> None:
        self.level = self.logger.level
        self.logger.setLevel("ERROR")

    def __exit__(self, *_: object) -> None:
        self.logger.setLevel(self.level)
