"""Ten trained policies: int8 against float, on observations of their own environments.

The policies are no package: `QGRAPH_POLICIES` says where they are, or `shared/policies` beside the
checkout. With gymnasium installed, the float policy plays episodes and what it sees is the data,
and both policies then play the same other episodes; without it, observations are random.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.real.measure import batches, exactness, kept_float
from benchmarks.real.tables import Table
from qgraph.backends.tf.agreement import Checker
from qgraph.compiler import quantize
from qgraph.frontends import load
from qgraph.interpret import evaluate
from qgraph.ir.types import Array
from qgraph.quant.profile import load_profile

METHODS = ("kl_j", "max")
SAMPLES, EPISODES, FIRST_SEED = 512, 10, 9000

Policy = Callable[[Array], Array]


def folder() -> Path:
    beside = Path(__file__).parents[3] / "shared" / "policies"
    return Path(os.environ.get("QGRAPH_POLICIES") or beside)


def tables() -> Iterator[Table]:
    files = sorted(folder().glob("*.pb"))
    if not files:
        print(f"no policies in {folder()}: set QGRAPH_POLICIES to where they are; skipped")
        return
    played = importlib.util.find_spec("gymnasium") is not None
    table = Table(
        "Ten policies, graffitist-int8, static",
        {"policy": "", "method": "", "same action": ".1%", "largest action difference": ".3f",
         "of the range": ".1%", "return float": ".1f", "return int8": ".1f",
         "differ from reference": "", "stays float": ""},
        notes=[
            f"{SAMPLES} observations to calibrate, {SAMPLES} others to compare; "
            + ("from the float policy's episodes" if played else "random normal"),
            f"returns: mean of the same {EPISODES} seeded episodes",
            "same action: the discrete action where there is one; else the action within 1/100 "
            "of its range",
        ],
    )  # fmt: skip
    for file in files:
        for method in METHODS:
            _row(table, file, method, played)
    yield table


def _row(table: Table, file: Path, method: str, played: bool) -> None:
    about = json.loads(file.with_suffix(".json").read_text())
    model = load(file)

    def floating(observations: Array) -> Array:
        return evaluate(model, {"observation": observations})["action"]

    if played:
        seen = np.concatenate([_observations(about, floating, seed) for seed in range(4)])
        seen = np.random.default_rng(0).permutation(seen)
    else:
        size = (2 * SAMPLES, about["observation_size"])
        seen = np.random.default_rng(0).normal(size=size).astype(np.float32)
    half = min(SAMPLES, len(seen) // 2)
    calibration, test = seen[:half], seen[half : 2 * half]
    result = quantize(model, calibration, profile=load_profile("graffitist-int8"), method=method)
    checker = Checker(result.graph)

    def integer(observations: Array) -> Array:
        return checker.program.run({"observation": observations}, ["action"])[0]

    wanted, found = floating(test), integer(test)
    same = exactness(checker, batches("observation", test, len(test)))
    returns = [_returns(about, p) if played else None for p in (floating, integer)]
    off, span = float(np.abs(found - wanted).max()), float(np.ptp(wanted))
    table.add(
        file.stem, method, _same_action(about, wanted, found), off, off / span, *returns,
        str(same), kept_float(result),
    )  # fmt: skip


def _action(about: dict[str, Any], output: Array) -> Any:
    if about["action"].startswith("argmax"):
        return output.argmax(-1)
    if about["action"].startswith("clip"):
        return np.clip(output, -about["action_high"], about["action_high"])
    return output * about["action_high"]


def _same_action(about: dict[str, Any], wanted: Array, found: Array) -> float:
    ours, theirs = _action(about, found), _action(about, wanted)
    if ours.dtype.kind == "i":
        return float((ours == theirs).mean())
    return float((np.abs(ours - theirs) <= 0.02 * about["action_high"]).all(-1).mean())


def _episode(about: dict[str, Any], policy: Policy, seed: int) -> tuple[list[Array], float]:
    """What was seen in one episode, and its return."""
    gymnasium: Any = importlib.import_module("gymnasium")
    environment = gymnasium.make(about["env"])
    observation, _ = environment.reset(seed=seed)
    seen, total, over = [], 0.0, False
    while not over:
        seen.append(np.asarray(observation, np.float32))
        action = _action(about, policy(seen[-1][None]))[0]
        observation, reward, ended, truncated, _ = environment.step(action)
        total += float(reward)
        over = ended or truncated
    environment.close()
    return seen, total


def _observations(about: dict[str, Any], policy: Policy, seed: int) -> Array:
    return np.stack(_episode(about, policy, seed)[0])


def _returns(about: dict[str, Any], policy: Policy) -> float:
    seeds = range(FIRST_SEED, FIRST_SEED + EPISODES)
    return float(np.mean([_episode(about, policy, seed)[1] for seed in seeds]))
