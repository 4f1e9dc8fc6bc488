"""SQNR of the outputs and time, by the method that chooses thresholds of activations."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np

from benchmarks.real.cases import cifar, mobilenet_v1
from benchmarks.tables import Table
from qgraph.choices import CalibrationMethod, Equalization
from qgraph.ir.graph import Graph
from qgraph.passes import PassManager
from qgraph.quant.plan import Plan
from qgraph.quant.profile import Profile, load_profile
from qgraph.recipes import FLOAT
from qgraph.rewrite.trace import Trace
from qgraph.static.agreement import Agreement, agreement
from qgraph.static.build import build

NETWORKS = 12  # the number of random networks
WINDOW = {"strides": (1, 1), "dilations": (1, 1), "padding": "same"}


def tables() -> Iterator[Table]:
    yield _real()
    yield _residual()


def _real() -> Table:
    table = Table(
        "Thresholds, real networks",
        {"network": "", "method": "", "SQNR dB": ".2f", "as float": ".1%", "seconds": ".1f"},
        notes=["the same plan except the method: see benchmarks/real/thresholds.py"],
    )
    in8 = Plan(constant_channels=0.1, equalize=Equalization.WEIGHTS, correct_bias=True)
    in4 = Plan(
        constant_channels=0.03,
        equalize=Equalization.BIASES,
        reconstruct=True,
        correct_bias=True,
    )
    folded = Plan(constant_channels=0.1, equalize=Equalization.BIASES, correct_bias=True)
    small, large = cifar(), mobilenet_v1()
    table.notes += [small.images, large.images]
    for case, bits, profile, plan in (
        (small, "8/8", "graffitist-int8", in8),
        (small, "4/8", "graffitist-int4", in4),
        (large, "8/8", "graffitist-int8", folded),
    ):
        for method in CalibrationMethod:
            start = time.perf_counter()
            _, graph = case.built(replace(plan, method=method), profile)
            seconds, found = time.perf_counter() - start, case.agreement(graph)
            table.add(f"{case.title}, {bits}", method, found.sqnr, found.top1, seconds)
    return table


def _residual() -> Table:
    table = Table(
        f"Thresholds, {NETWORKS} random residual networks with scale groups",
        {"activations": "", "method": "", "groups": "", "mean SQNR dB": ".2f",
         "least": ".2f", "seconds": ".1f"},
        notes=["64 samples to calibrate, 64 others to compare"],
    )  # fmt: skip
    profile = load_profile("graffitist-int8")
    narrow = replace(profile, bits=replace(profile.bits, activation=4))
    for bits, target in (("8 bits", profile), ("4 bits", narrow)):
        for method in CalibrationMethod:
            for jointly in (True, False) if method in ("mse", "output") else (False,):
                with _groups(jointly):
                    found = [_random(seed, target, method) for seed in range(NETWORKS)]
                sqnr = [agreement.sqnr for agreement, _ in found]
                seconds = sum(seconds for _, seconds in found)
                groups = "joint" if jointly else "widest member"
                table.add(bits, method, groups, float(np.mean(sqnr)), min(sqnr), seconds)
    return table


def _groups(jointly: bool) -> AbstractContextManager[Any]:
    return nullcontext() if jointly else mock.patch("qgraph.quant.calibrate.FINER", {})


def _random(seed: int, profile: Profile, method: CalibrationMethod) -> tuple[Agreement, float]:
    rng = np.random.default_rng(100 + seed)
    data, test = ({"x": rng.laplace(size=(64, 8, 8, 3)).astype(np.float32)} for _ in range(2))
    model = residual(seed)
    original = model.copy()
    PassManager(FLOAT).run(original)
    start = time.perf_counter()
    _, graph = build(model, profile, Plan(correct_bias=True, method=method), data, Trace())
    seconds = time.perf_counter() - start
    return agreement(original, graph, test), seconds


def residual(seed: int, blocks: int = 6, channels: int = 16) -> Graph:
    """A random network of sums and concats, whose branches have different ranges."""
    rng, graph = np.random.default_rng(seed), Graph("residual")

    def conv(x: str, inputs: int, outputs: int, scale: float = 1.0) -> str:
        spread = scale * np.exp(rng.normal(0, 0.5, outputs)) / np.sqrt(9 * inputs)
        w = (rng.standard_t(4, (3, 3, inputs, outputs)) * spread).astype(np.float32)
        bias = (rng.normal(size=outputs) * 0.1).astype(np.float32)
        y = graph.add("conv2d", x, graph.const(w, "w"), attrs=WINDOW)
        return graph.add("bias_add", y, graph.const(bias, "b"))

    x = graph.add("relu", conv(graph.input("x", "float32", (None, 8, 8, 3)), 3, channels))
    for _ in range(blocks):
        y = graph.add("relu", conv(x, channels, channels))
        y = conv(y, channels, channels, float(rng.choice([0.2, 1, 2])))
        x = graph.add("add", x, y)
        if rng.random() < 0.5:
            x = graph.add("relu", x)
        if rng.random() < 0.3:
            x = graph.add("concat", x, conv(x, channels, 4), attrs={"axis": 3})
            channels += 4
    pooled = graph.add("mean", x, attrs={"axes": (1, 2), "keepdims": False})
    head = graph.const(rng.normal(size=(channels, 10)).astype(np.float32), "w")
    graph.outputs["y"] = graph.add("matmul", pooled, head)
    return graph
