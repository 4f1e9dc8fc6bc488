"""Ten trained policies: fixed point beside float, on observations of their own environments.

The policies are not in a package: `QGRAPH_POLICIES` names their folder, or `shared/policies` beside
the checkout is used. With gymnasium, the float policy plays episodes whose observations are the
data, and both policies then play the same other episodes. Without gymnasium, observations are
random.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.real.measure import batches, exactness, kept_float
from benchmarks.real.steps import FLOAT_RUNS, built, seconds_of
from benchmarks.tables import Table
from qgraph.backends.tf.agreement import Checker
from qgraph.backends.tf.emit import emit_graph_def
from qgraph.backends.tf.program import TFProgram
from qgraph.compiler import quantize
from qgraph.frontends import load
from qgraph.interpret import evaluate
from qgraph.ir.graph import Graph
from qgraph.ir.types import Array
from qgraph.quant.plan import parse_plan
from qgraph.quant.profile import load_profile
from qgraph.quantized import Quantized
from qgraph.stored.write import float_ops

CALIBRATION, TEST = 4096, 1024  # observations
SEEN_EPISODES, EPISODES, FIRST_SEED = 64, 400, 9000
WAYS = (
    ("graffitist-int8", "plain"),
    ("graffitist-int8", "default"),
    ("policy-int8", "default"),
    ("policy-int4", "default"),
)
STEPWISE = ("policy-int8", "policy-int4")
INPUT, OUTPUT, EXACT = "observation", "action", "differ from reference"

Policy = Callable[[Array], Array]
TESTED = range(FIRST_SEED, FIRST_SEED + EPISODES)


def folder() -> Path:
    beside = Path(__file__).parents[3] / "shared" / "policies"
    return Path(os.environ.get("QGRAPH_POLICIES") or beside)


@dataclass(frozen=True)
class Task:
    """A policy, its observations, and its returns in float by episode (None without gymnasium)."""

    name: str
    about: Mapping[str, Any]
    model: Graph
    observations: Array
    earned: Array | None

    def act(self, observations: Array) -> Array:
        """Run the graph of the float policy as it is, in numpy."""
        return evaluate(self.model, {INPUT: observations})[OUTPUT]


def tables() -> Iterator[Table]:
    files = sorted(folder().glob("*.pb"))
    if not files:
        print(f"no policies in {folder()}: set QGRAPH_POLICIES to where they are; skipped")
        return
    played = importlib.util.find_spec("gymnasium") is not None
    table = Table(
        "Ten policies, static",
        {"policy": "", "profile": "", "effort": "", "same action": ".1%", "return, float": ".1f",
         "return, quantized": ".1f", "change": "+.2%", "error of it": ".2%",
         EXACT: "", "seconds": ".1f", "float runs": ".0f"},
        notes=[
            f"up to {CALIBRATION} observations to calibrate, {TEST} others to compare, "
            + (f"from {SEEN_EPISODES} episodes of the float policy" if played else "random normal"),
            f"returns: mean of the same {EPISODES} seeded episodes; change: of the mean, relative "
            "to float, and the standard error of the paired differences",
            "same action: the discrete action where there is one; else each within 1/100 of its "
            "range",
            "float runs: the time in runs of the float policy over the calibration observations "
            f"(in TensorFlow, median of {FLOAT_RUNS})",
        ],
    )  # fmt: skip
    steps = Table(
        "Ten policies, static, what each step brings",
        {"policy": "", "profile": "", "what": "", "same action": ".1%", "return": ".1f",
         "change": "+.2%", "error of it": ".2%", EXACT: "", "seconds": ".1f"},
        notes=["each row adds to the one before, up to the plan that the search found"],
    )  # fmt: skip
    for file in files:
        task = task_of(file, played)
        for profile, effort in WAYS:
            result = _rows(table, steps, task, profile, effort)
        if float_ops(result.graph):
            table.notes.append(f"{task.name} keeps float: {kept_float(result)}")
    yield from (table, steps)


def task_of(file: Path, played: bool, tested: range | None = TESTED) -> Task:
    """A policy with its observations, and its returns in `tested` episodes."""
    about = json.loads(file.with_suffix(".json").read_text())
    size = (CALIBRATION + TEST, about["observation_size"])
    seen = np.random.default_rng(0).normal(size=size).astype(np.float32)
    task = Task(file.stem, about, load(file), seen, None)
    if not played:
        return task
    seen, _ = play(about, task.act, range(SEEN_EPISODES))
    shuffled = np.random.default_rng(0).permutation(seen)[: CALIBRATION + TEST]
    earned = play(about, task.act, tested)[1] if tested else None
    return replace(task, observations=shuffled, earned=earned)


def _rows(table: Table, steps: Table, task: Task, profile: str, effort: str) -> Quantized:
    """A row for the result of the effort and, if it searched, one for each step of its plan."""
    calibration = task.observations[:-TEST]
    plain = TFProgram(emit_graph_def(task.model))
    once = seconds_of(lambda: plain.run({INPUT: calibration}, [OUTPUT]))
    start = time.perf_counter()
    result = quantize(task.model, calibration, profile=profile, effort=effort)
    taken = time.perf_counter() - start
    same, change, exact = _measured(task, result.graph)
    table.add(task.name, profile, effort, same, *change, exact, taken, taken / once)
    if profile in STEPWISE:
        plan = parse_plan(result.facts.choice.plan_spec)
        for what, graph, seconds in built(
            task.model, load_profile(profile), plan, {INPUT: calibration}
        ):
            same, change, exact = _measured(task, graph)
            steps.add(task.name, profile, what, same, *change[1:], exact, seconds)
    return result


def _measured(task: Task, graph: Graph) -> tuple[float, tuple[float | None, ...], str]:
    """The share of equal actions, the comparison of returns, and the number of different codes."""
    checker, test = Checker(graph), task.observations[-TEST:]

    def act(observations: Array) -> Array:
        return checker.program.run({INPUT: observations}, [OUTPUT])[0]

    earned = None if task.earned is None else play(task.about, act, TESTED)[1]
    return (
        _same_action(task.about, task.act(test), act(test)),
        _compared(task.earned, earned),
        str(exactness(checker, batches(INPUT, test, len(test)))),
    )


def _compared(wanted: Array | None, found: Array | None) -> tuple[float | None, ...]:
    if wanted is None or found is None:
        return None, None, None, None
    mean, lost = float(wanted.mean()), found - wanted
    error = float(lost.std(ddof=1) / np.sqrt(len(lost)))
    return mean, float(found.mean()), float(lost.mean()) / abs(mean), error / abs(mean)


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


def play(about: Mapping[str, Any], policy: Policy, seeds: range) -> tuple[Array, Array]:
    """The observations and the return of each episode. All episodes are played side by side."""
    gymnasium: Any = importlib.import_module("gymnasium")
    environments = [gymnasium.make(about["env"]) for _ in seeds]
    now = [e.reset(seed=seed)[0] for e, seed in zip(environments, seeds, strict=True)]
    seen, returns, live = [], np.zeros(len(seeds)), list(range(len(seeds)))
    while live:
        seen.append(np.stack([np.asarray(now[i], np.float32) for i in live]))
        still = []
        for i, action in zip(live, _action(about, policy(seen[-1])), strict=True):
            now[i], reward, ended, truncated, _ = environments[i].step(action)
            returns[i] += float(reward)
            if not (ended or truncated):
                still.append(i)
        live = still
    for environment in environments:
        environment.close()
    return np.concatenate(seen), returns
