"""Time the networks of AcceRL's table 6: ``python -m benchmarks.compression networks``."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from benchmarks.actor_speed import ORT as PEER
from benchmarks.actor_speed import observations, onnx_model, turns
from benchmarks.broadcast.policies import drawn_weights
from benchmarks.peers.onnx_runtime import OnnxRuntime
from benchmarks.result import JsonFile, report
from benchmarks.tables import Table
from qgraph.rl.actor import Actor, ActorProgram, ActorStep, Packer
from qgraph.rl.compress.students import NETWORKS, program_of

PAPER = {"original": 6.0, "net1": 2.5, "net2": 1.9, "net3": 1.2}  # ms, AcceRL, table 6
BITS = (32, 8, 4)
ACTIONS = 6  # of Pong


def networks(json_file: JsonFile = None) -> None:
    """Time the networks of table 6 in turns, one observation at a time."""
    calls: dict[tuple[str, int | str], Any] = {}
    sizes: dict[tuple[str, int], int] = {}
    for name, network in NETWORKS.items():
        program = program_of(network, _pong())
        x, weights = observations(program, 1), drawn_weights(program)
        session = OnnxRuntime(onnx_model(program, weights))
        calls[name, PEER] = partial(session.run_nchw, np.ascontiguousarray(x.transpose(0, 3, 1, 2)))
        for bits in BITS:
            block = Packer(program, bits).pack(weights)
            calls[name, bits], sizes[name, bits] = partial(Actor(block), x), block.nbytes
    times = {key: float(np.median(found)) for key, found in turns(calls).items()}
    whole, peer = times["original", BITS[0]], times["original", PEER]
    table = Table(
        "Networks of AcceRL's table 6: us an observation",
        {"network": "", **{f"{_name(b)}, us": ".1f" for b in BITS}, f"{PEER}, us": ".1f",
         **{f"{_name(b)}, times": ".2f" for b in BITS}, "int8, times of the peer": ".2f",
         "the paper's times": ".2f", "int8 block, MB": ".2f"},
        notes=["times: time of the original in float32 divided by the time of the network; "
               "medians, one thread",
               f"of the peer: the same ratio, of both networks in {PEER}",
               "the paper's: the same ratio as the paper measured it, in float32, on its machine",
               "strides are those of the Nature network, because the paper does not state them"],
    )  # fmt: skip
    for name in NETWORKS:
        own = [times[name, bits] for bits in BITS]
        table.add(
            name, *own, times[name, PEER], *(whole / t for t in own), peer / times[name, 8],
            PAPER["original"] / PAPER[name], sizes[name, 8] / 1e6,
        )  # fmt: skip
    report("benchmarks.compression", [table], json_file)


def _pong() -> ActorProgram:
    """A program with the observations and outputs of Pong; a student uses nothing else of it."""
    shapes = {"kernel": (84 * 84 * 4, ACTIONS), "bias": (ACTIONS,)}
    steps = (ActorStep("flatten", ("observation",), "flat"),
             ActorStep("dense", ("flat",), "logits", ("kernel", "bias")))  # fmt: skip
    return ActorProgram((84, 84, 4), steps, ("logits",), shapes)


def _name(bits: int) -> str:
    return "float32" if bits == BITS[0] else f"int{bits}"
