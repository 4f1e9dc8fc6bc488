"""Recognize files and directories of formats that qgraph does not read, with advice for each."""

from __future__ import annotations

import zipfile
from pathlib import Path

from qgraph.downloads import HEAD, WrongFile, failed_download_of
from qgraph.errors import LoadError
from qgraph.names import path_text

ZIP = b"PK\x03\x04"
MAX_JSON_BYTES = 1 << 20  # of a JSON file
FILES_NAMED = 3  # files that a hint names

TO_ONNX = 'export the model to ONNX, torch.onnx.export(model, example, "model.onnx"), and give that'
ORIGINAL = "give the model that it was converted from: a SavedModel, a Keras or an ONNX file"
SUPPORTED = "give a model: an ONNX file, a SavedModel, a Keras file, a frozen .pb or a .tflite"
WHOLE_KERAS = 'save the whole model, model.save("model.keras"), and give that file'
DAMAGED = "the file may be truncated, or of another format"


PYTORCH = WrongFile("a PyTorch file, which qgraph does not read", TO_ONNX)
CORE_ML = WrongFile("a Core ML model, which qgraph does not read", ORIGINAL)
ARRAYS = WrongFile("a file of arrays, not a model", "give it with --calibration or --data")
SAFETENSORS = WrongFile(
    "a safetensors file, which holds weights but no network",
    "export the model to ONNX or to a SavedModel with the library that defines it",
)
PICKLE = WrongFile(
    "a Python pickle, which qgraph does not read",
    "save the model in its own format: Keras, SavedModel or ONNX",
)
BEGINNINGS = {
    b"\x93NUMPY": ARRAYS,
    b"\x1f\x8b": WrongFile("a file compressed by gzip", "decompress it first: gunzip, or tar -xzf"),
    b"BZh": WrongFile("a file compressed by bzip2", "decompress it first: bunzip2, or tar -xjf"),
    b"\xfd7zXZ": WrongFile("a file compressed by xz", "decompress it first: unxz, or tar -xJf"),
}
SUFFIXES = {
    **dict.fromkeys((".pt", ".pth", ".pt2"), PYTORCH),
    ".safetensors": SAFETENSORS,
    ".mlmodel": CORE_ML,
    ".mlpackage": CORE_ML,
    **dict.fromkeys((".pkl", ".pickle", ".joblib"), PICKLE),
    ".json": WrongFile("a JSON file, not a model", SUPPORTED),
    ".caffemodel": WrongFile(
        "a Caffe file, which qgraph does not read", "convert it to ONNX, and give that file"
    ),
    **dict.fromkeys(
        (".engine", ".plan", ".trt"),
        WrongFile("a TensorRT engine, which qgraph does not read", ORIGINAL),
    ),
}
SAVED_MODEL = ("saved_model.pb", "saved_model.pbtxt")
MODELS = (".onnx", ".pb", ".pbtxt", ".keras", ".h5", ".hdf5", ".meta", ".tflite")


def refuse(path: Path) -> None:
    """Raise LoadError for an empty file, or one of another format by its content, and for a
    directory without a SavedModel.
    """
    if path.is_dir() and not any((path / name).is_file() for name in SAVED_MODEL):
        raise _unreadable_directory(path)
    if not path.is_file():
        return
    try:
        with path.open("rb") as file:
            head = file.read(HEAD)
    except OSError:
        return  # loading reports the reason
    if not head:
        raise LoadError("the file is empty", node=str(path), hint="write or download it again")
    found = _by_content(path, head)
    if found is not None:
        raise LoadError(found.name, node=str(path), hint=found.advice)


def unreadable(path: Path, problem: str) -> LoadError:
    """The error for a file that no reader reads, with what its suffix suggests."""
    claimed = SUFFIXES.get(path.suffix.lower())
    if claimed is None:
        return LoadError(problem, node=str(path), hint=DAMAGED)
    return LoadError(claimed.name, node=str(path), hint=claimed.advice)


def _unreadable_directory(path: Path) -> LoadError:
    claimed = SUFFIXES.get(path.suffix.lower())
    if claimed is not None:
        return LoadError(claimed.name, node=str(path), hint=claimed.advice)
    if (path / "manifest.json").is_file():
        return LoadError(
            "an output of `qgraph quantize`, not a model",
            node=str(path),
            hint="it is quantized already: use qgraph evaluate, verify or export",
        )
    return LoadError("a directory without saved_model.pb", node=str(path), hint=_inside(path))


def _inside(path: Path) -> str:
    entries = sorted(path.iterdir())
    if not entries:
        return "it is empty"
    models = [e for e in entries if e.suffix in MODELS or (e / "saved_model.pb").is_file()]
    if models:
        names = [path_text(model) for model in models[:FILES_NAMED]]
        more = ", ..." if len(models) > FILES_NAMED else ""
        return f"give a model inside: {', '.join(names)}{more}"
    for entry in entries:
        if entry.name in ("pytorch_model.bin", "model.safetensors") or entry.suffix == ".pt":
            return f"{entry.name} is of PyTorch: {TO_ONNX}"
    return SUPPORTED


def _by_content(path: Path, head: bytes) -> WrongFile | None:
    for beginning, found in BEGINNINGS.items():
        if head.startswith(beginning):
            return found
    if head[8:9] == b"{" and int.from_bytes(head[:8], "little") < path.stat().st_size:
        return SAFETENSORS
    if head.startswith(ZIP):
        return _by_members(path)
    if head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        return SUFFIXES.get(path.suffix.lower(), PICKLE)
    if (failed := failed_download_of(head)) is not None:
        return failed
    if head.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{"):
        return _by_keys(path)
    return None


def _by_members(path: Path) -> WrongFile | None:
    """The format of a zip archive by the names in it; None for Keras models and unknown ones."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except Exception:  # a damaged archive: its reader explains what is wrong
        return None
    if any(name.rpartition("/")[2] in ("data.pkl", "constants.pkl") for name in names):
        return PYTORCH
    if names and all(name.endswith(".npy") for name in names):
        return ARRAYS
    return None


def _by_keys(path: Path) -> WrongFile:
    text = path.read_bytes()[:MAX_JSON_BYTES]
    if b'"modelTopology"' in text or b'"weightsManifest"' in text:
        return WrongFile("a TensorFlow.js model, which qgraph does not read", ORIGINAL)
    if b'"class_name"' in text and b'"config"' in text:
        return WrongFile("a Keras architecture in JSON, without weights", WHOLE_KERAS)
    return SUFFIXES[".json"]
