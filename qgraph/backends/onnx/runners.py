"""Run written models: in ONNX Runtime with graph optimisations on and off, and in `qonnx`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import onnx
from onnx import helper

from qgraph.archives import JsonObject
from qgraph.backends.network_forms import Runner
from qgraph.backends.onnx.builder import metadata_of
from qgraph.distribution import install_hint
from qgraph.errors import ExactnessError, UnsupportedError
from qgraph.foreign import OnnxObject
from qgraph.ir.types import Array
from qgraph.ops.movement import TO_NHWC


def onnx_runtime(path: Path) -> Runner:
    """Runs a written file unchanged, and once more without optimizations for inner values.

    Raises ExactnessError if the two give different codes.
    """
    file = onnx.load(path)
    meta = metadata_of(file)
    model = integer_part(file, meta)
    inner = with_outputs(model, (t["value"] for t in meta["tensors"].values()))
    whole = with_own_weights(model) or (path if model is file else model)
    optimised, plain = session(whole, optimised=True), session(inner, optimised=False)
    inside = [o.name for o in plain.get_outputs()]
    exits = {name: e["value"] for name, e in meta["exits"].items()}

    def run(codes: Mapping[str, Array]) -> dict[str, Array]:
        feeds = feeds_of(meta, codes)
        found = dict(zip(exits, optimised.run(list(exits.values()), feeds), strict=True))
        values = dict(zip(inside, plain.run(inside, feeds), strict=True))
        for name, value in exits.items():
            check_same(name, found[name], values[value])
        return codes_of(meta, {**shown(meta, values), **found})

    return run


def integer_part(model: onnx.ModelProto, meta: JsonObject) -> onnx.ModelProto:
    """The part of a model from its entries to its exits; the model itself if it has no other."""
    graph = model.graph
    starts = [entry["input"] for entry in meta["entries"].values()]
    ends = [one["value"] for one in meta["exits"].values()]
    given, made = ({v.name for v in values} for values in (graph.input, graph.output))
    if given == {*starts} and made == {*ends}:
        return model
    known = {v.name: v for v in (*graph.input, *graph.output, *graph.value_info)}
    needed, kept = {*ends}, list[onnx.NodeProto]()
    for node in reversed(graph.node):
        if needed & {*node.output} - {*starts}:
            needed |= {*node.input}
            kept.append(node)
    part = onnx.ModelProto()
    part.CopyFrom(model)
    del part.graph.node[:], part.graph.input[:], part.graph.output[:]
    part.graph.node.extend(reversed(kept))
    part.graph.input.extend(known[name] for name in starts)
    part.graph.output.extend(known[name] for name in ends)
    return part


def qonnx_executor(path: Path) -> Runner:
    """Runs a written file with the executor of the `qonnx` package, which returns inner values.

    Raises UnsupportedError if the package is not installed.
    """
    qonnx_package()
    model = onnx.load(path)
    meta = metadata_of(model)

    def run(codes: Mapping[str, Array]) -> dict[str, Array]:
        feeds = feeds_of(meta, codes)
        batch = len(next(iter(feeds.values()))) if meta["batch_free"] else None
        values = qonnx_values(model if batch is None else with_batch(model, batch), feeds)
        exits = {name: values[e["value"]] for name, e in meta["exits"].items()}
        return codes_of(meta, {**shown(meta, values), **exits})

    return run


def qonnx_values(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> Mapping[str, Array]:
    """Every value of a model of known shapes. Raises UnsupportedError without `qonnx`."""
    executor, wrapper = qonnx_package()
    with _readable(executor, model.ir_version):
        values: Mapping[str, Array] = executor.execute_onnx(
            wrapper(model), feeds, return_full_exec_context=True
        )
    return values


def qonnx_package() -> tuple[OnnxObject, OnnxObject]:
    """The executor and the class of its models. Raises UnsupportedError if it is missing."""
    try:
        from qonnx.core import onnx_exec
        from qonnx.core.modelwrapper import ModelWrapper
    except ImportError:
        raise UnsupportedError(
            "qonnx is not installed", hint=install_hint("qonnx", extra="qonnx")
        ) from None
    return onnx_exec, ModelWrapper


@contextmanager
def _readable(executor: OnnxObject, ir_version: int) -> Iterator[None]:
    """The executor makes a model of each node with onnx's newest IR, newer than ONNX Runtime's."""
    make = executor.qonnx_make_model
    executor.qonnx_make_model = partial(make, ir_version=ir_version)
    try:
        yield
    finally:
        executor.qonnx_make_model = make


def session(model: onnx.ModelProto | Path, optimised: bool) -> OnnxObject:
    """An ONNX Runtime session on the CPU. Raises UnsupportedError if it is not installed."""
    try:
        import onnxruntime
    except ImportError:
        raise UnsupportedError(
            "ONNX Runtime is not installed", hint=install_hint("onnxruntime")
        ) from None
    levels = onnxruntime.GraphOptimizationLevel
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = (
        levels.ORT_ENABLE_ALL if optimised else levels.ORT_DISABLE_ALL
    )
    options.log_severity_level = 3
    # For CPUs without VNNI, whose fastest products of uint8 and int8 saturate at 16 bits.
    options.add_session_config_entry("session.x64quantprecision", "1")
    source = str(model) if isinstance(model, Path) else model.SerializeToString()
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def with_outputs(model: onnx.ModelProto, values: Iterable[str]) -> onnx.ModelProto:
    """A copy with these values as outputs too. The runtime infers their types."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    there = {o.name for o in copy.graph.output}
    copy.graph.output.extend(
        helper.make_empty_tensor_value_info(v) for v in dict.fromkeys(values) if v not in there
    )
    return copy


