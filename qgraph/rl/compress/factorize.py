"""Low-rank factorization: a dense layer becomes two narrow ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from qgraph.errors import UnsupportedError, UsageError
from qgraph.ir.types import Array
from qgraph.rl.actor import ActorStep
from qgraph.rl.compress.chain_policy import ChainPolicy, Task, rebuilt, shared
from qgraph.rl.compress.link import Link


@dataclass(frozen=True)
class Factorize(Link):
    """Split dense layers by their singular values, if two layers have fewer weights than one.

    energy: the share of the squared singular values that is kept, above 0 to 1. With 1, the
    function does not change, and only layers of low rank are split. Layers that would not get
    smaller are not split. The width of the new layers depends on the weights. Raises UsageError for
    other shares, UnsupportedError for a policy without dense layers.
    """

    name: ClassVar[str] = "factorize"

    energy: float = 0.99

    def __post_init__(self) -> None:
        if not 0 < self.energy <= 1:
            raise UsageError(f"energy is {self.energy}; it is a share, above 0 to 1")

    def __call__(self, policy: ChainPolicy, task: Task) -> ChainPolicy:
        program, weights = policy.program, dict(policy.weights)
        if all(step.op != "dense" for step in program.steps):
            raise UnsupportedError("the policy has no dense layer")
        common, steps, taken = shared(program), list[ActorStep](), set(program.shapes())
        for step in program.steps:
            pair = None
            if step.op == "dense" and common.intersection(step.weights):
                task.refuse(step.output, "other steps use its weights too")
            elif step.op == "dense":
                pair = self._narrow(step, np.asarray(weights[step.weights[0]]), task)
            steps += [step] if pair is None else _two(step, *pair, weights, taken)
        return rebuilt(policy, steps, weights)

    def _narrow(self, step: ActorStep, kernel: Array, task: Task) -> tuple[Array, Array] | None:
        left, right = factors(kernel, self.energy)
        numbers = left.size + right.size + len(right)
        if numbers < kernel.size:
            return left, right
        task.refuse(
            step.output, f"rank {len(right)} is needed: {numbers} numbers, not {kernel.size}"
        )
        return None


def factors(kernel: Array, energy: float) -> tuple[Array, Array]:
    """[k, r] and [r, m], float32, whose product is nearest to a kernel [k, m] for its rank r.

    r is the smallest rank that keeps this share of the squared singular values.
    """
    u, s, v = np.linalg.svd(np.asarray(kernel, np.float64), full_matrices=False)
    kept = np.cumsum(s**2) / max(float((s**2).sum()), 1e-300)
    # 1e-12: singular values of 0 are about this in float32.
    rank = min(int(np.searchsorted(kept, energy - 1e-12)) + 1, len(s))
    root = np.sqrt(s[:rank])
    return (u[:, :rank] * root).astype(np.float32), (root[:, None] * v[:rank]).astype(np.float32)


def _two(
    step: ActorStep, left: Array, right: Array, weights: dict[str, Array], taken: set[str]
) -> list[ActorStep]:
    """The steps for one; their weights go into `weights`."""
    name = f"{step.output}/narrow"
    while name in taken:
        name += "er"
    taken.add(name)
    kernel, bias = step.weights
    weights.update({f"{name}/kernel": left, f"{name}/bias": np.zeros(len(right), np.float32)})
    weights[kernel] = right
    return [
        ActorStep("dense", step.inputs, name, (f"{name}/kernel", f"{name}/bias")),
        ActorStep("dense", (name,), step.output, (kernel, bias), step.attrs),
    ]
