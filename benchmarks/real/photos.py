"""MobileNetV1, calibrated on enlarged CIFAR-10 images, on photos, beside other tools."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from benchmarks import assets
from benchmarks.peers.float_onnx import float_onnx
from benchmarks.peers.litert import LiteRT, full_integer
from benchmarks.peers.onnx_runtime import OnnxRuntime, quantized
from benchmarks.real.measure import same_class, sqnr, statistics_weight
from benchmarks.real.mobilenet import BACKGROUND, CALIBRATION, LOGITS, enlarged
from benchmarks.real.views import VIEWS, Shares, Views, labelled, others
from benchmarks.tables import Table
from qgraph.backends.tf.emit import emit_graph_def
from qgraph.backends.tf.program import TFProgram
from qgraph.compiler import quantize
from qgraph.exact.compare import measure
from qgraph.exact.statistics import Statistics
from qgraph.frontends import load
from qgraph.ir.graph import Graph
from qgraph.ir.ops.structure import QuantizerAttrs
from qgraph.ir.reading import spec_of
from qgraph.ir.types import Array
from qgraph.quant.topology import QUANTIZERS

PICTURES = 1000
FEW_PHOTOS = 16
CORRECTED = "constant-channels=0.1,method=mse,correct-bias"
RECONSTRUCTED = "constant-channels=0.1,method=mse,reconstruct"
OURS: Mapping[str, dict[str, Any]] = {
    "plain": {"effort": "plain"},
    "no data": {"data": None},
    "fast": {"effort": "fast"},
    f"`{CORRECTED}`": {"plan": CORRECTED},
    f"`{RECONSTRUCTED}`": {"plan": RECONSTRUCTED},
}
STATISTICS_WEIGHTS = (0.0, 1.0)  # weights of batch-norm statistics to compare with the default one
PEERS = ("LiteRT", "ONNX Runtime, per channel")

Predict = Callable[[Array], Array]


def tables() -> Iterator[Table]:
    model = load(assets.mobilenet_v1(), outputs=[LOGITS])
    calibration = enlarged(assets.cifar10_train()[0][:CALIBRATION])
    scene = _Scene.of(model)
    answers: dict[str, _NetworkResults] = {}
    for name, predict in _peers(model, calibration).items():
        answers[name] = scene.answers(predict)
    for name, options in OURS.items():
        data = options.get("data", calibration)
        result = quantize(model, data, **{k: v for k, v in options.items() if k != "data"})
        predict = partial(_tensorflow, TFProgram(emit_graph_def(result.graph)))
        answers[f"qgraph, {name}"] = scene.answers(predict)
        if options.get("plan") == RECONSTRUCTED:
            layers = _layers(result.floating, result.graph, scene)
    for share in STATISTICS_WEIGHTS:
        with statistics_weight(share):
            graph = quantize(model, calibration, plan=RECONSTRUCTED).graph
        predict = partial(_tensorflow, TFProgram(emit_graph_def(graph)))
        answers[f"the same, remembered counts {share:g}"] = scene.answers(predict)
    yield scene.table(answers)
    yield layers


@dataclass(frozen=True)
class _NetworkResults:
    photos: Array
    others: Array
    pictures: Array


@dataclass(frozen=True)
class _Scene:
    """Images for all networks, and the float network's results for them."""

    photos: Views
    others: Views
    pictures: Array
    wanted: _NetworkResults

    @staticmethod
    def of(model: Graph) -> _Scene:
        seen = labelled(), others(), enlarged(assets.cifar10_test()[0][:PICTURES])
        program = partial(_tensorflow, TFProgram(emit_graph_def(model)))
        wanted = _NetworkResults(*map(program, (seen[0].images, seen[1].images, seen[2])))
        return _Scene(*seen, wanted)

    def answers(self, predict: Predict) -> _NetworkResults:
        return _NetworkResults(
            *map(predict, (self.photos.images, self.others.images, self.pictures))
        )

    def table(self, answers: Mapping[str, _NetworkResults]) -> Table:
        assert self.photos.classes is not None
        labels, wanted = self.photos.classes + BACKGROUND, self.wanted
        table = Table(
            f"MobileNetV1 on {len(labels)} views of {self.photos.photos} photos, %",
            {"what": "", "photos right": "d", "views right": ".1f", "as float": ".1f",
             "of those that float has right": ".1f",
             **{f"as float, above {peer}": ".1f" for peer in PEERS},
             "SQNR dB": ".1f", "other photos, as float": ".1f",
             f"other photos, above {PEERS[0]}": ".1f", "CIFAR-10, as float": ".1%"},
            notes=[f"calibrated on {CALIBRATION} CIFAR-10 training images at 224; CIFAR-10: "
                   f"{PICTURES} test images",
                   "photos right: the whole square of each, as it is; ±: one standard error, over "
                   "photos drawn again (views of a photo are not independent)",
                   f"other photos: {VIEWS} views of each of {self.others.photos}, without classes"],
        )  # fmt: skip
        everyone = {"float32": wanted, **answers}
        shares = Shares(self.photos.photos)
        said = {name: found.photos.argmax(1) for name, found in everyone.items()}
        same = _ViewComparison(shares, {n: s == said["float32"] for n, s in said.items()})
        seen = {name: found.others.argmax(1) for name, found in everyone.items()}
        others = _ViewComparison(
            Shares(self.others.photos), {n: s == seen["float32"] for n, s in seen.items()}
        )
        for name, found in everyone.items():
            right = said[name] == labels
            table.add(
                name,
                int(right[::VIEWS].sum()),
                shares.of(right).percent,
                same.share(name),
                shares.of(same.hits[name], said["float32"] == labels).percent,
                *(same.above(name, peer) for peer in PEERS),
                None if found is wanted else sqnr(wanted.photos, found.photos),
                others.share(name),
                others.above(name, PEERS[0]),
                same_class(found.pictures, wanted.pictures),
            )
        return table


