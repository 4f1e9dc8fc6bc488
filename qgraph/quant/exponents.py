"""Exponents of a calibrated network as text, which can be stored, edited and used in another run.

    {
     "format": 1,
     "plan": "equalize=biases,method=mse",
     "held_out": true,
     "features": {},
     "factors": {},
     "tensors": {
      "image/codes": {"exponent": 8, "bits": 8, "signed": false},
      "conv/weights/codes": {"exponent": 6, "bits": 8, "signed": true}
     }
    }

A tensor is a quantizer of the graph, `value = code * 2^-exponent`. Biases that are added to an
accumulator have its exponent and are not in the file. `bits` and `signed` are checked against the
graph; an entry may be an exponent alone. `features` are exponents of input features
(`scale-inputs`), by value. `factors` are the factors of the outputs of equalized layers
(`equalize=noise`, which computes them from samples), as log2 in sixteenths. Only `format` and
`tensors` are required.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeGuard

import numpy as np

from qgraph.errors import CalibrationError, first_line
from qgraph.files import write_whole
from qgraph.ir.graph import Graph, Node
from qgraph.ir.reading import spec_of
from qgraph.ir.types import Exponent, Role
from qgraph.names import path_text
from qgraph.numerics import checked_exponent, frozen_exponent
from qgraph.quant.topology import QUANTIZERS, followed_accumulator

FORMAT = 1
MAX_BYTES = 1 << 28  # bytes of a file
FILE = "exponents.json"

Features = Mapping[str, tuple[int, ...]]
Factors = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class TensorExponent:
    """The entry of one quantizer.

    Attributes:
        exponent: The code of x is `x * 2**exponent`, rounded; a tuple has one for each channel of
            the last axis.
        bits: Bits of the codes; None if unknown.
        signed: Whether codes are signed; None if unknown.

    Examples:
        >>> TensorExponent(7, bits=8, signed=True).exponent
        7
    """

    exponent: Exponent
    bits: int | None = None
    signed: bool | None = None


@dataclass(frozen=True)
class Exponents:
    """The exponents of a network, and the plan that its graph was built by.

    Attributes:
        tensors: Entries by quantizer.
        features: Exponents of the features of inputs with a scale for each, by value.
        plan: The plan as text; None if unknown.
        held_out: Whether corrections were learned on part of the samples, and the report used the
            others.
        factors: Factors of the outputs of equalized layers, as log2 in sixteenths, by layer.
        kept_scales: Whether the network keeps scales of an already quantized file.

    Examples:
        >>> Exponents({"image/codes": TensorExponent(8)}).tensors["image/codes"].exponent
        8
    """

    tensors: Mapping[str, TensorExponent]
    features: Features = field(default_factory=dict)
    plan: str | None = None
    held_out: bool = False
    factors: Factors = field(default_factory=dict)
    kept_scales: bool = False

    def dump(self) -> str:
        """The text form, one tensor in each line.

        Returns:
            Text that `load_exponents` reads from a file.
        """
        tensors = (
            f"  {json.dumps(name)}: {json.dumps(_plain(entry))}"
            for name, entry in self.tensors.items()
        )
        head = {
            "format": FORMAT,
            "plan": self.plan,
            "held_out": self.held_out,
            "features": dict(self.features),
            "factors": dict(self.factors),
            **({"kept_scales": True} if self.kept_scales else {}),
        }
        lines = "".join(
            f" {json.dumps(key)}: {json.dumps(value)},\n" for key, value in head.items()
        )
        return f'{{\n{lines} "tensors": {{\n' + ",\n".join(tensors) + "\n }\n}\n"

    def save(self, path: str | Path) -> Path:
        """Write the text form to a file, completely or not at all.

        Args:
            path: The file.

        Returns:
            The path.

        Raises:
            OutputError: The file cannot be written.
        """
        write_whole(Path(path), self.dump().encode())
        return Path(path)


def _plain(entry: TensorExponent) -> dict[str, object]:
    found = {"exponent": entry.exponent, "bits": entry.bits, "signed": entry.signed}
    return {key: value for key, value in found.items() if value is not None}


# -- reading --------------------------------------------------------------------------------


def load_exponents(source: str | Path | Mapping[str, object] | Exponents) -> Exponents:
    """Load exponents.

    Args:
        source: An `exponents.json`, or a mapping of quantizers to exponents.

    Returns:
        The exponents.

    Raises:
        CalibrationError: The file cannot be read, or an entry is wrong. It names the tensor or the
            key.

    Examples:
        >>> load_exponents({"image/codes": 8}).tensors["image/codes"].exponent
        8
    """
    if isinstance(source, Exponents):
        return source
    if isinstance(source, Mapping):
        return Exponents({name: _entry(name, value) for name, value in source.items()})
    path = Path(source)
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise ValueError(f"larger than {MAX_BYTES:,} bytes")
        data = json.loads(content, object_pairs_hook=_without_repetition)
    except OSError as error:
        raise CalibrationError(
            f"no exponents can be read: {error.strerror or error}", node=path_text(path)
        ) from None
    except (ValueError, RecursionError) as error:
        raise CalibrationError(
            f"not JSON as qgraph writes it: {first_line(error)}",
            node=path_text(path),
            hint=f"give the {FILE} of an output directory",
        ) from None
    try:
        return parse_exponents(data)
    except CalibrationError as error:
        error.message = f"{path_text(path)}: {error.message}"
        raise


def _without_repetition(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"`{twice}` occurs twice")
    return found


def parse_exponents(data: object) -> Exponents:
    """Read exponents from the plain data of a file.

    Args:
        data: What the JSON file contains.

    Returns:
        The exponents.

    Raises:
        CalibrationError: A key is unknown, or a value does not fit it.

    Examples:
        >>> data = {"format": 1, "tensors": {"image/codes": 8}}
        >>> parse_exponents(data).tensors["image/codes"].exponent
        8
    """
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise CalibrationError(
            f"not exponents of format {FORMAT}", hint=f"give the {FILE} of an output directory"
        )
    known = ("format", "plan", "held_out", "features", "factors", "kept_scales", "tensors")
    unknown = [key for key in data if key not in known]
    if unknown:
        raise CalibrationError(f"unknown key `{unknown[0]}`", hint=f"known: {', '.join(known)}")
    tensors, features = data.get("tensors"), data.get("features", {})
    plan, held_out = data.get("plan"), data.get("held_out", False)
    factors = data.get("factors", {})
    if not (isinstance(tensors, dict) and isinstance(features, dict) and isinstance(factors, dict)):
        raise CalibrationError("`tensors`, `features` and `factors` must be mappings")
    if plan is not None and not isinstance(plan, str):
        raise CalibrationError("`plan` must be text, as --plan takes it, or null")
    switches = {"held_out": held_out, "kept_scales": data.get("kept_scales", False)}
    for key, value in switches.items():
        if not isinstance(value, bool):
            raise CalibrationError(f"`{key}` must be true or false")
    return Exponents(
        {name: _entry(name, value) for name, value in tensors.items()},
        {
            name: checked_exponent(_integers(name, value, "features"), name)
            for name, value in features.items()
        },
        plan,
        held_out,
        {name: _integers(name, value, "channels") for name, value in factors.items()},
        bool(switches["kept_scales"]),
    )


def _entry(name: str, value: object) -> TensorExponent:
    given = value if isinstance(value, dict) else {"exponent": value}
    unknown = [key for key in given if key not in ("exponent", "bits", "signed")]
    if unknown or "exponent" not in given:
        wrong = f"unknown key `{unknown[0]}`" if unknown else "`exponent` is missing"
        raise CalibrationError(wrong, node=name, hint="known: exponent, bits, signed")
    bits, signed = given.get("bits"), given.get("signed")
    if not (bits is None or _is_whole(bits)) or not (signed is None or isinstance(signed, bool)):
        raise CalibrationError("`bits` is a whole number, `signed` true or false", node=name)
    exponent = given["exponent"]
    if isinstance(exponent, list | tuple) and exponent and all(map(_is_whole, exponent)):
        return TensorExponent(tuple(map(int, exponent)), bits, signed)
    if not _is_whole(exponent):
        raise CalibrationError(
            f"its exponent cannot be {_short(exponent)}",
            node=name,
            hint="a whole number, or a list of them, one for each channel",
        )
    return TensorExponent(int(exponent), bits, signed)


def _integers(name: str, value: object, of: str) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(map(_is_whole, value)):
        raise CalibrationError(f"exponents of {of} are a list of whole numbers", node=name)
    return tuple(map(int, value))


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}..."


# -- a graph's ------------------------------------------------------------------------------


def exponents_of(
    graph: Graph, features: Features, plan: str | None, held_out: bool = False
) -> Exponents:
    """The exponents of a calibrated graph.

    Args:
        graph: The graph, with quantizers.
        features: Exponents of input features.
        plan: The plan as text.
        held_out: As in `Exponents`.

    Returns:
        The exponents.

    Examples:
        >>> from qgraph.ir.graph import Graph
        >>> exponents_of(Graph(), {}, None).tensors
        {}
    """
    tensors = {}
    for node in chosen_quantizers(graph):
        spec = spec_of(node)
        exponent = spec.exponent
        assert exponent is not None
        tensors[node.name] = TensorExponent(frozen_exponent(exponent), spec.bits, spec.signed)
    return Exponents(tensors, dict(features), plan, held_out, dict(graph.factors))


def chosen_quantizers(graph: Graph) -> Iterator[Node]:
    """Quantizers whose exponents do not follow from others.

    Quantizers that wrap accumulators have the exponents of these, and are not among them.

    Args:
        graph: The graph.

    Returns:
        The quantizers, in the order of the graph.

    Examples:
        >>> from qgraph.ir.graph import Graph
        >>> list(chosen_quantizers(Graph()))
        []
    """
    for node in graph.topological():
        if node.op not in QUANTIZERS or spec_of(node).role == Role.ACCUMULATOR:
            continue
        if followed_accumulator(graph, node) is None:
            yield node
