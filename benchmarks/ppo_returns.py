"""Compare PPO with stable-baselines3: ``python -m benchmarks.ppo_returns --sb3 PYTHON``.

The same tasks, hyperparameters, networks and numbers of steps for both. The actors of qgraph have
float32 policies, or int8 ones (first and last layers 16 bits). Each run is kept in the cache
folder, so the benchmark can be stopped and started again. PYTHON is that of an environment with
stable-baselines3; tasks of Box2D need `gymnasium[box2d]` in both environments.

- return: of the policy at the end of training, with its most likely actions, in 20 episodes; the
  int8 rows play the int8 policy;
- while learning: of the 20 newest episodes of actors, which draw actions.

Return +- is the standard error over seeds.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.registry import cache
from benchmarks.result import JsonFile, report
from benchmarks.tables import Table
from benchmarks.training_runs import chosen, mean_and_error
from qgraph.enums import StrEnum
from qgraph.files import write_whole
from qgraph.rl.actor import Actor, Packer
from qgraph.rl.agents import config_for
from qgraph.rl.learn.sources import packed_bits
from qgraph.rl.learn.training import EVALUATION_SEED
from qgraph.rl.monitor.indicators import RECENT
from qgraph.rl.policy.play import play

BY_SB3 = Path(__file__).with_name("ppo_by_sb3.py")
EPISODES = range(EVALUATION_SEED, EVALUATION_SEED + 20)  # their seeds
THREADS = 1


@dataclass(frozen=True)
class Recipe:
    """A task and its hyperparameters, by the names of qgraph's settings."""

    environment: str
    steps: int
    actors: int
    batch_size: int
    minibatch_size: int = 64
    epochs: int = 10
    learning_rate: float = 3e-4
    anneal_learning_rate: bool = False
    discount: float = 0.99
    gae_lambda: float = 0.95
    entropy_cost: float = 0.0


# After rl-baselines3-zoo, with fewer steps, and without normalized observations and gSDE.
RECIPES: Mapping[str, Recipe] = MappingProxyType(
    {
        "cartpole": Recipe(
            "CartPole-v1", 102_400, 8, 256, 256, 20, 1e-3, True, discount=0.98, gae_lambda=0.8
        ),
        "acrobot": Recipe("Acrobot-v1", 204_800, 16, 4096, epochs=4, gae_lambda=0.94),
        "pendulum": Recipe("Pendulum-v1", 102_400, 4, 4096, learning_rate=1e-3, discount=0.9),
        "lunar": Recipe(
            "LunarLanderContinuous-v3", 102_400, 16, 2048,
            discount=0.999, gae_lambda=0.98, entropy_cost=0.01,
        ),
    }
)  # fmt: skip


SEEDS = {"cartpole": 5, "acrobot": 5, "pendulum": 3, "lunar": 3}


class Trainer(StrEnum):
    """The trainers of a policy, as the rows of the table name them."""

    SB3 = "stable-baselines3"
    FLOAT = "qgraph, float32 actors"
    INT8 = "qgraph, int8 actors"


BITS = {Trainer.FLOAT: 32, Trainer.INT8: 8}


@dataclass(frozen=True)
class Trial:
    """One run of training."""

    recipe: Recipe
    trainer: Trainer
    seed: int

    def found(self, folder: Path, sb3: Path | None) -> dict[str, Any] | None:
        """Its returns and seconds, from the folder if they are there; None without its trainer."""
        name = "-".join((self.recipe.environment, self.trainer.name.lower(), str(self.seed)))
        file, asked = folder / f"{name}.json", json.loads(json.dumps(asdict(self)))
        known = json.loads(file.read_text("utf-8")) if file.exists() else {}
        if known.get("asked") != asked:
            if self.trainer is Trainer.SB3 and sb3 is None:
                return None
            found = self._by_sb3(sb3) if sb3 and self.trainer is Trainer.SB3 else self._by_qgraph()
            known = {"asked": asked, **found}
            write_whole(file, json.dumps(known).encode())
            print(f"{name}: {np.mean(known['greedy']):.1f}, {known['seconds']:.0f} s", flush=True)
        return known

    def _by_sb3(self, python: Path) -> dict[str, Any]:
        said = {
            **asdict(self.recipe), "seed": self.seed, "episodes": list(EPISODES), "newest": RECENT,
        }  # fmt: skip
        with tempfile.TemporaryDirectory() as folder:
            settings, result = Path(folder, "settings.json"), Path(folder, "result.json")
            settings.write_text(json.dumps(said), "utf-8")
            subprocess.run([python, BY_SB3, settings, result], check=True)
            found: dict[str, Any] = json.loads(result.read_text("utf-8"))
        return found

    def _by_qgraph(self) -> dict[str, Any]:
        from qgraph.rl.learn.runs import train

        config = config_for(
            "ppo", **asdict(self.recipe), actor_bits=BITS[self.trainer], in_process=True,
            evaluate_every=self.recipe.steps, episodes=1, seed=self.seed,
        )  # fmt: skip
        with tempfile.TemporaryDirectory() as folder:
            done = train(Path(folder, "run"), config=config)
        learner = done.learner
        weights = {name: v.numpy() for name, v in learner.policy.items()}
        packer = Packer(learner.program, *packed_bits(config, learner.program))
        actor = Actor(packer.pack(weights))
        return {
            "greedy": play(config.environment, actor, learner.head, EPISODES).each.tolist(),
            "drawn": float(np.mean(done.recent)),
            "seconds": done.counts.seconds,
        }