@dataclass(frozen=True)
class _ViewComparison:
    """Views whose class is that of float, for each network, and differences between networks."""

    shares: Shares
    hits: Mapping[str, Array]

    def share(self, name: str) -> list[float]:
        return self.shares.of(self.hits[name]).percent

    def above(self, name: str, peer: str) -> list[float] | None:
        if name == peer:
            return None
        return self.shares.between(self.hits[name], self.hits[peer]).percent


def _tensorflow(program: TFProgram, images: Array) -> Array:
    return program.predict("input", images, LOGITS, 1)


def _peers(model: Graph, calibration: Array) -> dict[str, Predict]:
    """Full int8 by other tools, calibrated on the same images."""
    plain = float_onnx(model)
    few = calibration[:2]
    wanted = _tensorflow(TFProgram(emit_graph_def(model)), few)
    if not np.allclose(OnnxRuntime(plain).predict(few, 1), wanted, atol=1e-3):
        raise AssertionError("the ONNX file is another network")
    found: dict[str, Predict] = {"LiteRT": LiteRT(full_integer(model, calibration, 1)).predict}
    for title, per_channel in (("per channel", True), ("per tensor", False)):
        made = quantized(plain, calibration, 1, per_channel)
        # Its integer kernels saturate on processors without VNNI.
        session = OnnxRuntime(made, optimized=False)
        found[f"ONNX Runtime, {title}"] = partial(session.predict, batch=1)
    return found


def _layers(floating: Graph, graph: Graph, scene: _Scene) -> Table:
    """Layers that lose more on photos than on CIFAR-10 images."""
    table = Table(
        f"MobileNetV1, `{RECONSTRUCTED}`, layer by layer",
        {"tensor": "", "largest code": ".4g", "SQNR dB, CIFAR-10": ".1f", "photos": ".1f",
         "clipped, CIFAR-10": ".3%", "clipped, photos": ".3%"},
        notes=[f"{FEW_PHOTOS} images of each"],
    )  # fmt: skip
    pictures, photos = (
        measure(graph, floating, {"input": np.ascontiguousarray(images)})
        for images in (scene.pictures[:FEW_PHOTOS], scene.photos.images[::VIEWS][:FEW_PHOTOS])
    )
    for node in graph.topological():
        if node.op not in QUANTIZERS or spec_of(node).role not in ("input", "activation"):
            continue
        attrs = node.typed(QuantizerAttrs)
        table.add(
            node.name.removeprefix("MobilenetV1/"),
            float(np.ldexp(attrs.spec.hi, -attrs.exponent)),
            *(seen.sqnr[node.name] for seen in (pictures, photos)),
            *(_clipped(seen.statistics[node.name]) for seen in (pictures, photos)),
        )
    return table


def _clipped(statistics: Statistics) -> float:
    return (statistics.below + statistics.above) / statistics.elements
