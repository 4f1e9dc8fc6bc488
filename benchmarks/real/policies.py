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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from benchmarks.real.measure import batches, exactness, kept_float
from benchmarks.real.tables import Table
from qgraph.artifacts import float_ops
from qgraph.backends.tf.agreement import Checker
from qgraph.compiler import Quantized, quantize
from qgraph.frontends import load
from qgraph.interpret import evaluate
from qgraph.ir.graph import Graph
from qgraph.ir.types import Array
from qgraph.quant.profile import Profile, load_profile, parse_profile

WIDE = """
name: wide-activations
description: 8-bit weights, 16-bit inputs and activations
bits: {input: 16, activation: 16}
"""
SAMPLES, EPISODES, FIRST_SEED = 512, 10, 9000

Policy = Callable[[Array], Array]


def folder() -> Path:
    beside = Path(__file__).parents[3] / "shared" / "policies"
    return Path(os.environ.get("QGRAPH_POLICIES") or beside)


@dataclass(frozen=True)
class Task:
    """A policy, what it sees, and what it earns in float (None if it cannot be played)."""

    name: str
    about: Mapping[str, Any]
    model: Graph
    observations: Array
    earned: float | None

    def act(self, observations: Array) -> Array:
        """The float policy as its graph is written, in numpy."""
        return evaluate(self.model, {"observation": observations})["action"]


def tables() -> Iterator[Table]:
    files = sorted(folder().glob("*.pb"))
    if not files:
        print(f"no policies in {folder()}: set QGRAPH_POLICIES to where they are; skipped")
        return
    played = importlib.util.find_spec("gymnasium") is not None
    table = Table(
        "Ten policies, static",
        {"policy": "", "profile": "", "method": "", "same action": ".1%",
         "largest difference": ".3f", "of the range": ".1%", "return, float": ".1f",
         "return, quantized": ".1f", "differ from reference": ""},
        notes=[
            f"{SAMPLES} observations to calibrate, {SAMPLES} others to compare, "
            + ("from the float policy's episodes" if played else "random normal"),
            f"returns: mean of the same {EPISODES} seeded episodes",
            "same action: the discrete action where there is one; else each within 1/100 of its "
            "range",
        ],
    )  # fmt: skip
    int8, wide = load_profile("graffitist-int8"), parse_profile(yaml.safe_load(WIDE))
    for file in files:
        task = _task(file, played)
        for profile, method in ((int8, "kl_j"), (int8, "max"), (wide, "max")):
            result = _row(table, task, profile, method)
        if float_ops(result.graph):
            table.notes.append(f"{task.name} keeps float: {kept_float(result)}")
    yield table


def _task(file: Path, played: bool) -> Task:
    about = json.loads(file.with_suffix(".json").read_text())
    size = (2 * SAMPLES, about["observation_size"])
    seen = np.random.default_rng(0).normal(size=size).astype(np.float32)
    task = Task(file.stem, about, load(file), seen, None)
    if not played:
        return task
    seen = np.concatenate([_episode(about, task.act, seed)[0] for seed in range(4)])
    shuffled = np.random.default_rng(0).permutation(seen)
    return replace(task, observations=shuffled, earned=_earned(about, task.act))


def _row(table: Table, task: Task, profile: Profile, method: str) -> Quantized:
    half = min(SAMPLES, len(task.observations) // 2)
    calibration, test = task.observations[:half], task.observations[half : 2 * half]
    result = quantize(task.model, calibration, profile=profile, method=method)
    checker = Checker(result.graph)

    def act(observations: Array) -> Array:
        return checker.program.run({"observation": observations}, ["action"])[0]

    wanted, found = task.act(test), act(test)
    largest = float(np.abs(found - wanted).max())
    earned = None if task.earned is None else _earned(task.about, act)
    table.add(
        task.name, profile.name, method, _same_action(task.about, wanted, found), largest,
        largest / float(np.ptp(wanted)), task.earned, earned,
        str(exactness(checker, batches("observation", test, len(test)))),
    )  # fmt: skip
    return result


def _action(about: Mapping[str, Any], output: Array) -> Any:
    if about["action"].startswith("argmax"):
        return output.argmax(-1)
    if about["action"].startswith("clip"):
        return np.clip(output, -about["action_high"], about["action_high"])
    return output * about["action_high"]


def _same_action(about: Mapping[str, Any], wanted: Array, found: Array) -> float:
    ours, theirs = _action(about, found), _action(about, wanted)
    if ours.dtype.kind == "i":
        return float((ours == theirs).mean())
    return float((np.abs(ours - theirs) <= 0.02 * about["action_high"]).all(-1).mean())


def _episode(about: Mapping[str, Any], policy: Policy, seed: int) -> tuple[Array, float]:
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
    return np.stack(seen), total


def _earned(about: Mapping[str, Any], policy: Policy) -> float:
    seeds = range(FIRST_SEED, FIRST_SEED + EPISODES)
    return float(np.mean([_episode(about, policy, seed)[1] for seed in seeds]))
