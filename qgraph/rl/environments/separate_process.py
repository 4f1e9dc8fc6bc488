"""An environment in a separate process.

Software rendering and TensorFlow both contain an LLVM, and crash in one process. Requests and
answers are lines of JSON; the bytes of an observation follow an answer.
"""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import suppress

import numpy as np

from qgraph.errors import RunError, UsageError
from qgraph.ir.types import Array
from qgraph.records import from_json
from qgraph.rl.environments.environment import Action, Outcome
from qgraph.rl.environments.messages import Description, Request, StepResult

MODULE = "qgraph.rl.environments.serve"
GRACE = 10.0  # seconds that the process has to end


class SeparateEnvironment:
    """The environment that `make_in_process` creates in another process.

    Raises UsageError if that fails, RunError if the process has ended.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.process = subprocess.Popen(
            [sys.executable, "-m", MODULE, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        try:
            about = from_json(Description, self._answer())
        except (UsageError, RunError):
            self.close()
            raise
        self.shape, self.dtype, self.actions = about.shape, np.dtype(about.dtype), about.actions

    def reset(self, seed: int | None = None) -> Array:
        self._ask(Request("reset", seed=seed))
        return self._observation()

    def step(self, action: Action) -> Outcome:
        answer = self._ask(Request("step", action=np.asarray(action).tolist()))
        result = from_json(StepResult, answer)
        return Outcome(self._observation(), result.reward, result.discount, result.over)

    def close(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        with suppress(BrokenPipeError):  # the process has ended before it read a request
            self.process.stdin.close()
        try:
            self.process.wait(GRACE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()

    def _ask(self, request: Request) -> dict[str, object]:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(request, default=vars).encode() + b"\n")
            self.process.stdin.flush()
        except (BrokenPipeError, ValueError):  # the process has ended, or was closed here
            raise self._gone() from None
        return self._answer()

    def _answer(self) -> dict[str, object]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line.endswith(b"\n"):
            raise self._gone()
        answer: dict[str, object] = json.loads(line)
        if "error" in answer:
            hint = answer.get("hint")
            raise UsageError(str(answer["error"]), hint=None if hint is None else str(hint))
        return answer

    def _observation(self) -> Array:
        assert self.process.stdout is not None
        size = int(np.prod(self.shape)) * self.dtype.itemsize
        content = self.process.stdout.read(size)
        if len(content) < size:
            raise self._gone()
        return np.frombuffer(content, self.dtype).reshape(self.shape).copy()

    def _gone(self) -> RunError:
        return RunError(f"the process of `{self.name}` has ended")
