"""Trained policies in C: actions beside those of Python, bytes, and time.

    python -m benchmarks.policies_c [--episodes 20] [--json FILE]

Each policy is quantized statically on observations of its environment, written as C by
`qgraph.rl.deploy`, compiled, and acts in its environment. Each action is compared with that of
the policy in Python for the same observation, bit for bit. The policies are not in a package:
`QGRAPH_POLICIES` names their folder, or `shared/policies` beside the checkout is used.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.real.policies import folder
from benchmarks.result import add_json_option, report
from benchmarks.tables import Table
from qgraph.backends.c.c_form import compiler
from qgraph.cli.rl.options import environment_of, head_in
from qgraph.ir.types import Array
from qgraph.rl.deploy import Deployment, Rollout, deploy, roll_out
from qgraph.rl.policy import Policy, pack, read_policy
from qgraph.rl.policy.about import about
from qgraph.rl.policy.affine import Simulated
from qgraph.rl.policy.play import watch
from qgraph.rl.policy.study import CALIBRATION_SEED

TITLE = "Policies in C"
CALIBRATION, TIMED, ROUNDS = 4096, 1000, 9
TIMER = """\
#include "policy.h"

#include <stdio.h>
#include <time.h>

static policy_observation seen[{count}][POLICY_OBSERVATION_SIZE];
static policy_action action[POLICY_ACTION_SIZE];

int main(void)
{{
    double best = 1e9, sum = 0;

    if (fread(seen, sizeof seen, 1, stdin) != 1)
        return 1;
    for (int round = 0; round < {rounds}; ++round) {{
        const clock_t begin = clock();

        for (int repeat = 0; repeat < 20; ++repeat)
            for (int i = 0; i < {count}; ++i) {{
                policy_act(seen[i], action);
                sum += (double)action[0];
            }}
        const double taken = (double)(clock() - begin) / CLOCKS_PER_SEC / (20.0 * {count});
        best = taken < best ? taken : best;
    }}
    printf("%.9g %g\\n", best, sum);
    return 0;
}}
"""


def seconds_in_c(made: Deployment, seen: Array) -> float:
    """Seconds for an action in C, with -O2: the best of several rounds."""
    place = made.folder
    (place / "timer.c").write_text(TIMER.format(count=len(seen), rounds=ROUNDS))
    files = [place / f"{stem}.c" for stem in ("policy", "policy_network", "timer")]
    command = [compiler(), "-std=c99", "-O2", *map(str, files), "-o", str(place / "timer")]
    subprocess.run(command, check=True)
    given = np.ascontiguousarray(seen, np.float32).tobytes()
    done = subprocess.run([place / "timer"], input=given, capture_output=True, check=True)
    return float(done.stdout.split()[0])


def seconds_in_python(policy: Policy, seen: Array) -> float:
    """Seconds for an action of one observation in Python: the best of several rounds."""
    times = []
    for _ in range(ROUNDS):
        start = time.process_time()
        for one in seen:
            policy(one)
        times.append((time.process_time() - start) / len(seen))
    return min(times)


def code_bytes(made: Deployment) -> int:
    """Bytes of code and constants of the compiled policy, with -Os for this processor."""
    total = 0
    for stem in ("policy", "policy_network"):
        file = made.folder / f"{stem}.o"
        source = str(made.folder / f"{stem}.c")
        subprocess.run([compiler(), "-std=c99", "-Os", "-c", source, "-o", str(file)], check=True)
        said = subprocess.run(["size", str(file)], capture_output=True, text=True, check=True)
        total += sum(map(int, said.stdout.splitlines()[1].split()[:2]))
    return total


def measured(file: Path, episodes: int, place: Path) -> tuple[Deployment, Rollout, float, float]:
    """A policy in C, its episodes, and the seconds for an action in C and in Python."""
    network, known = read_policy(file), about(file)
    world = environment_of(known)
    head = head_in(world, network, known)
    floating = Simulated(network.program, network.weights)
    seen = watch(world, floating, head, CALIBRATION, CALIBRATION_SEED)
    policy = Policy(pack(network, head, 8, "static", seen))
    made = deploy(policy, place / "c")
    found = roll_out(policy, made, world, episodes=episodes, first_seed=known.first_seed)
    timed = seen[:TIMED]
    return made, found, seconds_in_c(made, timed), seconds_in_python(policy, timed)


def table(episodes: int, only: str) -> Table:
    found = Table(
        TITLE,
        {"policy": "", "actions": ",.0f", "different": ",.0f", "return, C": ".1f",
         "return, Python": ".1f", "flash, kB": ".1f", "of that, constants": ".1f", "RAM, B": ",.0f",
         "action in C, us": ".2f", "in Python, us": ".1f"},
        notes=[
            f"static policies of 8 bits; {episodes} episodes each, in which C acts",
            "flash: code and constants, x86-64 with -Os; RAM: policy_memory",
            f"times: the best of {ROUNDS} rounds over {TIMED} observations, one thread; C with -O2",
        ],
    )  # fmt: skip
    for file in sorted(folder().glob("*.pb")):
        if only and only not in file.stem:
            continue
        with tempfile.TemporaryDirectory() as place:
            made, played, in_c, in_python = measured(file, episodes, Path(place))
            assert made.facts is not None
            found.add(
                file.stem, played.compared, played.different, played.in_c.mean,
                played.in_python.mean, code_bytes(made) / 1e3, made.facts.constants / 1e3,
                made.facts.memory, in_c * 1e6, in_python * 1e6,
            )  # fmt: skip
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--episodes", type=int, default=20)
    parser.add_argument("--only", default="", help="policies with this in their names")
    add_json_option(parser)
    arguments = parser.parse_args()
    report("benchmarks.policies_c", [table(arguments.episodes, arguments.only)], arguments.json)


if __name__ == "__main__":
    main()
