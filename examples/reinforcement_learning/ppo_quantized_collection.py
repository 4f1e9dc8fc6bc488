"""PPO in one file, in the style of CleanRL, whose actor collects with weights of 8 bits.

    python examples/reinforcement_learning/ppo_quantized_collection.py --steps 100000

The lines marked with `qgraph` are all that a script needs. Log probabilities are those of the
quantized policy that acted, so the ratios of PPO are correct.

Needs: qgraph, for gymnasium and numpy; PyTorch (`pip install torch`).
"""

from __future__ import annotations

import argparse

import gymnasium
import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

from qgraph.rl.pytorch import QuantizedNetwork  # qgraph

ENVIRONMENTS, STEPS, EPOCHS, MINIBATCH = 8, 128, 4, 256
GAMMA, LAMBDA, CLIP, RATE = 0.99, 0.95, 0.2, 2.5e-4


def layer(inputs: int, outputs: int, gain: float = 2**0.5) -> nn.Linear:
    made = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(made.weight, gain)
    nn.init.zeros_(made.bias)
    return made


class Agent(nn.Module):
    def __init__(self, observation: int, actions: int, width: int) -> None:
        super().__init__()
        self.critic = nn.Sequential(
            layer(observation, width), nn.Tanh(), layer(width, width), nn.Tanh(), layer(width, 1, 1)
        )
        self.actor = nn.Sequential(
            layer(observation, width),
            nn.Tanh(),
            layer(width, width),
            nn.Tanh(),
            layer(width, actions, 0.01),
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--bits", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    torch.set_num_threads(1)
    environments = gymnasium.make_vec("CartPole-v1", ENVIRONMENTS)
    (observation,) = environments.single_observation_space.shape
    agent = Agent(observation, int(environments.single_action_space.n), options.width)
    acting = QuantizedNetwork(agent.actor, bits=options.bits)  # qgraph
    optimizer = torch.optim.Adam(agent.parameters(), RATE, eps=1e-5)
    seen, _ = environments.reset(seed=options.seed)
    fresh, returns, lengths = np.zeros(ENVIRONMENTS, bool), [], np.zeros(ENVIRONMENTS)
    for _ in range(options.steps // (ENVIRONMENTS * STEPS)):
        acting.update()  # qgraph: packs the weights that were learnt
        rows = []
        for _ in range(STEPS):
            x = torch.as_tensor(seen, dtype=torch.float32)
            drawn = Categorical(logits=acting(x))  # qgraph: one call for all environments
            action = drawn.sample()
            seen, reward, terminated, truncated, _ = environments.step(action.numpy())
            lengths += ~fresh
            over = terminated | truncated
            rows.append((x, action, drawn.log_prob(action), reward, over, fresh))
            returns += lengths[over].tolist()  # each step of CartPole is worth 1
            lengths[over] = 0
            fresh = over  # the next step only begins an episode
        learn(agent, optimizer, rows, torch.as_tensor(seen, dtype=torch.float32))
        print(f"return {np.mean(returns[-20:] or [0]):6.1f}")


def learn(agent: Agent, optimizer: torch.optim.Optimizer, rows: list, last: torch.Tensor) -> None:
    x, actions, chances = (torch.stack([row[i] for row in rows]) for i in range(3))
    rewards, ends, fresh = (np.stack([row[i] for row in rows]) for i in (3, 4, 5))
    with torch.no_grad():
        values = agent.critic(torch.cat([x, last[None]])).squeeze(-1).numpy()
    advantages = np.zeros_like(rewards, np.float32)
    gain = np.zeros(ENVIRONMENTS, np.float32)
    for t in reversed(range(STEPS)):
        error = rewards[t] + GAMMA * values[t + 1] * ~ends[t] - values[t]
        gain = error + GAMMA * LAMBDA * gain * ~ends[t]
        advantages[t] = gain
    counted = torch.as_tensor(~fresh.reshape(-1))
    targets = torch.as_tensor(advantages + values[:-1]).float().reshape(-1)[counted]
    flat = [part.reshape(-1, *part.shape[2:])[counted] for part in (x, actions, chances)]
    scaled = torch.as_tensor(advantages).reshape(-1)[counted]
    for _ in range(EPOCHS):
        for chosen in torch.randperm(len(scaled)).split(MINIBATCH):
            seen, taken, before = (part[chosen] for part in flat)
            drawn = Categorical(logits=agent.actor(seen))
            ratio = (drawn.log_prob(taken) - before).exp()
            gains = (scaled[chosen] - scaled[chosen].mean()) / (scaled[chosen].std() + 1e-8)
            policy = -torch.min(gains * ratio, gains * ratio.clamp(1 - CLIP, 1 + CLIP)).mean()
            value = (agent.critic(seen).squeeze(-1) - targets[chosen]).square().mean()
            optimizer.zero_grad()
            (policy + 0.5 * value - 0.01 * drawn.entropy().mean()).backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()


if __name__ == "__main__":
    main()
