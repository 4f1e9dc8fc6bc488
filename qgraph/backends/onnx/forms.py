"""The three ways out, as forms of a network (`qgraph.backends.forms`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import onnx

from qgraph.backends.forms import Network, Runner
from qgraph.backends.onnx.builder import IR_OF_OPSET, metadata_of, save
from qgraph.backends.onnx.emission import Emission
from qgraph.backends.onnx.integer import IntegerEmission
from qgraph.backends.onnx.qdq import QdqEmission
from qgraph.backends.onnx.qonnx import QonnxEmission
from qgraph.backends.onnx.session import (
    as_codes,
    same,
    session,
    shown,
    values_of,
    with_batch,
    with_outputs,
)
from qgraph.errors import ExactnessError, UnsupportedError
from qgraph.ir.types import Array

FILE = "network.onnx"


@dataclass(frozen=True)
class OnnxInteger:
    """Integer ops only, for every profile: codes in, codes out."""

    name: str = "onnx-integer"
    emission: ClassVar[type[Emission]] = IntegerEmission

    def refusal(self, network: Network) -> str | None:
        try:
            self.emission(network.program).emit()
        except (UnsupportedError, ExactnessError) as error:
            return str(error)
        return None

    def write(self, network: Network, folder: Path) -> None:
        save(self.emission(network.program).emit(), folder / FILE)

    def runner(self, network: Network, folder: Path) -> Runner:
        return integer_runner(folder / FILE)


def integer_runner(path: Path) -> Runner:
    """Runs a written file as it is, and once more without optimisations for what is inside."""
    model = onnx.load(path)
    meta = metadata_of(model)
    inner = with_outputs(model, (t["value"] for t in meta["tensors"].values()))
    optimised, plain = session(path, optimised=True), session(inner, optimised=False)
    exits = {name: e["value"] for name, e in meta["exits"].items()}

    def run(codes: Mapping[str, Array]) -> dict[str, Array]:
        feeds = {e["input"]: codes[name].astype(e["dtype"]) for name, e in meta["entries"].items()}
        found = dict(zip(exits, optimised.run(list(exits.values()), feeds), strict=True))
        names = [o.name for o in plain.get_outputs()]
        values = dict(zip(names, plain.run(names, feeds), strict=True))
        for name, value in exits.items():
            same(name, found[name], values[value])
        return {n: v.astype(np.int64) for n, v in {**shown(model, values), **found}.items()}

    return run


@dataclass(frozen=True)
class OnnxQdq(OnnxInteger):
    """QuantizeLinear and DequantizeLinear around float ops: values in, values out."""

    name: str = "onnx-qdq"
    emission: ClassVar[type[Emission]] = QdqEmission

    def runner(self, network: Network, folder: Path) -> Runner:
        return value_runner(folder / FILE)


def value_runner(path: Path) -> Runner:
    """As `integer_runner`, for a model of values: codes are made of them on the way in and out."""
    model = onnx.load(path)
    meta = metadata_of(model)
    inner = with_outputs(model, (t["value"] for t in meta["tensors"].values()))
    optimised, plain = session(path, optimised=True), session(inner, optimised=False)

    def run(codes: Mapping[str, Array]) -> dict[str, Array]:
        feeds = {
            e["input"]: values_of(codes[name], e["exponent"]) for name, e in meta["entries"].items()
        }
        found = dict(zip(meta["exits"], optimised.run(list(meta["exits"]), feeds), strict=True))
        names = [o.name for o in plain.get_outputs()]
        values = dict(zip(names, plain.run(names, feeds), strict=True))
        for name in meta["exits"]:
            same(name, found[name], values[name])
        exponents = {**meta["tensors"], **meta["exits"]}
        return {
            name: as_codes(name, value, exponents[name]["exponent"])
            for name, value in {**shown(model, values), **found}.items()
        }

    return run


@dataclass(frozen=True)
class Qonnx(OnnxInteger):
    """Quant nodes around float ops, for the `qonnx` package: values in, values out."""

    name: str = "qonnx"
    emission: ClassVar[type[Emission]] = QonnxEmission

    def runner(self, network: Network, folder: Path) -> Runner:
        return qonnx_runner(folder / FILE)


def qonnx_runner(path: Path) -> Runner:
    """By the executor of the `qonnx` package, which gives every value inside."""
    try:
        from qonnx.core import onnx_exec
        from qonnx.core.modelwrapper import ModelWrapper
    except ImportError:
        raise UnsupportedError(
            "qonnx is not installed", hint="pip install 'qgraph[qonnx]'"
        ) from None
    model = onnx.load(path)
    meta = metadata_of(model)

    def run(codes: Mapping[str, Array]) -> dict[str, Array]:
        feeds = {
            e["input"]: values_of(codes[name], e["exponent"]) for name, e in meta["entries"].items()
        }
        batch = len(next(iter(feeds.values()))) if meta["batch_free"] else None
        sized = model if batch is None else with_batch(model, batch)
        with _readable(onnx_exec):
            values = onnx_exec.execute_onnx(ModelWrapper(sized), feeds, True)
        exponents = {**meta["tensors"], **meta["exits"]}
        found = {**shown(model, values), **{name: values[name] for name in meta["exits"]}}
        return {name: as_codes(name, v, exponents[name]["exponent"]) for name, v in found.items()}

    return run


@contextmanager
def _readable(executor: Any) -> Iterator[None]:
    """The executor makes a model of each node, of onnx's newest IR: ONNX Runtime's may be older."""
    make = executor.qonnx_make_model
    executor.qonnx_make_model = partial(make, ir_version=IR_OF_OPSET[QonnxEmission.opset])
    try:
        yield
    finally:
        executor.qonnx_make_model = make


FORMS = (OnnxInteger(), OnnxQdq(), Qonnx())
