"""Vectors in a folder, with `index.json`, which lists the content of each file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from qgraph.backends.network_forms import Network
from qgraph.backends.vectors.bench import bench
from qgraph.backends.vectors.cases import ExtremeSamples, chosen, extreme_samples, runs, size
from qgraph.backends.vectors.files import MAX_HEX_BYTES, bits_of, write
from qgraph.ir.reading import spec_if_any
from qgraph.ir.types import Codes, QuantSpec
from qgraph.names import identifier
from qgraph.program import Step, Tensor, run
from qgraph.program.extremes import Extreme
from qgraph.program.islands import islands
from qgraph.program.layers import Layer
from qgraph.records import JSON, to_json

FORMAT = 1
ABOUT = {
    "codes": "value = code * 2^-exponent; a list of exponents has one for each last index",
    "order": "row-major, channels last (the last index changes fastest)",
    "npy": "numpy, in the type `storage`",
    "bin": "raw, little-endian, in the type `storage`",
    "hex": "for $readmemh: one code per line, two's complement with `bits` bits",
    "cases": "one sample through the whole network, with every tensor of the chosen layers",
    "islands": "float ops between segments: the host computes them from values of `reads`, and "
    "quantizes the results to the codes of `feeds`",
    "places": "a layer at one position of its output, one row per sample: the window of its input "
    "(taps listed in `absent` are outside of the image and 0), and all channels of its output",
}


@dataclass
class _Index:
    constants: dict[str, JSON] = field(default_factory=dict)
    cases: list[JSON] = field(default_factory=list)
    places: list[JSON] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


def write_vectors(
    network: Network, folder: Path, *, samples: int, most: int, layers: Sequence[str]
) -> None:
    """Write all files into an empty folder.

    samples: number of calibration samples. most: largest number of codes of all cases together; of
    the first case, as many tensors as fit. layers: names of tensors whose layers are written; all
    layers if empty.
    """
    _VectorWriter(network, folder, chosen(network.program, layers), samples, most).write()


class _VectorWriter:
    def __init__(
        self, network: Network, folder: Path, layers: list[Layer], samples: int, most: int
    ) -> None:
        self.network, self.program, self.folder = network, network.program, folder
        self.layers, self.samples, self.most = layers, samples, most
        names = {v for layer in layers for v in (*layer.read, *layer.made)}
        self.names = [n for n in self.program.tensors if n in names]
        self.stems = {n: f"{i:04d}_{identifier(n)}" for i, n in enumerate(self.program.tensors)}
        self.index = _Index()
        self.places: list[tuple[str, ExtremeSamples]] = []

    def write(self) -> None:
        self._constants()
        self._cases()
        for i, layer in enumerate(self.layers):
            self._place(i, layer)
        text, checks = bench(self.program, self.places, self.stems, self._facts, self.folder)
        (self.folder / "bench.sv").write_text(text, "ascii")
        about: dict[str, object] = {
            "format": FORMAT,
            "network": self.program.name,
            "about": ABOUT,
            "batch_free": self.program.batch_free,
            "entries": [e.tensor for e in self.program.entries],
            "exits": [*self.program.exits],
            "tensors": {n: self._facts(n) for n in self.program.tensors},
            "layers": [self._layer(layer) for layer in self.layers],
            "steps": [_step(step) for step in self.program.steps],
            "constants": self.index.constants,
            "cases": self.index.cases,
            "places": self.index.places,
            "bench": checks,
            "left_out": self.index.left_out,
        }
        between = islands(self.network.graph, self.program)
        if between:
            about["islands"] = [to_json(island.facts()) for island in between]
        (self.folder / "index.json").write_text(json.dumps(about, indent=1) + "\n", "utf-8")

    def _facts(self, name: str) -> dict[str, JSON]:
        tensor = self.program.tensors[name]
        return {
            "file": self.stems[name],
            "shape": list(tensor.shape),
            "storage": tensor.storage,
            "bits": self._bits(tensor),
            "signed": self._signed(tensor),
            "low": tensor.low,
            "high": tensor.high,
            "exponent": tensor.exponent,
        }

    def _spec(self, tensor: Tensor) -> QuantSpec | None:
        """The spec of a constant in the graph; narrower codes have its width too."""
        node = self.network.graph.nodes.get(tensor.name)
        spec = spec_if_any(node) if node is not None else None
        return spec if tensor.name in self.program.constants else None

    def _bits(self, tensor: Tensor) -> int:
        spec = self._spec(tensor)
        return spec.bits if spec is not None else bits_of(tensor.low, tensor.high)

    def _signed(self, tensor: Tensor) -> bool:
        spec = self._spec(tensor)
        return bool(spec.signed) if spec is not None else tensor.low < 0

    def _layer(self, layer: Layer) -> dict[str, JSON]:
        constants = [v for v in layer.read if v in self.program.constants]
        return {
            "name": layer.head.output,
            "op": layer.head.op,
            "inputs": [v for v in layer.read if v not in constants],
            "constants": constants,
            "outputs": [*layer.stored],
            "steps": [*layer.made],
        }

    def _tensor(self, folder: str, name: str, codes: Codes) -> dict[str, JSON]:
        place = self.folder / folder / self.stems[name]
        place.parent.mkdir(parents=True, exist_ok=True)
        tensor = self.program.tensors[name]
        hashes = write(place, codes, tensor.storage, self._bits(tensor))
        if "hex" not in hashes:
            why = f"{codes.size} codes, more than {MAX_HEX_BYTES}"
            self._leave_out(f"{folder}/{self.stems[name]}.hex", why)
        return {"file": f"{folder}/{self.stems[name]}", "sha256": hashes}

    def _constants(self) -> None:
        # All of them, because the network can be computed again from the files.
        for name, codes in self.program.constants.items():
            self.index.constants[name] = self._tensor("constants", name, codes)

    def _cases(self) -> None:
        every, left = [n for n in self.names if n not in self.program.constants], self.most
        for one in runs(self.network, self.samples):
            names = self._fitting(every, left)
            if not names or (self.index.cases and names != every):
                self._leave_out(f"case {one.name}", f"{left} of {self.most} codes are left")
                continue
            if names != every:
                rest = len(every) - len(names)
                self._leave_out(f"case {one.name}", f"{rest} tensors, for {self.most} codes")
            left -= size(self.program, names)
            codes = run(self.program, one.entries, names)
            folder = f"cases/{one.name}"
            self.index.cases.append(
                {
                    "name": one.name,
                    "exercises": one.about,
                    "tensors": {n: self._tensor(folder, n, codes[n]) for n in names},
                }
            )

    def _fitting(self, names: list[str], most: int) -> list[str]:
        """As many of the first tensors as have at most `most` codes together."""
        while size(self.program, names) > most:
            names = names[:-1]
        return names

    def _leave_out(self, what: str, why: str) -> None:
        self.index.left_out.append(f"{what}: {why}")

    def _place(self, number: int, layer: Layer) -> None:
        head = layer.head.output
        found = extreme_samples(self.program, layer)
        if isinstance(found, str):
            self._leave_out(f"place of {head}", f"the layer {found}")
            return
        folder = f"places/{number:03d}_{identifier(head)}"
        self.places.append((folder, found))
        seen, held = found.place.seen, found.place.program.constants
        # The inputs that depend on the place; others are constants of the network.
        constants = {n: c for n, c in held.items() if c.shape != self.program.constants[n].shape}
        self.index.places.append(
            {
                "layer": head,
                "absent": [] if seen is True else np.argwhere(~np.asarray(seen)).tolist(),
                "shapes": {n: list(c.shape) for n, c in {**constants, **found.codes}.items()},
                "rows": [_row(one) for one in found.found],
                "unreached": [vars(one) for one in found.missing],
                "constants": {n: self._tensor(folder, n, c) for n, c in constants.items()},
                "tensors": {n: self._tensor(folder, n, c) for n, c in found.codes.items()},
            }
        )


def _row(one: Extreme) -> dict[str, JSON]:
    return {
        "exercises": one.goal,
        "tensor": one.tensor,
        "channel": one.channel,
        "before": one.before,
        "after": one.after,
    }


def _step(step: Step) -> dict[str, object]:
    return {
        "op": step.op,
        "inputs": [*step.inputs],
        "output": step.output,
        "attrs": dict(step.attrs.items()),
    }
