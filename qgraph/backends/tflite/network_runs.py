"""Run `.tflite` files with float ops as they are used: from the network's sample."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from qgraph.archives import JsonObject
from qgraph.backends.network_forms import Network
from qgraph.backends.tflite.arithmetic import TfliteExecutor
from qgraph.backends.tflite.executors import (
    codes_of_runs,
    fed,
    inputs_of,
    sessions_of,
)
from qgraph.backends.tflite.model_builder import metadata_of
from qgraph.backends.whole_outputs import check_outputs
from qgraph.exact.reference import Reference
from qgraph.ir.types import Array, Fixed


class TfliteSampleRun:
    """A run of a file in one executor, from the network's sample.

    Attributes:
        codes: Codes of all tensors that can be read, by name.
        outputs: Float outputs by the network's names; none of a file from codes to codes.
    """

    def __init__(self, executor: TfliteExecutor, path: Path, network: Network) -> None:
        data = path.read_bytes()
        meta, sessions = metadata_of(data), sessions_of(executor, data)
        feeds = _feeds(meta, network)
        inputs = [feeds[number] for number in inputs_of(data)]
        found = codes_of_runs(meta, sessions, inputs, [*meta["outputs"].values()])
        self.codes = {name: array for name, array in found.items() if isinstance(name, str)}
        self.outputs = {name: found[number] for name, number in meta["outputs"].items()}


def runs_from_sample(path: Path, network: Network) -> bool:
    """Whether a file has the float ops of its network, which has a sample."""
    meta = metadata_of(path.read_bytes())
    return meta["inputs"] is not None and network.sample.keys() >= {*network.graph.inputs}


def check_sample(executor: TfliteExecutor, path: Path, network: Network) -> None:
    """Compare the outputs of a file with float ops with the network's, on its sample.

    Raises ExactnessError if they differ.
    """
    ran = TfliteSampleRun(executor, path, network)
    if ran.outputs:
        check_outputs(network, ran.outputs, ran.codes)


def _feeds(meta: JsonObject, network: Network) -> Mapping[int, Array]:
    """Inputs of a file by number: float values, or codes of the first segment."""
    found = {int(number): network.sample[name] for name, number in meta["inputs"].items()}
    types = {int(about["index"]): str(about["type"]) for about in meta["entries"].values()}
    if found:
        integers = {n: array for n, array in found.items() if array.dtype.kind == "i"}
        return found | {n: a.astype(types.get(n, a.dtype)) for n, a in integers.items()}
    begin = [entry.tensor for entry in network.program.entries if not entry.segment]
    values = Reference(network.graph).run(network.sample, begin)
    return {
        int(meta["entries"][name]["index"]): fed(meta["entries"][name], value.codes)
        for name, value in values.items()
        if isinstance(value, Fixed)
    }
