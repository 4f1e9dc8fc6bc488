"""Run written models as they are used: from the network's sample, through float islands."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import onnx

from qgraph.archives import JsonObject
from qgraph.backends.io_names import io_names_of
from qgraph.backends.network_forms import Network
from qgraph.backends.onnx.builder import metadata_of
from qgraph.backends.onnx.runners import codes_of, session, shown, with_outputs, with_own_weights
from qgraph.backends.whole_outputs import check_outputs
from qgraph.errors import ExactnessError
from qgraph.exact.reference import Reference
from qgraph.ir.types import Array, Fixed
from qgraph.names import onnx_name


def run_from_values(path: Path, network: Network) -> Mapping[str, Array]:
    """Codes of all tensors of a model in values; empty if it has no float ops."""
    model = onnx.load(path)
    if not network.sample or not _has_float_parts(model, network):
        return {}
    names = io_names_of(network.graph, onnx_name).inputs
    feeds = {names[name]: network.sample[name] for name in network.graph.inputs}
    return _run(with_own_weights(model) or model, feeds)


def run_from_codes(path: Path, network: Network) -> Mapping[str, Array]:
    """Codes of all tensors of a model in codes; empty if it has no float islands."""
    model = onnx.load(path)
    meta = metadata_of(model)
    wanted = {value.name for value in model.graph.input}
    entries = network.program.entries
    if not network.sample or all(meta["entries"][e.tensor]["input"] in wanted for e in entries):
        return {}
    begin = [entry.tensor for entry in entries if not entry.segment]
    found = Reference(network.graph).run(network.sample, begin)
    feeds = {
        meta["entries"][name]["input"]: value.codes.astype(meta["entries"][name]["dtype"])
        for name, value in found.items()
        if isinstance(value, Fixed)
    }
    names = io_names_of(network.graph, onnx_name).inputs
    feeds |= {
        names[name]: network.sample[name] for name in network.graph.inputs if names[name] in wanted
    }
    return _run(model, feeds)


def _run(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> Mapping[str, Array]:
    meta: JsonObject = metadata_of(model)
    exits = {name: about["value"] for name, about in meta["exits"].items()}
    inner = [about["value"] for about in meta["tensors"].values()]
    runs = session(with_outputs(model, [*inner, *exits.values()]), optimised=False)
    names = [value.name for value in runs.get_outputs()]
    values = {**feeds, **dict(zip(names, runs.run(names, feeds), strict=True))}
    ends = {name: values[value] for name, value in exits.items()}
    codes = codes_of(meta, {**shown(meta, values), **ends})
    between = [name for name, array in codes.items() if array.dtype.kind == "f"]
    if between:
        raise ExactnessError("its values are not on its grid", node=between[0])
    return codes


def check_whole(path: Path, network: Network) -> None:
    """Compare the outputs of a file, with its float ops, with the network's, on its sample.

    Behind float islands, the network begins with the codes of the file. Float ops differ between
    libraries in the last digits. Raises ExactnessError for larger errors.
    """
    if network.sample.keys() < {*network.graph.inputs} or not network.sample:
        return
    model = onnx.load(path)
    if not _has_float_parts(model, network):
        return
    names = io_names_of(network.graph, onnx_name)
    feeds = {names.inputs[name]: network.sample[name] for name in network.graph.inputs}
    runs = session(with_own_weights(model) or path, optimised=True)
    found = dict(zip(names.outputs, runs.run([*names.outputs.values()], feeds), strict=True))
    codes = run_from_values(path, network) if network.program.has_islands else {}
    check_outputs(network, found, codes)


def _has_float_parts(model: onnx.ModelProto, network: Network) -> bool:
    """Whether a file goes from the network's inputs to its outputs."""
    names = io_names_of(network.graph, onnx_name)
    ends = ((model.graph.input, names.inputs), (model.graph.output, names.outputs))
    return all({value.name for value in have} == {*own.values()} for have, own in ends)
