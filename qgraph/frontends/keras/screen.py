"""Check a model's config before Keras uses it, so that no code of a file is run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from qgraph.errors import LoadError
from qgraph.frontends.keras.known import (
    ACTIVATIONS,
    DATA,
    HOMES,
    INITIALIZERS_OF_TENSORFLOW,
    LAYERS,
    MODELS,
    OF_APPLICATIONS,
    OPERATIONS,
    VALUES,
    is_known_function,
)
from qgraph.frontends.tf.ops import IMPORTERS

REGISTERED = frozenset(f"Custom>{name}" for name in OF_APPLICATIONS)  # as tf_keras names them
CLASSES = MODELS | LAYERS | VALUES | OPERATIONS | DATA | OF_APPLICATIONS.keys() | REGISTERED
CALLS = ("TFOpLambda", "SlicingOpLambda")
OP_LAYER = "TensorFlowOpLayer"
CODE = ("Lambda", "__lambda__")
ROOT = re.compile(r"(tf_keras|keras|tensorflow\.keras|tensorflow\.python\.keras)(\.src)?(\.|$)")
MAX_DEPTH = 200
SHOWN, LENGTH = 4, 40  # names in a message, characters of each

EXPORT = "save the model with model.export(DIRECTORY) and load that directory"
TRUST = "if you trust the file: --trust, or trust=True in Python"


@dataclass(frozen=True)
class UnknownObject:
    """An unknown object in a config: its class, its layer's name, and the fault."""

    kind: str
    layer: str
    runs: bool = False  # it would run code or call a function that the file names

    def __str__(self) -> str:
        return f"`{_short(self.kind)}`" + (f" (layer `{_short(self.layer)}`)" if self.layer else "")


def check(config: object) -> None:
    """Raise LoadError unless everything in a model's `config` is known and harmless."""
    found = list(dict.fromkeys(_unknown_objects(config, "", 0)))
    if not found:
        return
    runs = [s for s in found if s.runs]
    listed = ", ".join(map(str, (runs or found)[:SHOWN]))
    more = len(runs or found) - SHOWN
    listed += f" and {more} more" if more > 0 else ""
    if runs:
        raise LoadError(
            f"the file holds code or calls that loading would run: {listed}",
            hint=f"{EXPORT}; {TRUST}",
        )
    raise LoadError(f"custom or unknown classes: {listed}", hint=f"{EXPORT}; {TRUST}")


def without_compile(config: object) -> object:
    """`config` without losses, metrics and optimizers, which are not needed."""
    if isinstance(config, Mapping):
        return {k: without_compile(v) for k, v in config.items() if k != "compile_config"}
    if isinstance(config, list):
        return [without_compile(value) for value in config]
    return config


def _unknown_objects(config: object, layer: str, depth: int) -> Iterator[UnknownObject]:
    if depth > MAX_DEPTH:
        raise LoadError(f"the model's config is nested more than {MAX_DEPTH} deep")
    if isinstance(config, list):
        for value in config:
            yield from _unknown_objects(value, layer, depth + 1)
        return
    if not isinstance(config, Mapping):
        return
    inner = config.get("config")
    if "class_name" in config:
        name = inner.get("name") if isinstance(inner, Mapping) else None
        layer = name if isinstance(name, str) else layer
        yield from _check_object(config, layer)
    for key, value in config.items():
        if isinstance(key, str) and key.endswith("activation") and isinstance(value, str):
            if value.lower() not in ACTIVATIONS:
                yield UnknownObject(value, layer)
        elif key == "compile_config" and value is not None:
            yield UnknownObject("compile_config", layer, runs=True)
        else:
            yield from _unknown_objects(value, layer, depth + 1)


def _check_object(config: Mapping[str, object], layer: str) -> Iterator[UnknownObject]:
    """Fault of one object of a config, if any."""
    kind, module = config["class_name"], config.get("module")
    registered, inner = config.get("registered_name"), config.get("config")
    if not isinstance(kind, str):
        yield UnknownObject(str(kind), layer, runs=True)
    elif kind.rpartition(">")[2] in CODE:
        yield UnknownObject(kind, layer, runs=True)
    elif kind == "function":
        known = isinstance(inner, str) and inner in ACTIVATIONS
        if not known or module not in (None, "builtins", "keras.activations"):
            yield UnknownObject(f"{module}.{inner}", layer, runs=True)
    elif kind in CALLS or kind == OP_LAYER:
        called = _called(kind, inner)
        if called is not None or not _is_at_home(module):
            yield UnknownObject(called or f"{module}.{kind}", layer, runs=True)
    elif kind not in CLASSES:
        yield UnknownObject(kind, layer)
    elif not _is_at_home(module) and not (kind in VALUES and module == INITIALIZERS_OF_TENSORFLOW):
        yield UnknownObject(f"{module}.{kind}", layer, runs=True)
    names = ACTIVATIONS if kind == "function" else {f"Custom>{kind}"} & REGISTERED
    if registered not in (None, "", kind, *names):
        yield UnknownObject(str(registered), layer)


def _called(kind: str, inner: object) -> str | None:
    """The function or op that a layer would call, unless it is known to be harmless."""
    inner = inner if isinstance(inner, Mapping) else {}
    if kind == OP_LAYER:
        node = inner.get("node_def")
        op = node.get("op") if isinstance(node, Mapping) else None
        return None if isinstance(op, str) and op in IMPORTERS else str(op or kind)
    function = inner.get("function")
    if kind == "SlicingOpLambda":
        return None if function == "__operators__.getitem" else f"tf.{function}"
    known = isinstance(function, str) and is_known_function(function)
    return None if known else f"tf.{function}"


def _is_at_home(module: object) -> bool:
    """Whether a module is one of those that Keras writes for its own classes; some write none."""
    if module in (None, ""):
        return True
    match = ROOT.match(module) if isinstance(module, str) else None
    if match is None:
        return False
    home = match.string[match.end() :].split(".")[0]
    return home in HOMES or not home


def _short(text: str) -> str:
    plain = "".join(c if c.isprintable() else "?" for c in text[: LENGTH + 1])
    return plain if len(plain) <= LENGTH else f"{plain[:LENGTH]}..."
