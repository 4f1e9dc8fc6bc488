"""Model learner and actors: ``python -m benchmarks.rl_model predict``, and ``check``.

Costs are measured first, as seconds of a processor, which other processes change little. `predict`
uses them in the model of a cluster. `check` compares the model of one machine with real runs of 1
to 8 actors, on a machine without other load.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.result import JsonFile, report
from benchmarks.rl_model.cluster import (
    ACTORS_OF_A_NODE,
    BRANCHES,
    JOULES_A_BYTE,
    LATENCY,
    WATTS,
    ClusterModel,
)
from benchmarks.rl_model.costs import (
    BATCH,
    BITS,
    ENVIRONMENT,
    HIDDEN,
    ActorCosts,
    RunCosts,
    actor_costs,
    config_of,
    run_costs,
)
from benchmarks.rl_model.one_machine import MachineModel
from benchmarks.rl_model.real_runs import busy_processes, steps_a_second
from benchmarks.tables import Table

CHECKED = (32, 8)
ACTORS = (1, 2, 4, 8)
CLUSTER = (16, 100, 1000, 10_000)
GIGABITS = (10, 100)
MODEL_SECONDS = 20.0
POLICY = "x".join((str(len(HIDDEN)), str(HIDDEN[0])))


app = typer.Typer(add_completion=False, no_args_is_help=True)


def _report(tables: Iterator[Table], json_file: Path | None) -> None:
    report("benchmarks.rl_model", tables, json_file, packages=("tensorflow", "simpy"))


@app.command()
def predict(json_file: JsonFile = None) -> None:
    """Measure the costs, and predict clusters."""
    _report(_tables(_prediction_table), json_file)


@app.command()
def check(
    steps: Annotated[int, typer.Option(help="Steps of each real run.")] = 40_000,
    json_file: JsonFile = None,
) -> None:
    """Measure the costs, and compare the model of this machine with real runs."""
    _report(_tables(partial(_check_table, steps=steps)), json_file)


def _tables(made: Callable[[RunCosts, dict[int, ActorCosts]], Table]) -> Iterator[Table]:
    costs = run_costs()
    actors = {bits: actor_costs(bits) for bits in BITS}
    yield _cost_table(costs, actors)
    yield made(costs, actors)


def _cost_table(costs: RunCosts, actors: dict[int, ActorCosts]) -> Table:
    table = Table(
        f"Costs of a run with {POLICY} in {ENVIRONMENT}, us of a processor",
        {"bits": "d", "step": ".1f", "step beside a learner": ".1f", "switch": ".0f", "pack": ".0f",
         "block kB": ".0f"},
        notes=[
            f"The learner: {1e3 * costs.learn:.1f} ms for a step with {BATCH} records, "
            f"{1e3 * costs.learn_beside:.1f} ms beside an actor; {1e6 * costs.copy:.0f} us to hand "
            f"over weights; {1e6 * costs.insert:.2f} us to take and store a record of "
            f"{costs.record_bytes} bytes.",
        ],
    )  # fmt: skip
    for bits, cost in actors.items():
        times = (cost.step, cost.beside, cost.switch, cost.pack)
        table.add(bits, *(1e6 * time for time in times), cost.block_bytes / 1e3)
    return table


def _check_table(costs: RunCosts, actors: dict[int, ActorCosts], steps: int) -> Table:
    table = Table(
        f"Steps a second on this machine, {os.cpu_count()} processors",
        {"bits": "d", "actors": "d", "others": "d", "real": ".0f", "model": ".0f", "error": "+.1%"},
        notes=[
            "others: processes of others with the same priority or a higher one that wanted a "
            "processor before and after the run."
        ],
    )
    for bits in CHECKED:
        for count in ACTORS:
            before = busy_processes()
            real = steps_a_second(bits, count, steps)
            others = round((before + busy_processes()) / 2)
            config, processors = config_of(bits, count), os.cpu_count() or 1
            model = MachineModel(config, actors[bits], costs, processors, others)
            rate = model.run(MODEL_SECONDS * (1 + others / processors)).rate
            table.add(bits, count, others, real, rate, rate / real - 1)
    return table


def _prediction_table(costs: RunCosts, actors: dict[int, ActorCosts]) -> Table:
    table = Table(
        f"Prediction for clusters, {ACTORS_OF_A_NODE} actors on a node",
        {"Gbit/s": "d", "actors": "d", "bits": "d", "million steps/s": ".3f", "age, ms": ".0f",
         "age in a tree, ms": ".0f", "MB/s out of the learner": ".0f",
         "MB/s in a tree": ".0f", "J a million steps": ".0f"},
        notes=[
            f"The learner publishes every {1e3 * costs.learn:.0f} ms and keeps up with all "
            f"records. One like that here would learn from {BATCH / costs.learn / 1e6:.4f} million "
            "steps a second.",
            "age: time since the weights of an action were published, mean over all actions.",
            f"tree: each node passes blocks on to {BRANCHES} others.",
            f"Assumed: {1e3 * LATENCY:g} ms for a message, {WATTS:g} W for a processor, "
            f"{1e9 * JOULES_A_BYTE:g} nJ a byte.",
        ],
    )  # fmt: skip
    for gigabits in GIGABITS:
        for count in CLUSTER:
            for bits, actor in actors.items():
                direct, tree = (
                    ClusterModel(count, gigabits, actor, costs, tree, costs.learn).run()
                    for tree in (False, True)
                )
                table.add(
                    gigabits, count, bits, direct.rate / 1e6, 1e3 * direct.age, 1e3 * tree.age,
                    direct.sent / 1e6, tree.sent / 1e6, direct.joules,
                )  # fmt: skip
    return table


if __name__ == "__main__":
    app()