def comparison(
    recipes: Mapping[str, Recipe], seeds: int, folder: Path, sb3: Path | None
) -> Iterator[tuple[str, Trainer, list[dict[str, Any]]]]:
    """The results of each trainer on each task; missing runs are made seed by seed."""
    found: dict[tuple[str, Trainer], list[dict[str, Any]]] = {}
    for seed in range(seeds):
        for task, recipe in recipes.items():
            for trainer in Trainer if seed < SEEDS[task] else ():
                each = Trial(recipe, trainer, seed).found(folder, sb3)
                found.setdefault((task, trainer), []).extend([each] if each else [])
    for task, trainer in sorted(found, key=lambda key: list(recipes).index(key[0])):
        yield task, trainer, found[task, trainer]


def returns(results: Iterator[tuple[str, Trainer, list[dict[str, Any]]]]) -> Table:
    """The returns of each trainer, and how many errors of the difference they are from
    stable-baselines3's.
    """
    columns = {
        "task": "", "trained by": "", "seeds": "d", "return": ".1f", "while learning": ".1f",
        "errors from sb3": "+.1f",
    }  # fmt: skip
    table, reference = Table("PPO", columns), None
    table.notes = [
        "return: of the final policy with its most likely actions; int8 rows play the int8 policy",
        "errors from sb3: the difference of returns, in standard errors of the difference",
    ]
    for task, trainer, runs in results:
        if not runs:
            continue
        final = mean_and_error([np.mean(run["greedy"]) for run in runs])
        drawn = mean_and_error([run["drawn"] for run in runs])
        if trainer is Trainer.SB3:
            reference = task, final
        away = None
        if reference is not None and reference[0] == task and trainer is not Trainer.SB3:
            away = _in_errors(final, reference[1])
        table.add(task, str(trainer), len(runs), final, drawn, away)
    return table


def _in_errors(found: list[float] | None, wanted: list[float] | None) -> float | None:
    """The difference of two means in its standard errors; None if it has none."""
    assert found is not None and wanted is not None, "there are runs"
    error = float(np.hypot(found[1], wanted[1]))
    return (found[0] - wanted[0]) / error if error else None


def _versions(python: Path) -> str:
    """The versions of the packages of the other environment."""
    code = (
        "from importlib.metadata import version\n"
        "names = ('stable-baselines3', 'torch', 'gymnasium')\n"
        "print(', '.join(f'{name} {version(name)}' for name in names))"
    )
    done = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def main(
    sb3: Annotated[
        Path | None, typer.Option(help="Python of an environment with stable-baselines3.")
    ] = None,
    tasks: Annotated[str, typer.Option(metavar="NAMES", help="Comma separated.")] = ",".join(
        RECIPES
    ),
    seeds: Annotated[int, typer.Option(min=1, metavar="N", help="Seeds at most.")] = 5,
    json_file: JsonFile = None,
) -> None:
    """Make the missing runs, and print the table."""
    from qgraph.rl.learn.runs import use_threads

    use_threads(THREADS)
    folder = cache() / "ppo_returns"
    folder.mkdir(parents=True, exist_ok=True)
    names = {recipe.environment: name for name, recipe in RECIPES.items()}
    wanted = {names[recipe.environment]: recipe for recipe in chosen(tasks, RECIPES)}
    table = returns(comparison(wanted, seeds, folder, sb3))
    if sb3:
        table.notes.append(f"compared with {_versions(sb3)}")
    report("benchmarks.ppo_returns", [table], json_file, range(seeds))


if __name__ == "__main__":
    typer.run(main)
