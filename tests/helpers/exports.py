"""Forms of a network against the program they were made from, on random codes."""

import tempfile
from pathlib import Path

import numpy as np

from qgraph.backends.network_forms import Form, Network
from qgraph.ir.graph import Graph
from qgraph.ir.types import QuantSpec
from qgraph.program import Entry, Program, Step, Tensor, run
from qgraph.quant.profile import Profile


def network(program: Program, graph: Graph | None = None) -> Network:
    return Network(graph or Graph(program.name), program, Profile("any"), {})


def random_codes(program: Program, seed: int = 0, batch: int = 3) -> dict:
    """Codes for every entry; the ends of its range are among them more often than by chance."""
    rng, codes = np.random.default_rng(seed), {}
    for entry in program.entries:
        tensor = program.tensors[entry.tensor]
        shape = (batch, *tensor.shape[1:]) if program.batch_free else tensor.shape
        drawn = rng.integers(tensor.low, tensor.high + 1, shape)
        drawn = np.where(rng.random(shape) < 0.1, tensor.low, drawn)
        codes[entry.tensor] = np.where(rng.random(shape) < 0.1, tensor.high, drawn)
    return codes


def assert_form(form: Form, program: Program, seed: int = 0, codes: dict | None = None) -> int:
    """Exits and all inner tensors that it shows; the number of elements compared."""
    with tempfile.TemporaryDirectory() as folder:
        net = network(program)
        form.write(net, Path(folder))
        found = form.runner(net, Path(folder))(codes or random_codes(program, seed))
    expected = run(program, codes or random_codes(program, seed), list(found))
    assert set(program.exits) <= found.keys()
    for name, value in expected.items():
        assert found[name].dtype == np.int64
        np.testing.assert_array_equal(found[name], value, name)
    return sum(v.size for v in found.values())


class Made:
    """A program made by hand, every free end an exit; exponents are 0."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self.constants: dict[str, np.ndarray] = {}
        self.entries: list[Entry] = []
        self.steps: list[Step] = []

    def tensor(self, name: str, shape: tuple, low: int, high: int, exponent=0) -> str:
        self.tensors[name] = Tensor(name, shape, low, high, max(-low, high), exponent)
        return name

    def entry(self, name: str, shape: tuple, low: int, high: int, exponent=0) -> str:
        spec = QuantSpec((high - low).bit_length(), low < 0, "input", exponent)
        self.entries.append(Entry(name, f"{name}/float", spec))
        return self.tensor(name, shape, low, high, exponent)

    def constant(self, codes: np.ndarray, exponent=0) -> str:
        name = self.tensor(
            f"c{len(self.constants)}", codes.shape, int(codes.min()), int(codes.max()), exponent
        )
        self.constants[name] = codes.astype(self.tensors[name].storage)
        return name

    def step(self, op: str, inputs: tuple, shape: tuple, span: tuple, /, *, name=None, exponent=0,
             **attrs) -> str:  # fmt: skip
        name = name or f"{op}{len(self.steps)}"
        self.steps.append(Step(op, inputs, name, attrs))
        return self.tensor(name, shape, *span, exponent)

    def program(self, exits: tuple | None = None, free: bool = True) -> Program:
        used = {v for step in self.steps for v in step.inputs}
        ends = tuple(s.output for s in self.steps if s.output not in used)
        return Program("made", self.tensors, self.constants, tuple(self.entries),
                       exits or ends, tuple(self.steps), free)  # fmt: skip


def padded_pool(low: int, of_sums: bool = False) -> tuple[Program, dict]:
    """A pool behind a pad with zeros, on codes that are mostly below 0; its own pads never win."""
    made = Made()
    x = made.entry("x", (1, 4, 4, 2), low, 127)
    one = {"ksize": (1, 1), "strides": (1, 1), "pads": ((0, 0), (0, 0))}
    y = made.step("max_pool", (x,), (1, 4, 4, 2), (low, 127), **one)
    y = made.step("add", (y, y), (1, 4, 4, 2), (low * 2, 254)) if of_sums else y
    span = (low * 2, 254) if of_sums else (low, 127)
    pads = {"paddings": ((0, 0), (1, 1), (0, 1), (0, 0))}
    y = made.step("pad", (y,), (1, 6, 5, 2), span, **pads)
    pool = {"ksize": (3, 3), "strides": (1, 1), "pads": ((1, 0), (1, 1))}
    made.step("max_pool", (y,), (1, 5, 5, 2), span, **pool)
    negative = np.random.default_rng(0).integers(low, min(low + 99, 9), (3, 4, 4, 2))
    return made.program(), {"x": negative}
