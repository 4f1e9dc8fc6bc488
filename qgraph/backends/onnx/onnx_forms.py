"""The ONNX formats as forms of a network (`qgraph.backends.network_forms`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import onnx

from qgraph.backends.io_names import io_names_of, is_program_alone, left_to_the_host
from qgraph.backends.network_forms import Network, Runner, refusal_by
from qgraph.backends.onnx.boundary_models import dequantize_model, quantize_model
from qgraph.backends.onnx.builder import metadata_of, save, with_older_opset
from qgraph.backends.onnx.emission import ProgramEmission
from qgraph.backends.onnx.float_parts import reserved_names, with_float_parts, with_islands
from qgraph.backends.onnx.integer import IntegerEmission
from qgraph.backends.onnx.qdq import QdqEmission
from qgraph.backends.onnx.qonnx import QonnxEmission
from qgraph.backends.onnx.qoperator import QOperatorEmission
from qgraph.backends.onnx.runners import onnx_runtime, qonnx_executor
from qgraph.backends.onnx.whole_runs import check_whole, run_from_codes, run_from_values
from qgraph.backends.onnx.xint8 import Xint8Emission
from qgraph.backends.onnx.xint8_limits import (
    LAYER_SHIFTS,
    RECOMMENDED_OPSET,
    ops_beside_layers,
    shifts_out_of_range,
)
from qgraph.distribution import version_of
from qgraph.errors import UnsupportedError
from qgraph.ir.types import Array
from qgraph.names import onnx_name
from qgraph.ops.lowerings import Lowerings

FILE = "network.onnx"
MOST_NAMES = 3  # in a warning


@dataclass(frozen=True)
class OnnxForm:
    """A file that an emission writes."""

    name: str
    emission: ClassVar[type[ProgramEmission]]

    @property
    def lowerings(self) -> Lowerings[object]:
        return self.emission.lowerings

    def refusal(self, network: Network) -> str | None:
        return refusal_by(lambda: self.emit(network))

    def write(self, network: Network, folder: Path) -> None:
        save(self.emit(network), folder / FILE)

    def emit(self, network: Network) -> onnx.ModelProto:
        """The model, with outputs under the user's names."""
        return self.emitter(network).emit()

    def emitter(self, network: Network) -> ProgramEmission:
        publics: dict[str, str] = {}
        for public, value in network.graph.outputs.items():
            publics.setdefault(value, public)
        return self.emission(network.program, publics)

    def renamed(self, network: Network) -> Mapping[str, str]:
        meta = metadata_of(self.emit(network))
        held = {name: str(about["value"]) for name, about in meta["tensors"].items()}
        ends = {name: str(about["value"]) for name, about in meta["exits"].items()}
        return {name: value for name, value in {**held, **ends}.items() if name != value}

    def runner(self, network: Network, folder: Path) -> Runner:
        return onnx_runtime(folder / FILE)

    def executor(self) -> str:
        return f"ONNX Runtime {version_of('onnxruntime')}"


@dataclass(frozen=True)
class OnnxInteger(OnnxForm):
    """Integer ops only, for every profile, from codes to codes. Two small models convert floats to
    codes and codes to floats."""

    name: str = "onnx-integer"
    emission: ClassVar[type[ProgramEmission]] = IntegerEmission

    def write(self, network: Network, folder: Path) -> None:
        model, _ = self._model(network)
        save(model, folder / FILE)
        save(quantize_model(network.program), folder / "quantize.onnx")
        given = {value.name for value in model.graph.output}
        outputs = {n: o for n, o in self.emitter(network).outputs.items() if o in given}
        save(dequantize_model(network.program, outputs), folder / "dequantize.onnx")

    def emit(self, network: Network) -> onnx.ModelProto:
        """The model with the float islands of the network, if ONNX supports their ops.

        Otherwise entries and exits of every segment are inputs and outputs.
        """
        model, _ = self._model(network)
        return model

    def warnings(self, network: Network) -> list[str]:
        model, missing = self._model(network)
        return [] if missing is None else [_incomplete(model, missing)]

    def executed(self, network: Network, folder: Path) -> Mapping[str, Array]:
        return run_from_codes(folder / FILE, network)

    def _model(self, network: Network) -> tuple[onnx.ModelProto, UnsupportedError | None]:
        core = self.emitter(network).emit()
        if not network.program.has_islands:
            return core, None
        try:
            return with_islands(core, network), None
        except UnsupportedError as error:
            return core, error


