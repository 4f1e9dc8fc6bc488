"""The integer engine as a form: a `.qgi` file and its runner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from qgraph.backends.engine.engine import Engine, levels
from qgraph.backends.engine.file import LOWERINGS, engine_file
from qgraph.backends.network_forms import Network, Runner
from qgraph.errors import ExactnessError, UnsupportedError
from qgraph.files import write_whole
from qgraph.ir.types import Array
from qgraph.ops.lowerings import Lowerings

FILE = "network.qgi"


@dataclass(frozen=True)
class EngineForm:
    """The engine's file; its runner shows every tensor."""

    name: str = "engine"
    lowerings: ClassVar[Lowerings[object]] = LOWERINGS

    def refusal(self, network: Network) -> str | None:
        try:
            engine_file(network.program)
        except UnsupportedError as error:
            return str(error)
        return None

    def write(self, network: Network, folder: Path) -> None:
        write_whole(folder / FILE, engine_file(network.program))

    def renamed(self, network: Network) -> Mapping[str, str]:
        return {}

    def runner(self, network: Network, folder: Path) -> Runner:
        """Every tensor, one op at a time, after all levels have agreed on the fused exits."""
        file = folder / FILE
        fused = {level: Engine.open(file, level=level) for level in levels()}
        apart = Engine.open(file, fuse=False)
        shown = [step.output for step in network.program.steps]

        def run(codes: Mapping[str, Array]) -> Mapping[str, Array]:
            found = apart.run_codes(codes, {*shown, *network.program.exits})
            for level, engine in fused.items():
                for name, array in engine.run_codes(codes).items():
                    if not np.array_equal(array, found[name]):
                        raise ExactnessError(
                            f"the fused kernel for {level} gives other codes", node=name
                        )
            return {name: array.astype(np.int64) for name, array in found.items()}

        return run
