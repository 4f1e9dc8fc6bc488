"""Read vectors: the program that they describe, and whether they are consistent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from qgraph.archives import JsonObject, parse_json, reading
from qgraph.backends.vectors.files import read, sha256
from qgraph.errors import ExactnessError
from qgraph.ir.types import Array
from qgraph.ops.attributes import Attributes
from qgraph.ops.windows import NO_PADS, ONE
from qgraph.program import Entry, Program, Step, Tensor, run
from qgraph.program.ops import WindowAttrs


def read_index(folder: Path) -> JsonObject:
    """`index.json` of a folder. Raises LoadError."""
    with reading(folder, "has no index"):
        return parse_json((folder / "index.json").read_bytes())


def read_program(folder: Path, index: JsonObject) -> Program:
    """The network, from the index and the `.hex` files of constants, or `.bin` without `.hex`.

    Raises LoadError.
    """
    with reading(folder, "changed since it was written"):
        return _program(folder, index)


def _program(folder: Path, index: JsonObject) -> Program:
    constants: dict[str, Array] = {}
    for name, where in index["constants"].items():
        facts = index["tensors"][name]
        ending = "hex" if "hex" in where["sha256"] else "bin"
        codes = read(folder / where["file"], facts, tuple(facts["shape"]), ending)
        constants[name] = codes.astype(facts["storage"])
    tensors = {name: _tensor(name, facts) for name, facts in index["tensors"].items()}
    return Program(
        index["network"],
        tensors,
        constants,
        tuple(Entry.of_codes(tensors[name]) for name in index["entries"]),
        tuple(index["exits"]),
        tuple(_step(step) for step in index["steps"]),
        index["batch_free"],
    )


def check_files(folder: Path, index: JsonObject) -> None:
    """Compare every file with its hash. Raises ExactnessError for the first that differs."""
    groups = [index["constants"], *(case["tensors"] for case in index["cases"])]
    groups += [place[kind] for place in index["places"] for kind in ("constants", "tensors")]
    for where in (where for group in groups for where in group.values()):
        for ending, wanted in where["sha256"].items():
            path = folder / f"{where['file']}.{ending}"
            if sha256(path) != wanted:
                raise ExactnessError("changed since it was written", node=str(path))


def check(folder: Path, index: JsonObject, program: Program) -> int:
    """Compute every case and place again; returns the number of codes compared.

    Raises ExactnessError for the first tensor that differs from the program's result.
    """
    count = 0
    for case in index["cases"]:
        codes = {n: _read(folder, index, n, w) for n, w in case["tensors"].items()}
        if codes.keys() >= {*index["entries"]}:
            entries = {n: codes[n] for n in index["entries"]}
            for name, wanted in run(program, entries, [*codes]).items():
                count += _compare(f"cases/{case['name']}", name, codes[name], wanted)
    for place in index["places"]:
        count += _check_place(folder, index, program, place)
    return count


def _check_place(folder: Path, index: JsonObject, program: Program, place: JsonObject) -> int:
    codes: dict[str, Array] = {n: np.asarray(c, np.int64) for n, c in program.constants.items()}
    for name, where in place["constants"].items():
        codes[name] = _read(folder, index, name, where, place["shapes"][name])
    for name, where in place["tensors"].items():
        codes[name] = _read(folder, index, name, where, place["shapes"][name])
    count, folder_of = 0, f"place of {place['layer']}"
    layer = next(layer for layer in index["layers"] if layer["name"] == place["layer"])
    for step in (s for s in program.steps if s.output in layer["steps"]):
        if all(name in codes for name in step.inputs):
            inputs = [codes[name] for name in step.inputs]
            wanted = step.definition.compute(_at_a_place(step.attrs), inputs)
            count += _compare(folder_of, step.output, codes[step.output], wanted)
    for i, row in enumerate(place["rows"]):
        after = codes[row["tensor"]][i].reshape(-1)[row["channel"]]
        _compare(folder_of, row["tensor"], np.asarray(after), np.asarray(row["after"]))
    return count


def _at_a_place(attrs: Attributes) -> Attributes:
    """The attributes of a step whose input is a single window."""
    if isinstance(attrs, WindowAttrs):
        return replace(attrs, strides=ONE, dilations=ONE, pads=NO_PADS)
    return attrs


def _read(
    folder: Path,
    index: JsonObject,
    name: str,
    where: JsonObject,
    shape: Sequence[int] | None = None,
) -> Array:
    """A tensor, if its files are equal."""
    facts = index["tensors"][name]
    sizes = tuple(facts["shape"] if shape is None else shape)
    found = {e: read(folder / where["file"], facts, sizes, e) for e in where["sha256"]}
    for ending, codes in found.items():
        _compare(f"{where['file']}.{ending}", name, codes, found["npy"])
    return found["npy"]


def _compare(place: str, name: str, found: Array, wanted: Array) -> int:
    differ = int(np.count_nonzero(found != wanted))
    if differ:
        raise ExactnessError(f"{differ} codes in {place} differ", node=name)
    return int(np.size(found))


def _tensor(name: str, facts: JsonObject) -> Tensor:
    low, high, exponent = facts["low"], facts["high"], facts["exponent"]
    held = exponent if isinstance(exponent, int) else tuple(exponent)
    return Tensor(name, tuple(facts["shape"]), low, high, max(-low, high), held)


def _step(step: JsonObject) -> Step:
    attrs = {key: _tuples(value) for key, value in step["attrs"].items()}
    return Step(step["op"], tuple(step["inputs"]), step["output"], attrs)


def _tuples(value: object) -> object:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
