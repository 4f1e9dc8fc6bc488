"""The forms that a network can be exported to, by name. What carries one is imported when used."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from types import MappingProxyType

from qgraph.artifacts import versions
from qgraph.backends.network_forms import Form, Network
from qgraph.errors import UnsupportedError, UsageError
from qgraph.files import sha256_of, whole_directory
from qgraph.quiet import quiet_tensorflow
from qgraph.stored import load_network

# By name: where it is, and what it is.
FORMS: Mapping[str, tuple[str, str, str]] = MappingProxyType(
    {
        "engine": ("qgraph.backends.engine", "EngineForm", "a file for the integer engine"),
        "tensorflow": (
            "qgraph.backends.tf.tensorflow_form",
            "TensorFlowForm",
            "a frozen graph of stock ops",
        ),
        "onnx-integer": (
            "qgraph.backends.onnx.onnx_forms",
            "OnnxInteger",
            "ONNX of integer ops only",
        ),
        "onnx-qdq": (
            "qgraph.backends.onnx.onnx_forms",
            "OnnxQdq",
            "ONNX with quantizers around float",
        ),
        "qonnx": ("qgraph.backends.onnx.onnx_forms", "Qonnx", "ONNX with Quant nodes, for `qonnx`"),
        "c": ("qgraph.backends.c.c_form", "CForm", "C99, integers only, with a test"),
        "vectors": ("qgraph.backends.vectors.vectors_form", "VectorsForm", "codes of every layer"),
    }
)
INDEX = "export.json"


def form(name: str, options: Mapping[str, object] | None = None) -> Form:
    """A form by its name, with options that are its own. Raises UsageError."""
    if name not in FORMS:
        raise UsageError(f"unknown format `{name}`", hint=f"choose one of {', '.join(FORMS)}")
    module, kind, _ = FORMS[name]
    made = getattr(import_module(module), kind)
    unknown = set(options or {}) - {field.name for field in fields(made)}
    if unknown:
        raise UsageError(f"format `{name}` has no option `{min(unknown)}`")
    chosen: Form = made(**(options or {}))
    return chosen


@quiet_tensorflow()
def export(
    network: Network | str | Path,
    name: str,
    path: str | Path,
    *,
    force: bool = False,
    options: Mapping[str, object] | None = None,
) -> dict[str, int]:
    """Write a network in a form that computes the same codes, whole or not at all.

    Args:
        network: An output directory, a training directory with `inference/` inside, or what
            `qgraph.stored.load_network` gives.
        name: `engine`, `tensorflow`, `onnx-integer`, `onnx-qdq`, `qonnx`, `c` or `vectors`.
        path: A directory, new or empty.
        force: Replace what an earlier export wrote there, and nothing else.
        options: Options of the form, by name: `samples` and `layers` for `vectors`.

    Returns:
        Bytes by file.

    Raises:
        UnsupportedError: The form cannot carry the network; it names the layer.
        UsageError: The form or an option does not exist.
        LoadError: The directory is not what qgraph wrote.
        OutputError: Something else is there, or it cannot be written.

    Example:
        >>> qgraph.export("out", "c", "firmware")
    """
    chosen, path = form(name, options), Path(path)
    if isinstance(network, str | Path):
        network = load_network(network)
    replaceable = _written(path) if force else ()
    with whole_directory(path, replaceable) as draft:
        reason = chosen.refusal(network)
        if reason is not None:
            raise UnsupportedError(f"{name} cannot carry this network: {reason}")
        chosen.write(network, draft)
        files = sorted(p for p in draft.rglob("*") if p.is_file())
        names = [p.relative_to(draft).as_posix() for p in files]
        about = {
            "form": name,
            "network": network.program.name,
            "versions": versions(),
            "files": {n: sha256_of(p) for n, p in zip(names, files, strict=True)},
        }
        (draft / INDEX).write_text(json.dumps(about, indent=1) + "\n", "utf-8")
        return {n: p.stat().st_size for n, p in zip(names, files, strict=True)}


def _written(path: Path) -> tuple[str, ...]:
    """Names at the top of an earlier export; what is not one has none."""
    try:
        files = json.loads((path / INDEX).read_text("utf-8"))["files"]
        return (INDEX, *{name.split("/")[0] for name in files})
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return ("",)
