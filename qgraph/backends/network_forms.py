"""Forms of a network: each is written to a folder, and computes the same codes.

A backend has one frozen dataclass for each form; `qgraph.exports` lists them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

from qgraph.errors import UnsupportedError
from qgraph.ir.graph import Graph
from qgraph.ir.types import Array
from qgraph.ops.lowerings import Lowerings
from qgraph.program import Program
from qgraph.quant.profile import Profile

# From codes of every entry (N samples if the batch is free) to codes of exits, and of other tensors
# that the form can return.
Runner = Callable[[Mapping[str, Array]], Mapping[str, Array]]


def refusal_by(emit: Callable[[], object]) -> str | None:
    """The reason why a network cannot be emitted; None if it can."""
    try:
        emit()
    except UnsupportedError as error:
        return str(error)
    return None


@dataclass(frozen=True)
class Network:
    """A quantized network, from its output directory.

    sample: one batch of calibration inputs (float, by input name). samples: a few more; none if the
    network was quantized without data.
    """

    graph: Graph
    program: Program
    profile: Profile
    sample: Mapping[str, Array]
    samples: Mapping[str, Array] = field(default_factory=dict)


class Form(Protocol):
    """A format that a network can be written in."""

    @property
    def name(self) -> str:
        """Name for `--format`."""

    @property
    def lowerings(self) -> Lowerings[object]:
        """The lowering of each op, or the reason why it is refused."""

    def refusal(self, network: Network) -> str | None:
        """The reason why it cannot represent this network, with the layer; None if it can."""

    def write(self, network: Network, folder: Path) -> None:
        """Write files into an empty folder."""

    def renamed(self, network: Network) -> Mapping[str, str]:
        """Names of tensors in the files, by their names in the graph, if these differ."""

    def runner(self, network: Network, folder: Path) -> Runner:
        """Return a function that runs the written files."""


@runtime_checkable
class WholeForm(Protocol):
    """A form whose files carry the whole network, with float islands."""

    def executed(self, network: Network, folder: Path) -> Mapping[str, Array]:
        """Codes of all tensors, entries too, of one run of the files from the network's sample.

        Entries behind float islands have the codes that the executor itself makes. Empty for a
        network without a sample, and for files that lack the islands.
        """


@runtime_checkable
class ExecutedForm(Protocol):
    """A form that several executors run, each with its own comparison."""

    def runners(self, network: Network, folder: Path) -> Mapping[str, Runner]:
        """Functions that run the written files, by executor with its version."""


@runtime_checkable
class ExecutedWholeForm(Protocol):
    """A form whose files carry the whole network, and that several executors run."""

    def executed_in(self, network: Network, folder: Path) -> Mapping[str, Mapping[str, Array]]:
        """Codes as those of `WholeForm.executed`, by executor with its version."""


@runtime_checkable
class ForeignForm(Protocol):
    """A form whose files one program runs that is not part of qgraph."""

    def executor(self) -> str:
        """The name of the program, with its version."""


@runtime_checkable
class CheckedForm(Protocol):
    """A form whose files compute more than codes, such as outputs behind float ops."""

    def check(self, network: Network, folder: Path) -> None:
        """Compare outputs of the files with those of the network, on its sample.

        Raises ExactnessError if they differ.
        """


@runtime_checkable
class CautiousForm(Protocol):
    """A form whose files may lack a part of the network that users expect."""

    def warnings(self, network: Network) -> list[str]:
        """List what the files lack, and why."""
