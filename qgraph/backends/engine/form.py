"""The integer engine as a form: a `.qgi` file, and what runs it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from qgraph.backends.engine.engine import Engine
from qgraph.backends.engine.file import engine_file
from qgraph.backends.forms import Network, Runner
from qgraph.errors import UnsupportedError
from qgraph.files import write_whole
from qgraph.ir.types import Array

FILE = "network.qgi"


@dataclass(frozen=True)
class EngineForm:
    """The engine at one level. Its runner shows every tensor that `layers` leaves in memory.

    layers: every tensor is shown and nothing is fused; else exits are all that is seen.
    """

    name: str = "engine"
    level: str = "auto"
    threads: int = 1
    layers: bool = True

    def refusal(self, network: Network) -> str | None:
        try:
            engine_file(network.program)
        except UnsupportedError as error:
            return str(error)
        return None

    def write(self, network: Network, folder: Path) -> None:
        write_whole(folder / FILE, engine_file(network.program))

    def runner(self, network: Network, folder: Path) -> Runner:
        engine = Engine.open(folder / FILE, self.threads, self.level, fuse=not self.layers)
        shown = [step.output for step in network.program.steps] if self.layers else None

        def run(codes: Mapping[str, Array]) -> Mapping[str, Array]:
            found = engine.run_codes(codes, shown)
            return {name: array.astype(np.int64) for name, array in found.items()}

        return run
