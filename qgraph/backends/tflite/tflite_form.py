"""`.tflite` as a form of a network (`qgraph.backends.network_forms`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from qgraph.backends.io_names import left_to_the_host
from qgraph.backends.network_forms import Network, Runner, refusal_by
from qgraph.backends.tflite.arithmetic import (
    ARITHMETICS,
    BYTES,
    TfliteArithmetic,
    TfliteExecutor,
)
from qgraph.backends.tflite.emission import TfliteEmission
from qgraph.backends.tflite.executors import runner_in, same_in_all, titled
from qgraph.backends.tflite.model_builder import metadata_of
from qgraph.backends.tflite.network_file import tflite_data
from qgraph.backends.tflite.network_runs import TfliteSampleRun, check_sample, runs_from_sample
from qgraph.errors import UnsupportedError
from qgraph.ir.types import Array, rounding_of_numbers
from qgraph.ops.lowerings import Lowerings
from qgraph.program.ops import RequantizeAttrs

FILE = "network.tflite"
MAKE_CODES = ("requantize", "lookup", "embedding")


@dataclass(frozen=True)
class TfliteForm:
    """Stock operators of TFLite on int8 or int16.

    codes: whether inputs and outputs are codes, not float values.
    """

    codes: bool = False
    name: ClassVar[str] = "tflite"
    lowerings: ClassVar[Lowerings[object]] = TfliteEmission.lowerings

    def refusal(self, network: Network) -> str | None:
        return refusal_by(lambda: self.emit(network))

    def write(self, network: Network, folder: Path) -> None:
        (folder / FILE).write_bytes(self.emit(network))

    def emit(self, network: Network) -> bytes:
        """The file for the executors whose arithmetic the network's profile has.

        Raises UnsupportedError, with the reason of the arithmetic that is nearest to the profile.
        """
        reasons: list[UnsupportedError] = []
        for arithmetic in _by_likeness(network):
            try:
                return tflite_data(network, arithmetic, self.codes)
            except UnsupportedError as error:
                reasons.append(error)
        raise reasons[0]

    def renamed(self, network: Network) -> Mapping[str, str]:
        meta = metadata_of(self.emit(network))
        held = {name: str(about["name"]) for name, about in meta["tensors"].items()}
        ends = {name: str(about["name"]) for name, about in meta["exits"].items()}
        return {name: value for name, value in {**held, **ends}.items() if name != value}

    def warnings(self, network: Network) -> list[str]:
        """List what the file lacks, and weights that some executors may not compute exactly."""
        meta = metadata_of(self.emit(network))
        found = []
        if not meta["complete"] and meta["inputs"] is not None:
            listed = ", ".join(f"`{name}`" for name in meta["ends"])
            found.append(f"the outputs are {listed}; compute the float ops behind them on the host")
        elif not meta["complete"]:
            because = ""
            if meta["missing"] is not None:
                node, message = meta["missing"]
                because = f", because TFLite does not support `{node}`: {message}"
            ends = (str(one["name"]) for one in meta["exits"].values())
            found.append(left_to_the_host(ends, because))
        if meta["lowest_weights"]:
            layers = ", ".join(f"`{name}`" for name in meta["lowest_weights"])
            int8 = any(a.stored == BYTES for a in ARITHMETICS if a.name == meta["arithmetic"])
            where = ": XNNPACK's kernels for Arm without dot products may overflow"
            found.append(
                f"weights of {layers} contain -128, but TFLite specifies -127..127"
                + (where if int8 else "")
            )
        return found

    def runners(self, network: Network, folder: Path) -> Mapping[str, Runner]:
        """A runner for each executor that the file is made for, by name and version."""
        path = folder / FILE
        return {titled(one): runner_in(one, path) for one in executors_of(path)}

    def runner(self, network: Network, folder: Path) -> Runner:
        return same_in_all(self.runners(network, folder))

    def executed_in(self, network: Network, folder: Path) -> Mapping[str, Mapping[str, Array]]:
        """Codes of runs from the sample through float islands, by executor."""
        path = folder / FILE
        if not runs_from_sample(path, network):
            return {}
        return {
            titled(one): TfliteSampleRun(one, path, network).codes for one in executors_of(path)
        }

    def check(self, network: Network, folder: Path) -> None:
        """Compare outputs behind float ops with those of the network, on its sample."""
        path = folder / FILE
        if runs_from_sample(path, network):
            for executor in executors_of(path):
                check_sample(executor, path, network)


def executors_of(path: Path) -> list[TfliteExecutor]:
    """The executors that a file is made for."""
    return [TfliteExecutor(name) for name in metadata_of(path.read_bytes())["executors"]]


def _by_likeness(network: Network) -> list[TfliteArithmetic]:
    """Arithmetics, those first that round as the program does.

    Those of int16 are left out if all codes have 8 bits.
    """
    program = network.program
    floats = {rounding_of_numbers(entry.spec.rounding) for entry in program.entries}
    layers = {
        step.attrs_as(RequantizeAttrs).rounding for step in program.steps if step.op == "requantize"
    }
    made = [step.output for step in program.steps if step.op in MAKE_CODES]
    held = [program.tensors[name] for name in (*made, *(e.tensor for e in program.entries))]
    wide = not all(BYTES.fit(tensor.low, tensor.high) for tensor in held)
    known = [one for one in ARITHMETICS if wide or one.stored == BYTES]

    def unlike(one: TfliteArithmetic) -> tuple[bool, bool, bool]:
        return one.layers not in layers, one.inputs not in floats, wide and one.stored == BYTES

    return sorted(known, key=unlike)
