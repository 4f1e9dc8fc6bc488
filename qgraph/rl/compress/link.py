"""Links: passes over policies, run by the same manager as passes over graphs."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

from qgraph.errors import QGraphError, UnsupportedError, reason_of
from qgraph.ir.types import Array
from qgraph.passes import PassOver
from qgraph.rewrite.trace import Refusal, Rewrite, Trace
from qgraph.rl.actor import ActorProgram, ActorStep
from qgraph.rl.compress.call_text import print_call
from qgraph.rl.compress.chain_policy import (
    ChainPolicy,
    Memory,
    Task,
    check_outputs,
    read_only,
    silent,
)


@dataclass
class Compression:
    """A policy on its way through a chain, on which the pass manager runs links.

    policy          the result of the last link
    observations, memory, heartbeat: as in `Compressor.__call__`
    """

    policy: ChainPolicy
    observations: Array | None = None
    memory: Memory = field(default_factory=dict)
    heartbeat: Callable[[], object] = silent
    facts: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.original = self.policy
        if self.observations is not None:
            self.observations = read_only(self.observations)
        self._times = Counter[str]()

    def verify(self) -> None:
        """Raise UnsupportedError if outputs differ from those of the original.

        `ChainPolicy` itself checks that weights fit the program.
        """
        if self.policy.program is not self.original.program:
            check_outputs(self.policy.program, self.original.program, "what it makes")

    def contents(self) -> list[object]:
        return [self.policy]

    def task(self, link: str, refuse: Callable[[str, str], None]) -> Task:
        """The task of the next link, whose memory is kept by its text, numbered if repeated."""
        self._times[link] += 1
        times = self._times[link]
        memory = self.memory.setdefault(link if times == 1 else f"{link} {times}", {})
        return Task(self.original, self.observations, memory, self.heartbeat, refuse)


@dataclass(frozen=True)
class Link(PassOver[Compression]):
    """A way to make a policy smaller or faster. Subclasses are frozen dataclasses.

    The fields of a link are its text: `prune(0.5)`.

    Attributes:
        name: Name of a built-in link in texts. Custom links use their module and class.

    Examples:
        >>> from dataclasses import dataclass, replace
        >>> from qgraph.rl.compress import Compressor, Link
        >>> @dataclass(frozen=True)
        ... class Halve(Link):
        ...     def __call__(self, policy, task):
        ...         halves = {name: weight / 2 for name, weight in policy.weights.items()}
        ...         return replace(policy, weights=halves)
        >>> len(Compressor().then(Halve()).links)
        1
    """

    name: ClassVar[str] = ""

    @abstractmethod
    def __call__(self, policy: ChainPolicy, task: Task) -> ChainPolicy:
        """Change a policy.

        Args:
            policy: The policy. It does not change.
            task: Observations, and other context.

        Returns:
            The new policy.

        Raises:
            UnsupportedError: The link does not support the policy.
        """

    def change(self, subject: Compression, trace: Trace) -> int:
        """Run the link as a step of a chain.

        Args:
            subject: The policy, which is replaced, and its context.
            trace: Records changes and refusals.

        Returns:
            The number of changes.

        Raises:
            QGraphError: An error of the link, with the text of the link in front.
            UnsupportedError: Another exception of the link.
        """
        before, text, refused = subject.policy, str(self), dict[str, str]()
        subject.heartbeat()
        try:
            subject.policy = self(before, subject.task(text, refused.__setitem__))
            changes = changed(before, subject.policy)
        except QGraphError as error:
            error.message = f"`{text}`: {error.message}"
            raise
        except Exception as error:  # of a custom link, or of a library
            raise UnsupportedError(f"`{text}` failed: {reason_of(error)}") from error
        rule = self.name or text
        for name, (old, new) in changes.items():
            trace.record(Rewrite(text, rule, name, old, new))
        for step in subject.policy.program.steps:
            if step.output in refused:
                trace.refuse(Refusal(text, rule, step.output, refused[step.output]))
        return len(changes)

    @property
    def title(self) -> str:
        return str(self)

    def __str__(self) -> str:
        """The text that `Compressor.parse` reads."""
        name = vars(type(self)).get("name")
        return print_call(self, {name: type(self)} if name else {}).removesuffix("()")


@dataclass(frozen=True)
class End(Link):
    """A link that ends a chain: its result is run, not compressed further."""


def changed(before: ChainPolicy, after: ChainPolicy) -> dict[str, tuple[str, str]]:
    """The changes of a policy, by the output of a step or by name: old and new text."""
    old, new = _rest(before), _rest(after)
    if after.program is not before.program:
        old, new = {**_steps(before), **old}, {**_steps(after), **new}
    return {
        name: (old.get(name, ""), new.get(name, ""))
        for name in dict.fromkeys((*old, *new))
        if old.get(name) != new.get(name)
    }


def _steps(policy: ChainPolicy) -> dict[str, str]:
    return {step.output: _text(policy.program, step) for step in policy.program.steps}


def _rest(policy: ChainPolicy) -> dict[str, str]:
    """Texts of bits, block and file."""
    bits, first, last = policy.bits
    own = "".join(f", {n} {b}" for n, b in (("first", first), ("last", last)) if b is not None)
    parts = {"weights": f"{bits} bits{own}"}
    if policy.block is not None:
        parts["block"] = f"{len(policy.block)} bytes"
    if policy.file is not None:
        parts["file"] = "static"
    return parts


def _text(program: ActorProgram, step: ActorStep) -> str:
    """A text like `dense(hidden_0) [64,2] relu`, with the shape of the first weight."""
    shapes = [",".join(map(str, program.weight_shapes[name])) for name in step.weights[:1]]
    parts = [f"{step.op}({', '.join(step.inputs)})", *(f"[{shape}]" for shape in shapes)]
    return " ".join([*parts, *([step.activation] if step.activation != "linear" else [])])
