"""A deployed policy at work: its example program, compiled for this machine."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import numpy as np

from qgraph.backends.c.c_form import STRICT, compiler
from qgraph.errors import ExactnessError, RunError
from qgraph.ir.types import Array
from qgraph.rl.deploy.c_facts import CPolicyFacts
from qgraph.rl.deploy.example_source import NOT_FINITE, REFUSED

FLAGS = ("-O2", "-ffp-contract=off")


def build_example(
    folder: Path,
    facts: CPolicyFacts,
    program: Path,
    flags: Sequence[str] = FLAGS,
    command: str | None = None,
) -> None:
    """Compile the example with the policy; warnings are errors.

    command: the compiler; None takes one of this machine. Raises UnsupportedError without one, and
    ExactnessError if the files do not compile.
    """
    files = [str(folder / f"{stem}.c") for stem in (facts.name, facts.net, f"{facts.name}_example")]
    words = [command or compiler(), *STRICT, *flags, *files, "-o", str(program)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ExactnessError("does not compile", node=files[0], hint=done.stderr[:2000])


class ExampleProcess:
    """Asks a running example for actions. Use it in a `with` block.

    Args:
        folder: The directory of the deployment.
        facts: Its sizes and types.
        flags: Options of the compiler.

    Raises:
        UnsupportedError: There is no C compiler.
        ExactnessError: The files do not compile.
    """

    def __init__(self, folder: Path, facts: CPolicyFacts, flags: Sequence[str] = FLAGS) -> None:
        self.facts = facts
        self._place = tempfile.TemporaryDirectory(prefix="qgraph-")
        self._program = Path(self._place.name, "example")
        try:
            build_example(folder, facts, self._program, flags)
        except BaseException:
            self._place.cleanup()
            raise
        self._process = self._started()

    def _started(self) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        return subprocess.Popen(
            [str(self._program)], stdin=pipe, stdout=pipe, stderr=pipe, text=True
        )

    def restart(self) -> None:
        """Begin an episode with a new process, whose states are zeros."""
        self._process.communicate()
        self._process = self._started()

    def __enter__(self) -> ExampleProcess:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def action(self, observation: Array, mask: Array | None = None) -> Array | None:
        """The action for one observation, int64 [], or [a] of int64 or float32; None if C refuses
        it.

        mask: the valid options, for a policy with masks.

        Raises RunError if the program ended.
        """
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(as_text(observation, self.facts, mask))
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except OSError:
            line = ""
        if not line:
            raise self._ended()
        return as_action(line, self.facts)

    def close(self) -> None:
        """End the program."""
        self._process.communicate()
        self._place.cleanup()

    def _ended(self) -> RunError:
        assert self._process.stderr is not None
        said = self._process.stderr.read()
        code = self._process.wait()
        return RunError(f"the compiled policy ended with code {code}", hint=said[:2000])


def as_text(observation: Array, facts: CPolicyFacts, mask: Array | None = None) -> str:
    """An observation as the example reads it; 9 digits are enough for every float32.

    mask: the valid options, which follow it; None stands for all, in a policy with masks.
    """
    numbers = np.asarray(observation, np.float32).reshape(-1).tolist()
    if facts.masks:
        numbers += [1.0] * facts.outputs if mask is None else np.asarray(mask, float).tolist()
    shown = "%.9g" if facts.floats else "%d"
    return " ".join(shown % number for number in numbers) + "\n"


def as_action(line: str, facts: CPolicyFacts) -> Array | None:
    """The action in a line of the example; None for an observation that was refused."""
    if line.strip() in (NOT_FINITE, REFUSED):
        return None
    if facts.discrete:
        return np.asarray(int(line), np.int64)
    if facts.integers:
        return np.asarray([int(word) for word in line.split()], np.int64)
    return np.asarray([np.float32(word) for word in line.split()], np.float32)
