"""A Keras model in memory as a frozen graph."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import import_module

from qgraph.errors import LoadError, QGraphError, first_line
from qgraph.foreign import KerasModel, Tensor
from qgraph.frontends.tf.frozen import Frozen, freeze_function
from qgraph.frontends.tf.refused import changes_variable

BUILD = (
    "call the model on a sample, model(x), or begin it with keras.Input; "
    "for a file, do so before saving it"
)
SEED = "seed_generator_state"  # how Keras 3 names the variable of a seed
PACKAGES = ("keras", "tf_keras")


def is_model(value: object) -> bool:
    """Whether `value` is a model of Keras 2 or 3; neither is imported to find out."""
    bases = ((c.__module__.split(".")[0], c.__name__) for c in type(value).__mro__)
    return any(package in PACKAGES and name == "Model" for package, name in bases)


def freeze_model(model: KerasModel) -> Frozen:
    """A built model in inference mode; inputs and outputs keep its names.

    Raises LoadError for a model that is not built, or that does not run on TensorFlow.
    """
    import tensorflow as tf

    name = str(model.name)
    _check_backend(model, name)
    if not getattr(model, "inputs", None):
        raise LoadError("the model's inputs are unknown", node=name, hint=BUILD)
    specs = [
        tf.TensorSpec(tensor.shape, tensor.dtype, name=input_name)
        for tensor, input_name in zip(model.inputs, _input_names(model), strict=True)
    ]

    def call(*tensors: Tensor) -> Tensor:
        return tuple(tf.nest.flatten(_called(model, _arranged(model, tensors))))

    try:
        function = tf.function(call, autograph=False).get_concrete_function(*specs)
        return freeze_function(function, _output_names(model))
    except QGraphError:
        raise
    except Exception as error:  # TensorFlow may raise anything on a foreign model
        raise LoadError(
            f"this model cannot be converted to a graph: {first_line(error)}", node=name
        ) from None


def _called(model: KerasModel, arranged: Tensor) -> Tensor:
    """The outputs of a model in inference mode.

    Layers of Keras 3 with dropout also change their seeds in it; they do so in a scope that keeps
    changes out of the graph. Raises UnsupportedError where they change other variables.
    """
    variables = getattr(model, "variables", ())
    seeds = [v for v in variables if str(getattr(v, "path", "")).endswith(SEED)]
    if not seeds or not any(
        base.__module__.startswith("keras.src") for base in type(model).__mro__
    ):
        return model(arranged, training=False)
    keras = import_module("keras")
    with keras.StatelessScope() as scope:
        outputs = model(arranged, training=False)
    own = {id(seed) for seed in seeds}
    for variable in variables:
        if id(variable) not in own and scope.get_current_value(variable) is not None:
            raise changes_variable(str(variable.path))
    return outputs


def _arranged(model: KerasModel, tensors: Sequence[Tensor]) -> Tensor:
    """The inputs in the structure that the model takes: a tensor, a list or a dict.

    A sequential model takes one tensor; in Keras 3 it has no `input` until it has been called.
    """
    import tensorflow as tf

    if any(base.__name__ == "Sequential" for base in type(model).__mro__):
        return tensors[0]
    return tf.nest.pack_sequence_as(model.input, list(tensors))


def _check_backend(model: KerasModel, name: str) -> None:
    import sys

    keras = sys.modules.get("keras")
    is_ours = any(base.__module__.startswith("keras.src") for base in type(model).__mro__)
    backend = getattr(getattr(keras, "backend", None), "backend", lambda: "tensorflow")()
    if is_ours and backend != "tensorflow":
        raise LoadError(
            f"Keras uses the backend {backend}",
            node=name,
            hint="set KERAS_BACKEND=tensorflow, or use model.export(DIRECTORY)",
        )


def _input_names(model: KerasModel) -> list[str]:
    names = getattr(model, "input_names", None) or [tensor.name for tensor in model.inputs]
    return _distinct(str(name).removesuffix(":0") for name in names)


def _output_names(model: KerasModel) -> list[str]:
    """Names of the layers that produce the outputs, as in Keras."""
    names = getattr(model, "output_names", None) or [model.layers[-1].name] * len(model.outputs)
    return _distinct(map(str, names))


def _distinct(names: Iterable[str]) -> list[str]:
    found: list[str] = []
    for name in names:
        free = (n for n in (name, *(f"{name}_{i}" for i in range(1, len(found) + 2))))
        found.append(next(n for n in free if n not in found))
    return found
