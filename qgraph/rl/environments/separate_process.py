"""An environment in a process of its own: software that draws and TensorFlow both bring an LLVM,
and crash where they meet.

What goes there and back is a line of JSON each, and behind an answer the bytes of an observation.
"""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import suppress
from typing import Any

import numpy as np

from qgraph.errors import RunError, UsageError
from qgraph.ir.types import Array
from qgraph.rl.environments.environment import Actions, Outcome

MODULE = "qgraph.rl.environments.serve"
SECONDS = 10.0  # that the process has to end


class Apart:
    """As the environment that `make` gives in the process. Raises what that raises, as UsageError;
    RunError where the process has ended.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.process = subprocess.Popen(
            [sys.executable, "-m", MODULE, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        try:
            about = self._answer()
        except (UsageError, RunError):
            self.close()
            raise
        self.shape, self.dtype = tuple(about["shape"]), np.dtype(about["dtype"])
        self.actions = Actions(**{name: _fixed(value) for name, value in about["actions"].items()})

    def reset(self, seed: int | None = None) -> Array:
        self._ask(what="reset", seed=seed)
        return self._observation()

    def step(self, action: Any) -> Outcome:
        found = self._ask(what="step", action=np.asarray(action).tolist())
        return Outcome(self._observation(), **found)

    def close(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        with suppress(BrokenPipeError):  # of what a process that is gone was asked
            self.process.stdin.close()
        try:
            self.process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()

    def _ask(self, **what: Any) -> dict[str, Any]:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(what).encode() + b"\n")
            self.process.stdin.flush()
        except (BrokenPipeError, ValueError):  # it is gone, or was closed here
            raise self._gone() from None
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line.endswith(b"\n"):
            raise self._gone()
        found: dict[str, Any] = json.loads(line)
        if "error" in found:
            raise UsageError(found["error"], hint=found["hint"])
        return found

    def _observation(self) -> Array:
        assert self.process.stdout is not None
        size = int(np.prod(self.shape)) * self.dtype.itemsize
        content = self.process.stdout.read(size)
        if len(content) < size:
            raise self._gone()
        return np.frombuffer(content, self.dtype).reshape(self.shape).copy()

    def _gone(self) -> RunError:
        return RunError(f"the process of `{self.name}` has ended")


def _fixed(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
