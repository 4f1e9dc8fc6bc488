"""The place of a process among the workers of a training run, by the variable TF_CONFIG."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass

from qgraph.errors import UsageError

TF_CONFIG = "TF_CONFIG"
EXAMPLE = (
    f'{TF_CONFIG}=\'{{"cluster": {{"worker": ["host0:2222", "host1:2222"]}}, '
    '"task": {"type": "worker", "index": 0}}\''
)


@dataclass(frozen=True)
class WorkerTask:
    """The place of this process among the workers of a run. Worker 0 is the chief.

    The chief validates, and it is the only one that writes files.
    """

    index: int = 0
    workers: int = 1

    @property
    def is_chief(self) -> bool:
        return self.index == 0


def task_of(workers: bool) -> WorkerTask:
    """The place of this process by TF_CONFIG if there are `workers`, otherwise alone.

    Raises UsageError for a TF_CONFIG that is missing or not valid.
    """
    if not workers:
        return WorkerTask()
    text = os.environ.get(TF_CONFIG)
    if not text:
        raise UsageError(f"--workers needs the variable {TF_CONFIG}", hint=f"such as {EXAMPLE}")
    try:
        given = json.loads(text)
        cluster, task = given["cluster"], given["task"]
        chiefs = len(cluster.get("chief", ()))
        count = chiefs + len(cluster["worker"])
        index = int(task["index"]) + (chiefs if task["type"] == "worker" else 0)
        known = task["type"] in ("chief", "worker") and set(cluster) <= {"chief", "worker"}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{TF_CONFIG} is not valid: {error}", hint=f"such as {EXAMPLE}") from error
    if not known or not 0 <= index < count:
        problem = f"task {task} is not a worker of the cluster {cluster}"
        raise UsageError(f"{TF_CONFIG} is not valid: {problem}", hint=f"such as {EXAMPLE}")
    return WorkerTask(index, count)
