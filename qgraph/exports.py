"""The formats that a network can be exported to. The code of each is imported when it is used."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from qgraph.archives import read_json, reading
from qgraph.backends.network_forms import CautiousForm, Form, Network
from qgraph.choices import ExportFormat, chosen
from qgraph.errors import LoadError, UnsupportedError, UsageError
from qgraph.files import sha256_of, whole_directory
from qgraph.npz import hash_of
from qgraph.quiet import quiet_tensorflow
from qgraph.records import OMITTED, from_json, to_json
from qgraph.stored import load_network
from qgraph.stored.write import versions


class FormEntry(NamedTuple):
    """Module, class and description of a format.

    profiles: those that are made for it; empty if it supports networks of any profile.
    """

    module: str
    class_name: str
    description: str
    profiles: tuple[str, ...] = ()


_ONNX = "qgraph.backends.onnx.onnx_forms"
FORMS: Mapping[ExportFormat, FormEntry] = MappingProxyType(
    {
        ExportFormat.ENGINE: FormEntry(
            "qgraph.backends.engine", "EngineForm", "a file for the integer engine"
        ),
        ExportFormat.TENSORFLOW: FormEntry(
            "qgraph.backends.tf.tensorflow_form",
            "TensorFlowForm",
            "a frozen graph of stock ops, and a SavedModel",
        ),
        ExportFormat.ONNX_INTEGER: FormEntry(_ONNX, "OnnxInteger", "ONNX of integer ops only"),
        ExportFormat.ONNX_QDQ: FormEntry(_ONNX, "OnnxQdq", "ONNX with quantizers around float"),
        ExportFormat.ONNX_QOPERATOR: FormEntry(
            _ONNX, "OnnxQoperator", "ONNX with QLinearConv and other QLinear ops"
        ),
        ExportFormat.ONNX_XINT8: FormEntry(
            _ONNX, "OnnxXint8", "ONNX in the shape of AMD's XINT8, for Ryzen AI", ("ryzen-ai",)
        ),
        ExportFormat.QONNX: FormEntry(_ONNX, "Qonnx", "ONNX with Quant nodes, for `qonnx`"),
        ExportFormat.TFLITE: FormEntry(
            "qgraph.backends.tflite.tflite_form",
            "TfliteForm",
            "int8 or int16 for LiteRT and TFLM",
            ("litert", "tflm", "tflm-int16x8"),
        ),
        ExportFormat.C: FormEntry(
            "qgraph.backends.c.c_form", "CForm", "C99, integers only, with a test"
        ),
        ExportFormat.TOSA: FormEntry(
            "qgraph.backends.tosa.tosa_form",
            "TosaForm",
            "a TOSA flatbuffer of integer ops",
            ("tosa",),
        ),
        ExportFormat.VECTORS: FormEntry(
            "qgraph.backends.vectors.vectors_form", "VectorsForm", "codes of every layer"
        ),
    }
)
INDEX = "export.json"


def form(name: str, options: Mapping[str, object] | None = None) -> Form:
    """A format by its name, with its options. Raises UsageError."""
    entry = FORMS[chosen(ExportFormat, name, "format")]
    made = getattr(import_module(entry.module), entry.class_name)
    unknown = set(options or {}) - {field.name for field in fields(made)}
    if unknown:
        raise UsageError(f"format `{name}` has no option `{min(unknown)}`")
    found: Form = made(**(options or {}))
    return found


@quiet_tensorflow()
def export(
    network: Network | str | Path,
    name: str,
    path: str | Path,
    *,
    force: bool = False,
    options: Mapping[str, object] | None = None,
) -> dict[str, int]:
    """Write a network in a format that computes the same codes, bit for bit.

    Args:
        network: An output directory, a training directory with `inference/` inside, or what
            `qgraph.stored.load_network` gives.
        name: A format, by its value in `qgraph.choices.ExportFormat`, like `onnx-qdq`.
        path: A directory, new or empty.
        force: Whether to replace the files of an earlier export. Other files are never replaced.
        options: Options of the format, by name: `samples` and `layers` for `vectors`,
            `accelerators` for `tosa`, `codes` for `tflite`, `layout` for `c`.

    Returns:
        Bytes by file. `export.json` lists tensors that have other names in the files, and under
        `warnings` what the files lack.

    Raises:
        UnsupportedError: The format does not support the network. The error names the layer.
        UsageError: The format or an option is unknown.
        LoadError: The directory is not what qgraph wrote.
        OutputError: The path contains other files, or cannot be written.

    Examples:
        >>> sizes = qgraph.export("out", "c", "firmware")
        >>> sorted(sizes)
        ['model.c', 'model.h', 'model_inputs.bin', 'model_outputs.bin', 'model_test.c']
    """
    chosen, path = form(name, options), Path(path)
    if isinstance(network, str | Path):
        network = load_network(network)
    with whole_directory(path, written_files(path), force=force) as draft:
        reason = chosen.refusal(network)
        if reason is not None:
            raise UnsupportedError(f"{name} does not support this network: {reason}")
        chosen.write(network, draft)
        files = sorted(p for p in draft.rglob("*") if p.is_file())
        names = [p.relative_to(draft).as_posix() for p in files]
        index = ExportIndex(
            name,
            network.program.name,
            hash_of(network.program.constants),
            versions(),
            chosen.renamed(network),
            {n: sha256_of(p) for n, p in zip(names, files, strict=True)},
            chosen.warnings(network) if isinstance(chosen, CautiousForm) else [],
        )
        (draft / INDEX).write_text(json.dumps(to_json(index), indent=1) + "\n", "utf-8")
        return {n: p.stat().st_size for n, p in zip(names, files, strict=True)}


@dataclass(frozen=True)
class ExportIndex:
    """The content of `export.json`.

    form      name of the form
    network   name of the network
    weights   hash of the constants that were exported; absent in exports of earlier versions
    versions  of qgraph and what it needs
    renamed   names of tensors in the files, by their names in the graph, where they differ
    files     SHA-256 by file name
    warnings  what the files lack, and why
    """

    form: str
    network: str
    weights: str | None = field(default=None, metadata=OMITTED)
    versions: Mapping[str, str] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    warnings: Sequence[str] = field(default=(), metadata=OMITTED)


def index_of(path: Path) -> ExportIndex:
    """The index of an export. Raises LoadError for another directory, or a missing file."""
    problem = "is not what `qgraph export` wrote"
    hint = "give the directory that `qgraph export -o` named"
    if not path.exists():
        raise LoadError("no such directory", node=str(path), hint=hint)
    if not (path / INDEX).is_file():
        raise LoadError(problem, node=str(path), hint=hint)
    with reading(path, problem, hint):
        found = from_json(ExportIndex, read_json(path / INDEX))
    missing = [name for name in found.files if not (path / name).is_file()]
    if found.form not in FORMS or missing:
        what = f"`{missing[0]}` is missing" if missing else f"unknown format `{found.form}`"
        raise LoadError(f"{problem}: {what}", node=str(path), hint="export the network again")
    return found


def exported_form(path: Path, network: Network) -> Form:
    """The form of an export of this network. Raises LoadError, and UsageError for another's."""
    index = index_of(path)
    if index.weights not in (None, hash_of(network.program.constants)):
        raise UsageError(
            f"exported from another network than the current `{network.program.name}`",
            node=str(path),
            hint="export this one again, or give the directory that it was exported from",
        )
    return form(index.form)


def written_files(path: Path, index: str = INDEX) -> tuple[str, ...]:
    """Names of files and folders of an earlier export with this index; empty for other paths."""
    try:
        files = json.loads((path / index).read_text("utf-8"))["files"]
        return (index, *{name.split("/")[0] for name in files})
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return ()
