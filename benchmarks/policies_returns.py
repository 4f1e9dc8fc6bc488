"""Returns of one policy in fixed point and in float over many episodes.

    python -m benchmarks.policies_returns ppo2_BipedalWalker-v2 --episodes 2000 --jobs 2

The policy is quantized as in `benchmarks.real.policies`, on the same observations, and played in
other episodes. All versions play each episode from the same seed, but a difference in the last bit
soon leads to a different walk. The returns of policies that sometimes fall therefore differ even
between two runs in float.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import pairwise

import numpy as np

from benchmarks.real.policies import (
    EPISODES,
    FIRST_SEED,
    INPUT,
    OUTPUT,
    TEST,
    folder,
    play,
    task_of,
)
from benchmarks.result import add_json_option, report
from benchmarks.tables import Table
from qgraph.backends.tf.emit import emit_graph_def
from qgraph.backends.tf.program import TFProgram
from qgraph.compiler import quantize
from qgraph.ir.types import Array

PROFILES = ("policy-int8", "policy-int4")
FIRST = FIRST_SEED + EPISODES  # seeds that the other benchmark does not play
FLOATS = ("float32, numpy", "float32, TensorFlow")


def returns(name: str, seeds: range) -> Mapping[str, Array]:
    """The return of each episode, by version of the policy."""
    file = folder() / f"{name}.pb"
    task = task_of(file, True, None)
    programs = {FLOATS[1]: TFProgram(emit_graph_def(task.model))}
    for profile in PROFILES:
        made = quantize(task.model, task.observations[:-TEST], profile=profile)
        programs[profile] = TFProgram(emit_graph_def(made.graph))
    found = {FLOATS[0]: play(task.about, task.act, seeds)[1]}
    for what, program in programs.items():
        act = partial(_act, program)
        found[what] = play(task.about, act, seeds)[1]
    return found


def _act(program: TFProgram, observations: Array) -> Array:
    return program.run({INPUT: observations}, [OUTPUT])[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("policy", help="name of a policy's file, without .pb")
    parser.add_argument("--episodes", type=int, default=2000)
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    add_json_option(parser)
    options = parser.parse_args()
    ends = np.linspace(FIRST, FIRST + options.episodes, options.jobs + 1).astype(int)
    parts = [range(int(a), int(b)) for a, b in pairwise(ends)]
    with ProcessPoolExecutor(options.jobs) as pool:
        found = list(pool.map(partial(returns, options.policy), parts))
    whole = {what: np.concatenate([part[what] for part in found]) for what in found[0]}
    base = whole[FLOATS[0]]
    table = Table(
        f"{options.policy}, {options.episodes:,} episodes",
        {"what": "", "return": ".1f", "change": "+.2%", "error of it": ".2%"},
    )
    for what, values in whole.items():
        lost = values - base
        error = float(lost.std(ddof=1) / np.sqrt(len(lost)))
        mean = abs(float(base.mean()))
        table.add(what, float(values.mean()), float(lost.mean()) / mean, error / mean)
    report("benchmarks.policies_returns", [table], options.json)


if __name__ == "__main__":
    main()
