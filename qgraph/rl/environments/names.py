"""The names of environments that are installed, for shells to complete."""

from __future__ import annotations

import os
from importlib import import_module

from qgraph.rl.environments.dm_control import DM_CONTROL, PIXELS, REPEATED


def environment_names(beginning: str = "") -> list[str]:
    """Names by gymnasium's registry; by dm_control's suite where `beginning` asks for those.

    A package that is not installed has none.
    """
    if beginning.startswith(DM_CONTROL):
        return _dm_control()
    try:
        registry = import_module("gymnasium").registry
    except ImportError:
        return [DM_CONTROL]
    return [*sorted(registry), DM_CONTROL]


def _dm_control() -> list[str]:
    os.environ.setdefault("MUJOCO_GL", "disable")
    try:
        tasks = import_module("dm_control.suite").ALL_TASKS
    except Exception:  # without the library that draws, its import may fail in any way
        return []
    return [f"{DM_CONTROL}{a}-{b}{end}" for a, b in tasks for end in ("", REPEATED, PIXELS)]
