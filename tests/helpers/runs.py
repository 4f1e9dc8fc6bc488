"""Runs of training that end on events, for processes of unknown speed."""

from __future__ import annotations

import csv
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from qgraph.ir.types import Array
from qgraph.rl.agents import config_for
from qgraph.rl.learn.directory import RunDirectory
from qgraph.rl.learn.training import Training

MANY = 10**6  # steps that a run with `ends_when` never reaches
SECONDS = 120.0  # the time after which an expected event counts as missing


def begun(path: Path, algorithm: str, environment: str, **settings: Any) -> Training:
    config = config_for(algorithm, environment, **settings)
    directory = RunDirectory(path, resume=False)
    directory.begin(config)
    return Training(config, directory)


def resumed(path: Path) -> Training:
    directory = RunDirectory(path, resume=True)
    return Training(directory.config(), directory, resume=True)


def rows(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file."""
    with path.open() as stream:
        return list(csv.DictReader(stream))


def unwatched(status: object) -> None:
    """A watch that does nothing."""


def ends_when(training: Training, enough: Callable[[Array], bool]) -> list[Array]:
    """Run until `enough` is true of all records so far, which are added to the list.

    Its options have MANY steps.
    """
    insert, found, end = training._insert, list[Array](), time.monotonic() + SECONDS

    def inserted(records: Array) -> None:
        insert(records)
        found.append(records.copy())
        assert time.monotonic() < end
        if enough(np.concatenate(found)):
            training.config = replace(training.config, steps=training.limiter.inserts)

    training._insert = inserted  # type: ignore[method-assign]
    return found
