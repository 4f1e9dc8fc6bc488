"""Quantization-aware training beside quantization afterwards: QuaRL's figure 4 and appendix A.

    python -m benchmarks.policies_aware  # stable-baselines3; an hour or more
    python -m benchmarks.policies_aware --only PPO --bits 4,2 --steps 20000 --seeds 1

Each algorithm is trained in float, and aware of each number of bits in the second half of its steps
(quant delay). Float policies are then quantized (PTQ), and aware policies run as they were trained
(QAT). Both use the arithmetic of the papers, on the same episodes.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.result import add_json_option, report
from benchmarks.tables import Table, merged
from qgraph.cli.rl.options import bits_of
from qgraph.errors import UsageError
from qgraph.rl.policy.affine import FLOAT, Simulated
from qgraph.rl.policy.play import play

EPISODES, FIRST_SEED = 50, 7000


@dataclass(frozen=True)
class Task:
    """An algorithm of stable-baselines3 and its environment, with options that are known to
    work.
    """

    environment: str
    steps: int
    options: Mapping[str, Any]


TASKS: Mapping[str, Task] = {
    "A2C": Task("CartPole-v1", 60_000, {"ent_coef": 0.0}),
    "PPO": Task("CartPole-v1", 50_000, {}),
    "DQN": Task(
        "CartPole-v1", 50_000,
        {"learning_rate": 2.3e-3, "batch_size": 64, "buffer_size": 100_000, "train_freq": 256,
         "learning_starts": 1000, "target_update_interval": 10, "gradient_steps": 128,
         "exploration_fraction": 0.16, "exploration_final_eps": 0.04,
         "policy_kwargs": {"net_arch": [64, 64]}},
    ),
    "DDPG": Task("Pendulum-v1", 10_000, {"policy_kwargs": {"net_arch": [64, 64]}}),
    "SAC": Task("Pendulum-v1", 8_000, {"policy_kwargs": {"net_arch": [64, 64]}}),
}  # fmt: skip


def trained_model(name: str, bits: int, seed: int, steps: int) -> Any:
    """A trained model, which is aware of its bits in the second half of the steps."""
    import stable_baselines3
    import torch

    from qgraph.rl.sb3 import QuantizationAware

    torch.set_num_threads(1)
    task = TASKS[name]
    kind = getattr(stable_baselines3, name)
    model = kind("MlpPolicy", task.environment, seed=seed, device="cpu", **task.options)
    aware = QuantizationAware(bits, steps // 2) if bits < FLOAT else None
    return model.learn(steps, callback=aware)


def mean_return(name: str, model: Any, bits: int) -> float:
    """The mean return with weights and activations in this number of bits."""
    from qgraph.rl.sb3 import read

    found = read(model)
    policy = Simulated.of(found.program, found.weights, bits)
    seeds = range(FIRST_SEED, FIRST_SEED + EPISODES)
    return play(TASKS[name].environment, policy, found.head, seeds).mean


def tables(arguments: argparse.Namespace) -> Iterator[Table]:
    bits = [b for b in bits_of(arguments.bits) if b < FLOAT]
    for name, task in TASKS.items():
        if arguments.only and arguments.only != name:
            continue
        steps = arguments.steps or task.steps
        floats: list[float] = []
        after: dict[int, list[float]] = {b: [] for b in bits}
        aware: dict[int, list[float]] = {b: [] for b in bits}
        for seed in range(arguments.seeds):
            start = time.perf_counter()
            model = trained_model(name, FLOAT, seed, steps)
            floats.append(mean_return(name, model, FLOAT))
            for b in bits:
                after[b].append(mean_return(name, model, b))
                aware[b].append(mean_return(name, trained_model(name, b, seed, steps), b))
            took = time.perf_counter() - start
            print(f"{name}, seed {seed}: {took:.0f} s", file=sys.stderr)
        table = Table(f"{name}, {task.environment}", {"bits": "d", "PTQ": ".1f", "QAT": ".1f"})
        table.add(FLOAT, _spread(floats), None)
        for b in bits:
            table.add(b, _spread(after[b]), _spread(aware[b]))
        table.notes.append(
            f"{steps} steps, quant delay half of them, {arguments.seeds} seeds; mean return of "
            f"{EPISODES} episodes each, and the deviation over seeds"
        )
        yield table


def _spread(values: list[float]) -> list[float]:
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    return [float(np.mean(values)), deviation]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=TASKS, help="one algorithm")
    parser.add_argument("--bits", default="8,6,5,4,3,2")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, help="of training, instead of each task's own")
    add_json_option(parser)
    arguments = parser.parse_args()
    parts: list[tuple[str, Table]] = []

    def so_far() -> Iterator[Table]:
        for table in tables(arguments):
            parts.append((table.title, table))
        yield merged("Trained aware of their bits", "task", parts)

    try:
        report("benchmarks.policies_aware", so_far(), arguments.json, range(arguments.seeds))
    except UsageError as error:
        print(f"skipped: {error}", file=sys.stderr)


if __name__ == "__main__":
    main()
