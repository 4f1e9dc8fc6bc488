"""The settings of compression in a run, which the compressor process gets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from qgraph.errors import QGraphError, UnsupportedError, UsageError
from qgraph.rl.compress.chain import Compressor
from qgraph.rl.compress.chain_policy import ChainPolicy, PolicySpec, Task, silent
from qgraph.rl.compress.distill import Distill
from qgraph.rl.compress.prune import Prune
from qgraph.rl.compress.static import Static
from qgraph.rl.compress.worker import CompressionWorker, max_block_size
from qgraph.rl.learn.networks import initial_weights
from qgraph.rl.monitor import Monitor, parse_strategy
from qgraph.rl.monitor.growth import Growth
from qgraph.rl.monitor.log import Log


@dataclass(frozen=True)
class Settings:
    """The settings; compressor and monitor are texts.

    every   snapshots between measurements
    folder  the directory of its log and students, "" for none
    until   in a resumed run, the version of its checkpoint; later rows of the log are removed

    Raises UsageError for invalid texts, and for a strategy that cannot steer the chain.
    """

    compressor: str
    monitor: str = "watch"
    every: int = 10
    folder: str = ""
    until: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.every < 1:
            raise UsageError(f"policies between measurements must be 1 or more, not {self.every}")
        Monitor(parse_strategy(self.monitor), Compressor.parse(self.compressor))
        if any(chain.first(Static) is not None for chain in self._chains()):
            raise UsageError(
                "`static` is for deployment; policies of actors change too often for it",
                hint="use quantize(8)",
            )

    @property
    def teaches_values(self) -> bool:
        """Whether a student learns a critic's values too."""
        found = (link for chain in self._chains() for link in chain.links)
        return any(isinstance(link, Distill) and link.value > 0 for link in found)

    def check(self, spec: PolicySpec) -> None:
        """Run the chain, and those that a bandit chooses from, once on such a policy, with a single
        step of distillation.

        Raises the errors of links, and UsageError for a chain that makes a policy larger.
        """
        whole = spec.policy(initial_weights(spec.program, np.random.default_rng(self.seed)))
        seen = np.random.default_rng(self.seed).normal(size=(8, *spec.program.shape))
        for chain in self._chains():
            short = chain.changed(Distill, lambda link: replace(link, steps=1))
            try:
                compressed = short(whole, seen.astype(np.float32))
            except QGraphError as error:  # with the texts of the full chain
                for long, tried in zip(chain.links, short.links, strict=True):
                    error.message = error.message.replace(f"`{tried}`", f"`{long}`")
                raise
            _check_pruned(chain, whole)
            if len(compressed.pack()) > max_block_size(spec.program):
                raise UsageError(f"`{chain}` makes the policy larger")

    def _chains(self) -> list[Compressor]:
        """The user's chain, and those that a bandit chooses from."""
        initial, strategy = Compressor.parse(self.compressor), parse_strategy(self.monitor)
        return [initial, *(strategy.chains(initial) if isinstance(strategy, Growth) else [])]

    def worker(
        self, spec: PolicySpec, heartbeat: Callable[[], object] = silent, has_policy: bool = False
    ) -> CompressionWorker:
        """The worker for a learner's policy; parameters as in `CompressionWorker`."""
        folder = Path(self.folder) if self.folder else None
        log = None if folder is None else Log(folder, self.until)
        chain = Compressor.parse(self.compressor)
        monitor = Monitor(parse_strategy(self.monitor), chain, log)
        resume = self.until is not None
        return CompressionWorker(
            spec, monitor, self.every, self.seed, folder, resume, heartbeat, has_policy
        )


def _check_pruned(chain: Compressor, whole: ChainPolicy) -> None:
    """Raise UnsupportedError for a sparsity of less than one unit in every layer."""
    for link in chain.links:
        if isinstance(link, Distill) and link.student:
            return  # the link prunes a student, not this policy
        if isinstance(link, Prune) and link(whole, Task(whole)).numbers == whole.numbers:
            raise UnsupportedError(
                f"`{link}`: no layer has enough units to lose one",
                hint="use a higher sparsity",
            )