@dataclass(frozen=True)
class OnnxFromValues(OnnxForm):
    """A file from float values to float values, with the float ops before and after."""

    def emit(self, network: Network) -> onnx.ModelProto:
        """The model with the network's own inputs and outputs, if ONNX supports its float ops.

        Otherwise its inputs are the float values that become codes, and its outputs those of codes.
        """
        model, _ = self._model(network)
        return model

    def warnings(self, network: Network) -> list[str]:
        model, missing = self._model(network)
        return [] if missing is None else [_incomplete(model, missing)]

    def _model(self, network: Network) -> tuple[onnx.ModelProto, UnsupportedError | None]:
        """The model, and the reason why it has no float parts, if the network has some."""
        core = self.emitter(network).emit()
        if is_program_alone(network):
            return core, None
        try:
            return with_float_parts(core, network), None
        except UnsupportedError as error:  # an op of TensorFlow, which ONNX does not have
            return core, error

    def emitter(self, network: Network) -> ProgramEmission:
        publics: dict[str, str] = {}
        for public, name in io_names_of(network.graph, onnx_name).outputs.items():
            publics.setdefault(network.graph.outputs[public], name)
        return self.emission(network.program, publics, reserved_names(network.graph))

    def executed(self, network: Network, folder: Path) -> Mapping[str, Array]:
        return run_from_values(folder / FILE, network)

    def check(self, network: Network, folder: Path) -> None:
        if not is_program_alone(network):
            check_whole(folder / FILE, network)


@dataclass(frozen=True)
class OnnxQdq(OnnxFromValues):
    """QuantizeLinear and DequantizeLinear around float ops."""

    name: str = "onnx-qdq"
    emission: ClassVar[type[ProgramEmission]] = QdqEmission


@dataclass(frozen=True)
class OnnxQoperator(OnnxFromValues):
    """QLinearConv, QGemm and other QLinear ops of ONNX Runtime; integer ops where none is exact."""

    name: str = "onnx-qoperator"
    emission: ClassVar[type[ProgramEmission]] = QOperatorEmission

    def warnings(self, network: Network) -> list[str]:
        """Report layers that are not QLinear ops."""
        emission, found = QOperatorEmission(network.program), super().warnings(network)
        others, total = emission.not_linear, len(emission.layers)
        if others:
            names = _listed([f"`{name}`" for name in others])
            stages = "; profiles without 16-bit stages, such as `int32-bias`, avoid this"
            found.append(
                f"{len(others)} of {total} layers are not QLinear ops, but ConvInteger or MatMul"
                f"Integer and integer ops: {names}{stages if 2 * len(others) > total else ''}"
            )
        return found


@dataclass(frozen=True)
class OnnxXint8(OnnxFromValues):
    """QDQ in the shape of AMD's XINT8: int8 with zero point 0 everywhere."""

    name: str = "onnx-xint8"
    emission: ClassVar[type[ProgramEmission]] = Xint8Emission

    def warnings(self, network: Network) -> list[str]:
        """Report what the NPU of Ryzen AI lacks, although the file is exact on a CPU."""
        found = super().warnings(network)
        others = ops_beside_layers(network.program)
        if others:
            found.append(
                f"{len(others)} ops are not in the shape of XINT8, so an NPU may leave them to the "
                f"CPU: {_listed(others)}"
            )
        shifts = shifts_out_of_range(network.program)
        if shifts:
            names = _listed([f"`{name}` by {shift}" for name, shift in shifts.items()])
            low, high = LAYER_SHIFTS
            found.append(
                f"the results of {len(shifts)} layers are shifted by less than {low} or more than "
                f"{high}, which is outside the limits that AMD Quark keeps for NPUs: {names}"
            )
        return found

    def _model(self, network: Network) -> tuple[onnx.ModelProto, UnsupportedError | None]:
        model, missing = super()._model(network)
        return with_older_opset(model, RECOMMENDED_OPSET), missing


@dataclass(frozen=True)
class Qonnx(OnnxForm):
    """Quant nodes around float ops, for the `qonnx` package: values in, values out."""

    name: str = "qonnx"
    emission: ClassVar[type[ProgramEmission]] = QonnxEmission

    def runner(self, network: Network, folder: Path) -> Runner:
        return qonnx_executor(folder / FILE)

    def executor(self) -> str:
        return f"qonnx {version_of('qonnx')}"


def _listed(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more


def _incomplete(model: onnx.ModelProto, missing: UnsupportedError) -> str:
    because = f", because ONNX does not support `{missing.node}`: {missing.message}"
    return left_to_the_host((value.name for value in model.graph.output), because)


FORMS = (OnnxInteger(), OnnxQdq(), OnnxQoperator(), OnnxXint8(), Qonnx())
