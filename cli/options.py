"""Options that several verbs share."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qgraph.choices import Level
from qgraph.cli.choice import choice
from qgraph.cli.completion import complete_profile, profile_names
from qgraph.errors import LoadError, UsageError
from qgraph.words import alternatives

if TYPE_CHECKING:
    from qgraph.ir.types import Shape

OUTPUT_DIRECTORY = (
    "Directory that `qgraph quantize` wrote. For a training directory, its inference/ is used."
)
DATA = (
    "a .npy, a .npz with an array for each input, a directory of such .npz files, or "
    "module:function that returns a tf.data.Dataset"
)
Model = Annotated[
    Path,
    typer.Argument(
        help="Model to read: an ONNX file, a frozen graph (.pb or .pbtxt), a SavedModel directory, "
        "a Keras file (.h5 or .keras), a TensorFlow Lite file (.tflite), or a checkpoint (.meta)."
    ),
]
Profile = Annotated[
    str,
    typer.Option(
        help=f"Target profile: {', '.join(profile_names())}, or the path of a YAML file.",
        metavar="NAME",
        autocompletion=complete_profile,
    ),
]
Calibration = Annotated[
    str | None,
    typer.Option(
        "--calibration",
        "-c",
        metavar="DATA",
        help=f"Calibration data, a few dozen typical inputs: {DATA}.",
    ),
]


ForceDirectory = Annotated[
    bool, typer.Option("--force", help="Replace the files that an earlier run wrote.")
]
Limit = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Use only the first N samples.")
]
Threads = Annotated[int, typer.Option(metavar="N", help="Number of threads.")]
LevelOption = Annotated[
    Level,
    choice(Level, "level", metavar="NAME", help=f"Instruction set to use: {alternatives(Level)}."),
]
# Options of `analyze` that other commands lack, or read in another way.
ANALYZE_OPTIONS = ("mean_bits", "top", "as_json")
Json = Annotated[bool, typer.Option("--json", help="Print the result as one JSON document.")]


def given(context: typer.Context, without: Sequence[str] = ()) -> list[str]:
    """The arguments of a verb as they were typed, without `ANALYZE_OPTIONS`, for another verb."""
    words: list[str] = []
    for option in context.command.params:
        source = context.get_parameter_source(option.name or "")
        if (
            source is None
            or source.name != "COMMANDLINE"
            or option.name in (*ANALYZE_OPTIONS, *without)
        ):
            continue
        value = context.params[option.name or ""]
        if isinstance(value, bool):
            words.append(min(option.opts if value else option.secondary_opts, key=len))
            continue
        for one in value if isinstance(value, list | tuple) else [value]:
            flag = [min(option.opts, key=len)] if option.opts[0].startswith("-") else []
            words += [*flag, str(one)]
    return words


def own_modules() -> None:
    """Let `module:Class` and `module:function` name modules in the current directory."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())


def check_model(path: Path) -> None:
    """Raise LoadError early if the path does not exist or its format is not supported."""
    from qgraph.frontends import other_formats
    from qgraph.frontends.tf.checkpoint import prefix_of

    if not path.exists() and prefix_of(path) is None:
        raise LoadError("no such file or directory", node=str(path))
    other_formats.refuse(path)


def names(text: str | None) -> list[str] | None:
    """Split names at commas. A name with a comma in it is quoted, as in a CSV file."""
    if not text:
        return None
    found = re.findall(r'\s*(?:"((?:[^"]|"")*)"\s*(?=,|$)|([^,]+))(?:,|$)', text)
    parts = [quoted.replace('""', '"') or plain.strip() for quoted, plain in found]
    return [part for part in parts if part]


def shapes(texts: list[str] | None) -> dict[str, Shape] | None:
    """Shapes by input name. The empty name stands for the only input."""
    if not texts:
        return None
    found: dict[str, Shape] = {}
    for text in texts:
        name, _, dims = text.rpartition("=")
        try:
            shape = tuple(None if d.strip() in ("?", "-1") else int(d) for d in dims.split(","))
        except ValueError:
            shape = (0,)
        if any(d is not None and d < 1 for d in shape):
            raise UsageError(f"`{text}` is not a shape", hint="try --input-shape image=1,224,224,3")
        found[name] = shape
    return found


def pairs(texts: list[str] | None) -> dict[str, str] | None:
    """Names of outputs by the names of inputs, from `INPUT=OUTPUT`."""
    if not texts:
        return None
    found: dict[str, str] = {}
    for text in texts:
        name, mark, output = text.partition("=")
        if not mark or not name or not output:
            raise UsageError(f"`{text}` is not INPUT=OUTPUT", hint="try --state h=hn")
        if name in found:
            raise UsageError(f"state `{name}` is given twice", hint="leave one of them out")
        found[name] = output
    return found


def byte_count(text: str | None) -> int | None:
    """Parse a size in bytes: k and M are thousands and millions, Ki and Mi powers of 1024."""
    if text is None:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(k|M|Ki|Mi)?B?", text.strip())
    if found is None:
        raise UsageError(f"`{text}` is not a size in bytes", hint="try 200000, 200k or 1.5M")
    unit = {None: 1, "k": 1000, "M": 1000**2, "Ki": 1024, "Mi": 1024**2}[found[2]]
    return int(float(found[1]) * unit)


def several_bits(text: str) -> list[float]:
    """Parse `3,4,5` as numbers above 0."""
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        found = [0.0]
    if not all(0 < bits < float("inf") for bits in found):
        raise UsageError(f"`{text}` is not a list of bits", hint="try --mean-bits 3,4,5,6,8")
    return list(dict.fromkeys(found))


def ranges(texts: list[str] | None) -> dict[str, tuple[float, float]]:
    """Ranges by input name. The empty name stands for the only input."""
    found: dict[str, tuple[float, float]] = {}
    for text in texts or ():
        name, _, ends = text.rpartition("=")
        try:
            low, high = (float(part) for part in ends.split(","))
        except ValueError:
            raise UsageError(
                f"`{text}` is not a range", hint="try --input-range image=0,255"
            ) from None
        found[name] = (low, high)
    return found