def with_own_weights(model: onnx.ModelProto) -> onnx.ModelProto | None:
    """A copy in which no nodes share dequantized weights; None if no nodes share them.

    `session.x64quantprecision` rewrites 8-bit weights once for each product that takes them, and
    ONNX Runtime 1.32 fails at the second rewrite of one initializer.
    """
    constants = {i.name: i for i in model.graph.initializer}
    uses: dict[str, list[tuple[onnx.NodeProto, int]]] = {}
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for node in copy.graph.node:
        for place, value in enumerate(node.input):
            uses.setdefault(value, []).append((node, place))
    shared = [
        node
        for node in copy.graph.node
        if node.op_type == "DequantizeLinear"
        and constants.keys() >= set(node.input)
        and len(uses.get(node.output[0], ())) > 1
    ]
    for node in shared:
        for count, (user, place) in enumerate(uses[node.output[0]][1:], start=1):
            own = onnx.NodeProto()
            own.CopyFrom(node)
            own.name = own.output[0] = user.input[place] = f"{node.output[0]}/use{count}"
            for i, value in enumerate(node.input):
                own.input[i] = f"{value}/use{count}"
                held = copy.graph.initializer.add()
                held.CopyFrom(constants[value])
                held.name = own.input[i]
            copy.graph.node.insert(0, own)
    return copy if shared else None


def with_batch(model: onnx.ModelProto, batch: int) -> onnx.ModelProto:
    """A copy for this number of samples, with known shapes; the model has one sample."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    graph = copy.graph
    constants = {i.name for i in graph.initializer}
    custom = {n.output[0] for n in graph.node if n.domain and n.input[0] not in constants}
    kept = {n.output[0] for n in graph.node if n.domain}
    values = [v for v in graph.value_info if v.name in kept]
    del graph.value_info[:]
    graph.value_info.extend(values)
    for value in (*graph.input, *graph.output, *(v for v in graph.value_info if v.name in custom)):
        value.type.tensor_type.shape.dim[0].dim_value = batch
    return onnx.shape_inference.infer_shapes(copy, strict_mode=True)


def check_same(name: str, optimised: Array, plain: Array) -> None:
    """Raise ExactnessError unless both runs gave the same codes."""
    if not np.array_equal(optimised, plain):
        wrong = int(np.count_nonzero(optimised != plain))
        raise ExactnessError(
            f"ONNX Runtime gives other codes with graph optimisations on: {wrong} of {plain.size}",
            node=name,
        )


def shown(meta: JsonObject, values: Mapping[str, Array]) -> dict[str, Array]:
    """Inner tensors by name, NHWC, from ONNX values by name: values if the model holds values."""
    found: dict[str, Array] = {}
    for name, tensor in meta["tensors"].items():
        value = values[tensor["value"]]
        moved = value.transpose(TO_NHWC) if tensor["layout"] == "NCHW" else value
        found[name] = _unstored(moved, tensor)
    return found


def _unstored(value: Array, tensor: JsonObject) -> Array:
    """Float values of a tensor that is stored as codes plus a zero point; others as they are."""
    if "zero" not in tensor:
        return value
    codes = value.astype(np.float64) - tensor["zero"]
    values: Array = np.ldexp(codes, -np.asarray(tensor["exponent"]))
    return values


def feeds_of(meta: JsonObject, codes: Mapping[str, Array]) -> dict[str, Array]:
    """Feeds of a model: codes, or their values in float32."""
    feeds: dict[str, Array] = {}
    for name, entry in meta["entries"].items():
        given = codes[name]
        if meta["holds"] == "values":
            given = np.ldexp(given.astype(np.float64), -np.asarray(entry["exponent"]))
        feeds[entry["input"]] = given.astype(
            "float32" if meta["holds"] == "values" else entry["dtype"]
        )
    return feeds


def codes_of(meta: JsonObject, found: Mapping[str, Array]) -> dict[str, Array]:
    """Codes of a model's outputs: whole numbers in int64, or float64 if some are between codes."""
    if meta["holds"] == "codes":
        return {name: value.astype(np.int64) for name, value in found.items()}
    about = {**meta["tensors"], **meta["exits"]}
    made: dict[str, Array] = {}
    for name, value in found.items():
        codes = np.ldexp(value.astype(np.float64), np.asarray(about[name]["exponent"]))
        whole = bool(np.all(np.isfinite(codes))) and bool(np.all(codes == np.rint(codes)))
        made[name] = codes.astype(np.int64) if whole else codes
    return made
