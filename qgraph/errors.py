"""One tree of errors. Each class has its own exit code, used by the command line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy.typing as npt


class QGraphError(Exception):
    """Base of all errors that qgraph raises.

    Args:
        message: The fault.
        node: The node, tensor or file that has the fault.
        hint: What to do.

    Examples:
        >>> print(QGraphError("has no inputs", node="conv1", hint="give it one"))
        conv1: has no inputs
          give it one
    """

    exit_code = 1

    def __init__(self, message: str, *, node: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.node = node
        self.hint = hint

    def __str__(self) -> str:
        where = f"{self.node}: " if self.node else ""
        hint = f"\n  {self.hint}" if self.hint else ""
        return f"{where}{self.message}{hint}"


class UsageError(QGraphError):
    """Options or arguments are invalid or exclude each other."""

    exit_code = 2


class LoadError(QGraphError):
    """A model file is missing, damaged, or of another format."""

    exit_code = 3


class GraphError(QGraphError):
    """A graph is not well formed: a cycle, a dangling input, a type that does not fit."""

    exit_code = 4


class TextError(GraphError):
    """The text form of a graph does not parse."""


class UnsupportedError(QGraphError):
    """A target does not support an op, a type or a form that the graph needs."""

    exit_code = 5


class CalibrationError(QGraphError):
    """Calibration data is missing, of the wrong shape or type, or contains NaN."""

    exit_code = 6


class ProfileError(QGraphError):
    """A target profile is not valid."""

    exit_code = 7


class OutputError(QGraphError):
    """An output cannot be written: it exists, or the path is not writable."""

    exit_code = 8


class ExactnessError(QGraphError):
    """The arithmetic cannot be exact: an accumulator overflows, or a scale is out of range.

    Args:
        message: As in `QGraphError`.
        node: As in `QGraphError`.
        hint: As in `QGraphError`.
        evidence: Arrays by name that show the overflow.

    Examples:
        >>> ExactnessError("overflows", evidence={"x": [1]}).evidence
        {'x': [1]}
    """

    exit_code = 9

    def __init__(
        self,
        message: str,
        *,
        node: str | None = None,
        hint: str | None = None,
        evidence: Mapping[str, npt.ArrayLike] | None = None,
    ) -> None:
        super().__init__(message, node=node, hint=hint)
        self.evidence = dict(evidence or {})


class PassError(QGraphError):
    """A pass failed: a requirement is not met, or its rewrites do not terminate."""

    exit_code = 10


class TrainingError(QGraphError):
    """Training cannot start or continue: nothing can be trained, or numbers are not finite."""

    exit_code = 11


class RunError(QGraphError):
    """A process that a run depends on has ended."""

    exit_code = 12


class StreamError(QGraphError):
    """Standard output is closed, or cannot be written."""

    exit_code = 13


class Interrupted(QGraphError):
    """Interrupted by Ctrl-C."""

    exit_code = 130


class PipeError(StreamError):
    """The reader of standard output has ended, such as `head -1`. Nothing is printed."""

    exit_code = 141


INTERNAL_ERROR = 70  # an exception that is not in this tree: a fault of qgraph


def exit_codes() -> dict[int, str]:
    """The exit codes of the command line.

    Returns:
        The meaning of each code, in order of the codes.

    Examples:
        >>> exit_codes()[0]
        'Done.'
    """
    found = {0: "Done.", INTERNAL_ERROR: "An internal error: please report it."}
    waiting: list[type[QGraphError]] = [QGraphError]
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        if kind is not QGraphError and "exit_code" in vars(kind):
            found[kind.exit_code] = (kind.__doc__ or "").splitlines()[0]
    return dict(sorted(found.items()))


def reason_of(error: BaseException) -> str:
    """The reason of an exception of another library, without the name of its class.

    Args:
        error: The exception.

    Returns:
        One short line.

    Examples:
        >>> reason_of(KeyError("size"))
        "key 'size' is missing"
    """
    if isinstance(error, OSError) and error.strerror:
        place = f": {error.filename}" if error.filename else ""
        return f"{error.strerror}{place}"
    if isinstance(error, KeyError) and error.args:
        return f"key {error.args[0]!r} is missing"
    return first_line(error)


def first_line(error: object, limit: int = 200) -> str:
    """The first line of a message.

    Args:
        error: A message, or an exception.
        limit: The largest number of characters.

    Returns:
        The line; the name of the type if the message is empty.

    Examples:
        >>> first_line(ValueError("wrong shape"))
        'wrong shape'
        >>> first_line(KeyError())
        'KeyError'
    """
    text = (str(error).strip().splitlines() or [""])[0].strip() or type(error).__name__
    return text if len(text) <= limit else f"{text[:limit]}..."
