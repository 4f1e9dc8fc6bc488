"""The output directory of a quantized network. Two runs on one machine write the same bytes."""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import numpy as np

from qgraph.backends.tf.emit import emit_graph_def, tf_io_names
from qgraph.distribution import version, version_of
from qgraph.exact.bounds import accumulator_bits
from qgraph.exact.compare import original
from qgraph.exact.float_parts import float_between, float_nodes, integer_values
from qgraph.exact.reference import Reference
from qgraph.files import Reserved, reserved, sha256_of
from qgraph.frontends.sources import source_arrays
from qgraph.frontends.tf.opaque import foreign_ops
from qgraph.ir.graph import Graph
from qgraph.ir.ops.linear import COMPUTE
from qgraph.ir.printing import print_graph
from qgraph.ir.reading import kind_of, spec_of, value_of
from qgraph.ir.types import Array, Fixed, QuantSpec, Role
from qgraph.npz import write_npz
from qgraph.program import storage
from qgraph.quant.profile import dump_profile
from qgraph.quant.topology import QUANTIZERS, sources
from qgraph.records import JSON, to_json
from qgraph.stored.code_constants import on_grid
from qgraph.stored.fixed_point_network import FixedPointNetwork
from qgraph.stored.float_constants import packed
from qgraph.stored.manifest import (
    FORMAT,
    AloneEntry,
    Exponent,
    FloatOpEntry,
    GroupEntry,
    LayerEntry,
    Manifest,
    StatisticsEntry,
    TensorEntry,
)

FILES = MappingProxyType(
    {
        "inference.pb": "the network for TensorFlow, with stock ops, exact to the bit",
        "tensors.npz": "integer codes of weights and activations on one sample, all exponents",
        "manifest.json": "versions, hashes, names, layers, bits, exponents, noise",
        "statistics.json": "histograms of the inputs of quantizers, and clipped values",
        "rewrites.json": "rewrites and refusals of each pass, with reasons",
        "graph.txt": "the quantized graph as text",
        "network.npz": "other constants, unknown ops and a few samples, for export and verify",
        "profile.yaml": "the target profile, for --profile",
        "float.txt": "the float network as text, for evaluate",
        "float.npz": "constants of the float network that network.npz does not have",
        "exponents.json": "the exponent of each tensor, for --exponents",
    }
)
# Written later by `qgraph report`, `verify` and `evaluate`, and replaced together with the files.
REPORT, CERTIFICATE, EVALUATION = "report.html", "certificate.json", "evaluation.json"
EARLIER = ("saved_model",)  # files that earlier versions wrote


def reserve(path: Path, *, force: bool = False) -> AbstractContextManager[Reserved]:
    """Reserve a path for `write`. `force` lets it replace the files of an earlier run.

    Raises OutputError if the path contains other files, or another run uses it.
    """
    return reserved(path, (*FILES, REPORT, CERTIFICATE, EVALUATION, *EARLIER), force=force)


def save(result: FixedPointNetwork, path: Path, *, force: bool = False) -> Path:
    """`reserve`, and `write` at once."""
    with reserve(path, force=force) as place:
        write(result, place)
    return path


def write(result: FixedPointNetwork, place: Reserved) -> None:
    """Write all files of `result`, completely or not at all. Raises OutputError.

    A network with an op that TensorFlow does not have gets no inference.pb.
    """
    with place.written() as draft:
        if not foreign_ops(result.graph):
            graph_def = emit_graph_def(result.graph, result.bounds)
            (draft / "inference.pb").write_bytes(graph_def.SerializeToString(deterministic=True))
        write_npz(draft / "tensors.npz", tensors(result), compressed=True)
        graph, coded = on_grid(result.graph)
        arrays = {
            **constants("constant", graph, without=coded),
            **source_arrays(graph),
            **sample_arrays(result),
        }
        write_npz(draft / "network.npz", arrays, compressed=True)
        _write_json(draft / "rewrites.json", to_json(result.trace.stored))
        (draft / "graph.txt").write_text(print_graph(graph), "utf-8")
        original = result.original or result.floating
        (draft / "float.txt").write_text(print_graph(original), "utf-8")
        floats = {**constants("constant", original), **source_arrays(original)}
        of_codes = {name: value_of(graph.nodes[name]) for name in coded}
        write_npz(
            draft / "float.npz", packed(other_arrays(floats, arrays), of_codes), compressed=True
        )
        (draft / "profile.yaml").write_text(dump_profile(result.profile), "utf-8")
        (draft / "exponents.json").write_text(result.exponents.dump(), "utf-8")
        (draft / "statistics.json").write_text(statistics(result), "utf-8")
        hashes = {name: sha256_of(draft / name) for name in FILES if (draft / name).exists()}
        about = replace(manifest(result), files=hashes)
        _write_json(draft / "manifest.json", to_json(about))


