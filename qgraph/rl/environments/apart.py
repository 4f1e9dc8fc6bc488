"""An environment in a process of its own: software that draws and TensorFlow both bring an LLVM,
and crash where they meet.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import Any

from qgraph.errors import RunError, UsageError
from qgraph.ir.types import Array
from qgraph.rl.environments.form import Outcome

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
            self.shape, self.dtype, self.actions = self._answer()
        except UsageError:
            self.close()
            raise

    def reset(self, seed: int | None = None) -> Array:
        found: Array = self._ask("reset", seed)
        return found

    def step(self, action: Any) -> Outcome:
        found: Outcome = self._ask("step", action)
        return found

    def close(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        try:
            self.process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()

    def _ask(self, what: str, *arguments: Any) -> Any:
        assert self.process.stdin is not None
        try:
            pickle.dump((what, arguments), self.process.stdin)
            self.process.stdin.flush()
        except (BrokenPipeError, ValueError):  # it is gone, or was closed here
            raise self._gone() from None
        return self._answer()

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        try:
            error, found = pickle.load(self.process.stdout)
        except (EOFError, pickle.UnpicklingError):
            raise self._gone() from None
        if error is not None:
            raise UsageError(*error[:1], hint=error[1])
        return found

    def _gone(self) -> RunError:
        return RunError(f"the process of `{self.name}` has ended")
