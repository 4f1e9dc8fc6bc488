"""How a run compresses, as text and numbers that go to the process that does it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from qgraph.errors import QGraphError, UnsupportedError, UsageError
from qgraph.rl.compress.chain import Compressor
from qgraph.rl.compress.chain_policy import ChainPolicy, PolicySpec, Task, silent
from qgraph.rl.compress.distill import Distill
from qgraph.rl.compress.prune import Prune
from qgraph.rl.compress.static import Static
from qgraph.rl.compress.worker import CompressionWorker, room_for
from qgraph.rl.learn.networks import initial_weights
from qgraph.rl.monitor import Monitor, parse_strategy
from qgraph.rl.monitor.growth import Growth
from qgraph.rl.monitor.log import Log


@dataclass(frozen=True)
class Settings:
    """compressor and monitor are texts.

    every   snapshots between looks of the monitor
    folder  where its log and students are kept, "" for nowhere
    until   of a run that goes on: the version of its checkpoint, after which rows are made again

    Raises UsageError for texts that are none, and for a strategy that cannot steer the chain.
    """

    compressor: str
    monitor: str = "watch"
    every: int = 10
    folder: str = ""
    until: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.every < 1:
            raise UsageError(f"the monitor looks every {self.every} snapshots; 1 or more")
        Monitor(parse_strategy(self.monitor), Compressor.parse(self.compressor))
        if any(chain.first(Static) is not None for chain in self._chains()):
            raise UsageError(
                "`static` is for deployment; what actors run changes too often for it",
                hint="quantize(8)",
            )

    @property
    def teaches_values(self) -> bool:
        """True if a student learns a critic's values too."""
        found = (link for chain in self._chains() for link in chain.links)
        return any(isinstance(link, Distill) and link.value > 0 for link in found)

    def check(self, spec: PolicySpec) -> None:
        """Run the chain, and what a bandit may choose, once, with a single step of distillation, on
        such a policy.

        Raises what links raise for a graph that they do not fit, UsageError for a chain that makes
        a policy larger.
        """
        whole = spec.policy(initial_weights(spec.program, np.random.default_rng(self.seed)))
        seen = np.random.default_rng(self.seed).normal(size=(8, *spec.program.shape))
        for chain in self._chains():
            short = chain.changed(Distill, lambda link: replace(link, steps=1))
            try:
                made = short(whole, seen.astype(np.float32))
            except QGraphError as error:  # by the texts that were said
                for long, tried in zip(chain.links, short.links, strict=True):
                    error.message = error.message.replace(f"`{tried}`", f"`{long}`")
                raise
            _check_pruned(chain, whole)
            if len(made.pack()) > room_for(spec.program):
                raise UsageError(f"`{chain}` makes the policy larger")

    def _chains(self) -> list[Compressor]:
        """The user's, and those that a bandit chooses from."""
        begun, strategy = Compressor.parse(self.compressor), parse_strategy(self.monitor)
        return [begun, *(strategy.chains(begun) if isinstance(strategy, Growth) else [])]

    def worker(
        self, spec: PolicySpec, beat: Callable[[], object] = silent, acting: bool = False
    ) -> CompressionWorker:
        """One for a learner's policy; arguments are those of `CompressionWorker`."""
        folder = Path(self.folder) if self.folder else None
        log = None if folder is None else Log(folder, self.until)
        chain = Compressor.parse(self.compressor)
        monitor = Monitor(parse_strategy(self.monitor), chain, log)
        resume = self.until is not None
        return CompressionWorker(spec, monitor, self.every, self.seed, folder, resume, beat, acting)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(found: Mapping[str, Any]) -> Settings:
        return Settings(**found)


def _check_pruned(chain: Compressor, whole: ChainPolicy) -> None:
    """Raises UnsupportedError for a sparsity that is less than one unit of every layer."""
    for link in chain.links:
        if isinstance(link, Distill) and link.student:
            return  # another network is pruned behind it
        if isinstance(link, Prune) and link(whole, Task(whole)).numbers == whole.numbers:
            raise UnsupportedError(
                f"`{link}`: no layer has so many units that one would go",
                hint="more sparsity",
            )