def _write_json(path: Path, data: JSON) -> None:
    path.write_text(json.dumps(data, indent=1) + "\n", "utf-8")


def other_arrays(arrays: Mapping[str, Array], known: Mapping[str, Array]) -> dict[str, Array]:
    """The arrays that another file does not have by the same name, bit for bit."""

    def is_known(name: str, array: Array) -> bool:
        other = known.get(name)
        if other is None or (other.dtype, other.shape) != (array.dtype, array.shape):
            return False
        return other.tobytes() == array.tobytes()

    return {name: array for name, array in arrays.items() if not is_known(name, array)}


# -- tensors --------------------------------------------------------------------------------


def tensors(result: FixedPointNetwork) -> dict[str, Array]:
    """`codes/<tensor>` and `exponent/<tensor>` of integer values: `codes * 2^-exponent`.

    Codes are those of weights, biases, activations, and of what leaves the integer part. Values
    between, such as sums before they are rounded, have an exponent only, because the reference
    computes them from the others. Activations are those of one calibration sample, which is stored
    as `input/<name>`.
    """
    graph = result.graph
    whole = integer_values(graph)
    values = Reference(graph).run(result.sample, whole)
    arrays: dict[str, Array] = {f"input/{name}": array for name, array in result.sample.items()}
    for node in (n for n in graph.topological() if n.name in whole):
        name, value = node.name, values[node.name]
        assert isinstance(value, Fixed)
        leaves = graph.is_output(name) or any(u.name not in whole for u in graph.users(name))
        if node.op in QUANTIZERS or leaves:
            arrays[f"codes/{name}"] = value.codes.astype(storage_of(result, name))
        arrays[f"exponent/{name}"] = np.asarray(value.exponent, np.int32)
    return arrays


def storage_of(result: FixedPointNetwork, name: str) -> str:
    """The smallest numpy integer that holds every code that a tensor can have."""
    node, bound = result.graph.nodes[name], result.bounds.get(name)
    if node.op in QUANTIZERS:
        return storage(spec_of(node).lo, spec_of(node).hi)
    return storage(bound.low, bound.high) if bound is not None else "int64"


def constants(kind: str, graph: Graph, without: Collection[str] = ()) -> dict[str, Array]:
    """Constants by `kind/<name>`, except those of text, which a file of arrays cannot hold."""
    nodes = (n for n in graph.topological() if n.op == "const" and n.name not in without)
    return {
        f"{kind}/{node.name}": value_of(node) for node in nodes if value_of(node).dtype != object
    }


def sample_arrays(result: FixedPointNetwork) -> dict[str, Array]:
    """`sample/<name>`: the samples that noise was measured on."""
    return {f"sample/{name}": array for name, array in result.measured_samples.items()}


# -- statistics -----------------------------------------------------------------------------


def statistics(result: FixedPointNetwork) -> str:
    """Statistics of the float input of every quantizer, as JSON with one tensor per line.

    `counts` leave out zeros; bin i begins at `(first_bin + i) * 2^log2_width`. `vanished` elements
    round to zero. `sqnr_alone_db` is the SQNR with this quantizer alone. `max_exponent` is the
    finest exponent that clips nothing, null if all elements are zero.
    """
    measured = result.measured
    outputs = {name: finite(value) for name, value in measured.outputs.items()}
    tensors = ",\n".join(
        f"  {json.dumps(name)}: {json.dumps(to_json(_statistics(result, name)))}"
        for name in measured.statistics
    )
    return (
        f'{{\n "samples": {measured.samples},\n "outputs_sqnr_db": {json.dumps(outputs)},\n'
        f' "tensors": {{\n{tensors}\n }}\n}}\n'
    )


