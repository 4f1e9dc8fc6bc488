"""The usual settings of each algorithm, and of tasks that need others."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from qgraph.rl.environments import ATARI
from qgraph.rl.environments.dm_control import DM_CONTROL, PIXELS

# What a task needs beyond its algorithm: exploration and length, mostly.
OF_ALGORITHMS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "dqn": {
            "steps": 40_000,
            "hidden": (256, 256),
            "batch": 128,
            "spi": 64.0,
            "rate": 5e-4,
            "explore_steps": 10_000,
            "capacity": 100_000,
        },
        "d4pg": {
            "steps": 40_000,
            "hidden": (256, 256, 256),
            "batch": 256,
            "spi": 64.0,
            "rate": 1e-4,
            "explore": 0.2,
            "episodes": 5,
        },
        # Of pytorch_sac, but for networks, batches and the rate. It maps log-deviations into -5..2
        # by tanh; here they are clipped to that.
        "sac": {
            "steps": 40_000,
            "hidden": (256, 256),
            "critic": (256, 256),
            "batch": 256,
            "spi": 256.0,
            "rate": 3e-4,
            "n": 1,
            "target_period": 2,
            "actor_update_period": 1,
            "publish_every": 1,
            "episodes": 5,
        },
        # Table 5 of AcceRL.
        "impala": {
            "steps": 400_000,
            "hidden": (256, 256),
            "n": 5,
            "batch": 160,
            "spi": 1.0,
            "rate": 3e-4,
            "correct": "vtrace,is",
            "publish_every": 1,
            "actor_update_period": 5,
            "evaluate_every": 250,
        },
    }
)
OF_TASKS: Mapping[tuple[str, str], Mapping[str, Any]] = MappingProxyType(
    {
        # Nobody gets up there by trembling.
        ("dqn", "MountainCar-v0"): {"explore_steps": 20_000, "explore_hold": 20},
        # Values of 1600 would have a step of 1 in float16.
        ("sac", "Pendulum-v1"): {"reward_scale": 0.1, "rate": 1e-3, "steps": 10_000},
        # Eight rewards in each step.
        ("sac", "dm_control:cartpole-swingup:held"): {
            "reward_scale": 0.1,
            "rate": 1e-3,
            "steps": 12_000,
        },
        # Rewards of up to eight.
        ("sac", PIXELS): {"reward_scale": 0.1, "rate": 1e-3},
        # A reward in each step, 100 to come; once it balances, advantages are small beside entropy.
        ("impala", "CartPole-v1"): {
            "steps": 200_000,
            "hidden": (64, 64),
            "layer_norm": True,
            "reward_scale": 0.05,
            "entropy": 0.005,
        },
        # Settings of the papers, with fewer frames.
        ("dqn", ATARI): {
            "steps": 1_000_000,
            "hidden": (512,),
            "batch": 32,
            "spi": 8.0,
            "n": 3,
            "rate": 1e-4,
            "explore_steps": 250_000,
            "capacity": 50_000,  # 56 kB each
            "least": 10_000,
            "target_period": 2000,
            "alpha": 0.6,
            "dueling": True,
            "reward_clip": 1.0,
            "evaluate_every": 10_000,
            "episodes": 3,
        },
        ("impala", ATARI): {"reward_clip": 1.0},
    }
)


def kind_of(environment: str) -> str:
    """Its name in OF_TASKS: all Atari games have one, and all images of dm_control."""
    if environment.startswith(ATARI):
        return ATARI
    images = environment.startswith(DM_CONTROL) and environment.endswith(PIXELS)
    return PIXELS if images else environment


def usual_settings(algorithm: str, environment: str) -> dict[str, Any]:
    """Those that differ from the defaults of `Options`."""
    of_task = OF_TASKS.get((algorithm, kind_of(environment)), {})
    return {**OF_ALGORITHMS[algorithm], **of_task}
