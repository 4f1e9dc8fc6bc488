"""Labelled samples: calibration data with labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from qgraph.errors import CalibrationError, UsageError
from qgraph.ir.graph import Graph
from qgraph.ir.types import Array
from qgraph.names import entry_name
from qgraph.quant.samples.data import check_arrays, check_source
from qgraph.quant.samples.labels import LABELS, OF_OUTPUT, labels_among
from qgraph.quant.samples.sources import NUMBERS, read_file, read_source

DATA = "test data"
SAVE_HINT = "numpy.savez(FILE, NAME_OF_INPUT=samples, labels=labels)"

Source = str | Path | Mapping[str, Array]


@dataclass(frozen=True)
class Labelled:
    """Samples by input name, and labels by the name of the output that they are for."""

    inputs: Mapping[str, Array]
    labels: Mapping[str, Array]

    @property
    def samples(self) -> int:
        return len(next(iter(self.inputs.values())))

    def last(self, count: int) -> Labelled:
        """The last `count` samples, at least 1. Raises UsageError for fewer."""
        if count < 1:
            raise UsageError(f"the number of held-out samples must be at least 1, not {count}")
        inputs, labels = (
            {name: array[-count:] for name, array in arrays.items()}
            for arrays in (self.inputs, self.labels)
        )
        return Labelled(inputs, labels)


def labelled(
    source: Source, graph: Graph, output: str | None = None, limit: int | None = None
) -> Labelled:
    """The first `limit` samples of `source`, checked against the inputs and outputs of `graph`.

    `source` is read like calibration data (`qgraph.quant.samples.data.load_data`), or is arrays by
    name. Labels are the array `labels`, `label` or `y`; where a network has several outputs, arrays
    named like these or `labels/NAME`, or `output` selects the one that the labels are for.
    Raises CalibrationError, and UsageError for an output that does not exist.
    """
    arrays = _read(source, limit)
    names = _label_names(arrays, graph, output)
    named = {name: arrays[name] for name in arrays if name not in names.values()}
    found = Labelled(
        check_arrays(named, graph, DATA, limit),
        {public: _checked(arrays[name], name)[:limit] for public, name in names.items()},
    )
    for public, array in found.labels.items():
        if len(array) != found.samples:
            raise CalibrationError(
                f"there are {len(array)} labels for {found.samples} samples",
                node=f"labels `{names[public]}`",
                hint="give one for each sample, in the same order",
            )
    return found


def has_labels(source: object, inputs: Sequence[str], outputs: Sequence[str]) -> bool:
    """Whether `source` is a `.npz`, or a directory of them, with labels for such a network."""
    if not isinstance(source, str | Path) or not Path(source).exists():
        return False
    path = Path(source)
    first = min(path.glob("*.npz"), default=None) if path.is_dir() else path
    if first is None:
        return False
    arrays = read_file(first)
    own = any(f"{OF_OUTPUT}{name}" in arrays for name in outputs)
    return own or (len(outputs) == 1 and labels_among(arrays, inputs) is not None)


def _read(source: Source, limit: int | None) -> Mapping[str, Array]:
    if isinstance(source, Mapping):
        return {name: np.asarray(array) for name, array in source.items()}
    check_source(source, DATA)
    return read_source(source, limit, labels=True)


def _listed(arrays: Mapping[str, Array]) -> str:
    return "one array without a name" if [*arrays] == [""] else str(sorted(arrays))


def _checked(labels: Array, name: str) -> Array:
    if labels.dtype.kind not in NUMBERS or not labels.ndim:
        raise CalibrationError(
            f"dtype {labels.dtype} and shape {labels.shape}, not numbers for each sample",
            node=f"labels `{name}`",
            hint="give the index of each sample's class, or the output that it should have",
        )
    return labels


def _label_names(arrays: Mapping[str, Array], graph: Graph, output: str | None) -> dict[str, str]:
    """The array of labels for each output that has one."""
    outputs = [*graph.outputs]
    if output is not None and output not in outputs:
        raise UsageError(f"unknown output `{output}`", hint=f"outputs: {', '.join(outputs)}")
    chosen = outputs if output is None else [output]
    found = {public: name for public in chosen if (name := _own_labels(arrays, graph, public))}
    if found:
        return found
    general = labels_among(arrays, graph.inputs)
    if general is None:
        raise CalibrationError(
            f"{DATA} has no labels: found {_listed(arrays)}",
            hint=f"name them {', '.join(LABELS[:-1])} or {LABELS[-1]}: {SAVE_HINT}",
        )
    if len(chosen) > 1:
        raise CalibrationError(
            f"`{general}` could be for any of the outputs {', '.join(outputs)}",
            hint=f"name the array {OF_OUTPUT}NAME, or choose an output: --output NAME",
        )
    return {chosen[0]: general}


def _own_labels(arrays: Mapping[str, Array], graph: Graph, output: str) -> str | None:
    """The array that is named like an output."""
    entry = entry_name(output)
    spellings = (OF_OUTPUT + output, OF_OUTPUT + entry, output, entry)
    names = (name for name in spellings if name in arrays and name not in graph.inputs)
    return next(names, None)
