"""The result of `qgraph rl train`: a table, and the next command."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from qgraph.cli.console import console, print_next, print_table
from qgraph.rl.learn.directory import POLICY, STATIC_POLICY
from qgraph.words import counted

if TYPE_CHECKING:
    from qgraph.rl.learn.status import Status
    from qgraph.rl.learn.training import Training


def print_summary(path: Path, training: Training, as_json: bool) -> None:
    if as_json:
        print(json.dumps(facts_of(path, training)))
        return
    config, out = training.config, console()
    if training.status is not None:
        title = f"{config.algorithm} in {config.environment}, seed {config.seed}"
        print_table(title, ("", "=at the end"), rows_of(path, training, training.status))
    for warning in training.warnings:
        out.print(f"warning: {warning}", soft_wrap=True)
    out.print(f"written to {path}", soft_wrap=True)
    policy, static = path / POLICY, path / STATIC_POLICY
    if training.done and policy.exists():
        whole = [str(static), "--against"] if training.bits.begun else []
        print_next(["rl", "evaluate", *whole, str(policy)])


def facts_of(path: Path, training: Training) -> dict[str, object]:
    return {
        "directory": str(path),
        "done": training.done,
        "best": training.counts.best,
        "status": training.status and _without_nan(asdict(training.status)),
        "warnings": training.warnings,
    }


def _without_nan(numbers: dict[str, float]) -> dict[str, float | None]:
    """The numbers as JSON allows them: null for unknown ones, which are NaN."""
    return {name: None if math.isnan(number) else number for name, number in numbers.items()}


def rows_of(path: Path, training: Training, status: Status) -> list[tuple[str, str]]:
    """Names and values of the summary: returns, steps, waiting and compression."""
    return [
        ("return", f"{status.return_mean:.1f} +- {status.return_error:.1f}"),
        (
            f"its best ({STATIC_POLICY if training.bits.begun else POLICY})",
            f"{training.counts.best:.1f}",
        ),
        ("of actors", f"{status.actors_return:.1f}"),
        ("steps of actors", f"{status.actor_steps:,} in {status.episodes:,} episodes"),
        ("steps of the learner", f"{status.learner_steps:,} in {status.seconds:,.1f} s"),
        ("staleness", f"{status.staleness:.1f} learner steps"),
        ("waited", f"learner {status.learner_waiting:.0%}, actors {status.actors_waiting:.0%}"),
        *(_compression(path) if training.config.compress else []),
    ]


def _compression(path: Path) -> list[tuple[str, str]]:
    from qgraph.rl.monitor.log import LINES, changes, read_log

    log = path / LINES
    rows = read_log(log) if log.exists() else []
    if not rows:
        return [("compression", "no policy was compressed yet")]
    changed, seen = len(changes(rows)) - 1, [row for row in rows if row.looked]
    summary = (
        f"{counted(len(seen), 'measurement')}, {counted(changed, 'change')} of the chain "
        "(monitor.csv)"
    )
    measured = [row.indicators for row in seen if math.isfinite(row.indicators.kl_mean)]
    return [
        ("compression", f"{rows[-1].decision.compressor}"),
        *(("KL", f"{m.kl_mean:.2g} mean, {m.kl_max:.2g} largest") for m in measured[-1:]),
        ("monitor", summary),
    ]