def _statistics(result: FixedPointNetwork, name: str) -> StatisticsEntry:
    found = result.measured.statistics[name]
    spec = spec_of(result.graph.nodes[name])
    coarsest, alone = found.max_exponent(spec), None
    if isinstance(spec.exponent, int):
        best = None if coarsest is None else finite(found.sqnr(spec, coarsest))
        alone = AloneEntry(finite(found.sqnr(spec, spec.exponent)), best)
    return StatisticsEntry(
        found.histogram.low,
        found.histogram.high,
        found.elements,
        found.histogram.zeros,
        found.below,
        found.above,
        found.vanished,
        coarsest,
        *found.few_bins(),
        alone,
    )


# -- manifest -------------------------------------------------------------------------------


def manifest(result: FixedPointNetwork) -> Manifest:
    """The manifest of a network, except the hashes of its files."""
    graph = result.graph
    return Manifest(
        FORMAT,
        versions(),
        result.facts,
        sorted(graph.facts),
        result.calibration.method,
        result.profile,
        {name: str(graph.types[name]) for name in graph.inputs},
        {public: str(graph.types[value]) for public, value in graph.outputs.items()},
        tf_io_names(graph).changed,
        layers(result),
        [_tensor(result, n.name) for n in graph.topological() if n.op in QUANTIZERS],
        scale_groups(graph),
        float_ops(graph),
    )


def versions() -> dict[str, str]:
    """Versions of the packages that an output depends on."""
    return {
        "python": platform.python_version(),
        "qgraph": version(),
        "numpy": version_of("numpy"),
        "tensorflow": version_of("tensorflow"),
    }


def finite(value: float | None) -> float | None:
    """`value` with two decimals; None for None and for infinity (no noise)."""
    return round(value, 2) if value is not None and math.isfinite(value) else None


def _tensor(result: FixedPointNetwork, name: str) -> TensorEntry:
    spec = spec_of(result.graph.nodes[name])
    return TensorEntry(
        name,
        original(result.graph, name),
        spec.role,
        spec.bits,
        spec.signed,
        spec.exponent,
        spec.group,
        finite(result.sqnr.get(name)),
    )


def layers(result: FixedPointNetwork) -> list[LayerEntry]:
    """One entry for each compute layer: bits, exponents, exactness bound, SQNR of its output."""
    found = []
    for node in result.graph.topological():
        bound = result.bounds.get(node.name)
        if node.op not in COMPUTE or bound is None:
            continue
        x, w = (result.graph.producer(v) for v in node.inputs)
        weight = spec_of(w)
        last = last_quantizer(result.graph, node.name)
        output = spec_of(result.graph.nodes[last]) if last else None
        found.append(
            LayerEntry(
                name=node.name,
                op=node.op,
                input=x.name,
                input_scales=sources(result.graph, node.inputs[0]),
                weight=w.name,
                weight_bits=weight.bits,
                weight_exponent=weight.exponent,
                output=last,
                output_bits=output.bits if output else None,
                output_exponent=output.exponent if output else None,
                sqnr_db=finite(result.sqnr.get(last or "")),
                accumulator_bound=bound.magnitude,
                accumulator_bits=accumulator_bits(result.graph, result.bounds, node.name),
                exact_in=bound.exact_in,
            )
        )
    return found


def last_quantizer(graph: Graph, name: str) -> str | None:
    """The quantizer of a layer's output: the last one in the chain of single users."""
    last, value = None, name
    while True:
        node = graph.nodes[value]
        if node.op in QUANTIZERS:
            last = node.name
        users = graph.users(value)
        if (
            len(users) != 1
            or users[0].op in COMPUTE
            or (last and node.op in QUANTIZERS and _narrow(spec_of(node)))
        ):
            return last
        value = users[0].name


def _narrow(spec: QuantSpec) -> bool:
    return spec.role in (Role.ACTIVATION, Role.INPUT)


def scale_groups(graph: Graph) -> dict[str, GroupEntry]:
    groups: dict[str, list[str]] = {}
    exponents: dict[str, Exponent] = {}
    for node in graph.topological():
        if node.op in QUANTIZERS and spec_of(node).group:
            spec = spec_of(node)
            exponents.setdefault(str(spec.group), spec.exponent)
            groups.setdefault(str(spec.group), []).append(node.name)
    return {name: GroupEntry(exponents[name], members) for name, members in groups.items()}


def float_ops(graph: Graph) -> list[FloatOpEntry]:
    """Ops that are computed in float, outside the integer graph, in the graph's order."""
    between = {node.name for node in float_between(graph)}
    return [
        FloatOpEntry(node.name, kind_of(node), node.name in between) for node in float_nodes(graph)
    ]
