"""Train one policy with PPO of stable-baselines3 and play it.

    PYTHON benchmarks/ppo_by_sb3.py SETTINGS.json RESULT.json

PYTHON is that of an environment with stable-baselines3. Nothing else of the project is imported
here, so that it needs no PyTorch. SETTINGS has the fields of `ppo_returns.Recipe`, `seed`, and the
seeds of the episodes in `episodes`. The learning rate falls as in qgraph, whose first rollout has
the whole rate.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np


def main(settings: str, result: str) -> None:
    """Write the returns of the final policy, and the mean return of the newest episodes."""
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env

    torch.set_num_threads(1)
    said = json.loads(Path(settings).read_text("utf-8"))
    rate, share = said["learning_rate"], said["batch_size"] / said["steps"]

    def annealed(left: float) -> float:
        return float(rate * (left + share))

    envs = said["actors"]
    model = PPO(
        "MlpPolicy",
        make_vec_env(said["environment"], n_envs=envs, seed=said["seed"]),
        learning_rate=annealed if said["anneal_learning_rate"] else rate,
        n_steps=said["batch_size"] // envs,
        batch_size=said["minibatch_size"],
        n_epochs=said["epochs"],
        gamma=said["discount"],
        gae_lambda=said["gae_lambda"],
        ent_coef=said["entropy_cost"],
        stats_window_size=said["newest"],
        seed=said["seed"],
        device="cpu",
    )
    began = time.perf_counter()
    model.learn(said["steps"])
    seconds = time.perf_counter() - began
    newest = [float(episode["r"]) for episode in model.ep_info_buffer]
    found = {
        "greedy": [_return(model, said["environment"], seed) for seed in said["episodes"]],
        "drawn": float(np.mean(newest)),
        "seconds": seconds,
    }
    Path(result).write_text(json.dumps(found), "utf-8")


def _return(model: Any, name: str, seed: int) -> float:
    """The return of an episode with the most likely actions."""
    import gymnasium

    environment = gymnasium.make(name)
    observation, _ = environment.reset(seed=seed)
    total, over = 0.0, False
    while not over:
        action, _ = model.predict(observation, deterministic=True)
        observation, reward, ended, cut, _ = environment.step(action)
        total, over = total + float(reward), ended or cut
    environment.close()
    return total


if __name__ == "__main__":
    main(*sys.argv[1:])
