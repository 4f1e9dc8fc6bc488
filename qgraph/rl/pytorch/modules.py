"""Torch modules, in the order in which they run, as the steps of an actor program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
from torch import nn

from qgraph.choices import CellKind
from qgraph.errors import UnsupportedError
from qgraph.foreign import TorchModule, TorchTensor
from qgraph.ir.types import Array
from qgraph.rl.actor.program import ActorProgram, ActorStep, step_with_weights
from qgraph.rl.actor.program_state import ProgramState, size_of
from qgraph.rl.actor.recurrent_cells import GATES, RecurrentCell

ACTIVATIONS: Mapping[TorchModule, str] = {
    nn.ReLU: "relu",
    nn.Tanh: "tanh",
    nn.Sigmoid: "sigmoid",
    nn.ELU: "elu",
    nn.LeakyReLU: "leaky_relu",
    nn.SiLU: "swish",
    nn.Softplus: "softplus",
}
NOTHING = (nn.Identity, nn.Dropout)  # they do nothing when a policy acts
SOFTPLUS_THRESHOLD = 20.0  # above it torch returns x, which is the same in float32

Read = Callable[[], Array]


class ModuleReader:
    """Reads modules in the order in which they run; `value` is the output of the last one.

    Modules are read by their exact class: a subclass may compute anything.
    """

    def __init__(
        self, shape: tuple[int, ...], images: bool, states: Sequence[ProgramState] = ()
    ) -> None:
        self.images, self.states = images, tuple(states)
        self.shape = (*shape[1:], shape[0]) if images else shape
        self.steps: list[ActorStep] = []
        self.parameters: dict[str, Read] = {}
        self.value = "observation"
        self._take_states()
        self.flattened: tuple[int, ...] | None = (
            None  # the shape of an image before it was flattened
        )

    def program(self) -> ActorProgram:
        shapes = {name: read().shape for name, read in self.parameters.items()}
        outputs = (self.value, *(state.output for state in self.states))
        return ActorProgram(
            self.shape,
            tuple(self.steps),
            outputs,
            shapes,
            states=self.states,
        )

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of values so far."""
        shapes = {name: read().shape for name, read in self.parameters.items()}
        return ActorProgram(self.shape, tuple(self.steps), (self.value,), shapes).shapes()

    def _take_states(self) -> None:
        """Slices of the observation and of each state; the former is then `value`."""
        if not self.states:
            return
        if len(self.shape) != 1:
            raise UnsupportedError(
                f"a recurrent policy on observations of shape {list(self.shape)} is not supported",
                hint="recurrent policies take vectors; flatten the observations",
            )
        observed, total = self.shape[0], self.shape[0] + size_of(self.states)
        at, sizes = 0, [("observed", observed), *((s.name, s.size) for s in self.states)]
        self.shape = (total,)
        for name, size in sizes:
            self.add("slice", name, "observation", attrs={"columns": (at, size)})
            at += size
        self.value = "observed"

    def lstm(self, module: TorchModule, name: str) -> None:
        """Layers of an LSTM, whose states are named NAME_hidden_LAYER and NAME_cell_LAYER."""
        if module.bidirectional or module.proj_size:
            raise UnsupportedError("actors do not support such an LSTM", node=name)
        for layer in range(module.num_layers):
            cell = cell_of(module, name, layer)
            states = [f"{name}_{state}_{layer}" for state in cell.states]
            self.steps += cell.steps(self.value, *states)
            for own in cell.weight_shapes():
                self.parameters[own] = partial(_cell_weight, module, cell, layer, own)
            self.value = cell.next("hidden")

    def add(
        self,
        op: str,
        name: str,
        *inputs: str,
        attrs: Mapping[str, object] | None = None,
        **weights: Read,
    ) -> None:
        step, by_name = step_with_weights(op, inputs or (self.value,), name, weights, attrs or {})
        self.steps.append(step)
        self.parameters.update(by_name)
        self.value = name

    def modules(self, sequence: TorchModule, name: str) -> None:
        for index, module in enumerate(sequence):
            self.module(module, f"{name}.{index}")

    def module(self, module: TorchModule, name: str) -> None:
        kind = type(module)
        if kind in NOTHING:
            return
        if kind is nn.Sequential:
            self.modules(module, name)
        elif kind in ACTIVATIONS:
            self._activation(module, name)
        elif kind is nn.Linear:
            self.linear(module, name)
        elif kind is nn.Conv2d:
            self._conv(module, name)
        elif kind is nn.LayerNorm and len(module.normalized_shape) == 1:
            self._layer_norm(module, name)
        elif kind is nn.Flatten and (module.start_dim, module.end_dim) == (1, -1):
            self._flatten(name)
        else:
            self.other(module, name)

    def other(self, module: TorchModule, name: str) -> None:
        """A module of no class above. Raises UnsupportedError; subclasses may read it."""
        raise UnsupportedError(f"actors do not support `{type(module).__name__}`", node=name)

    def linear(
        self, module: TorchModule, name: str, change: Callable[[Array], Array] = lambda rows: rows
    ) -> None:
        """A dense layer. change: of its weight [m, k] and of its bias [m, 1], along the first."""
        self.add(
            "dense",
            name,
            kernel=self.ordered(lambda: change(numbers(module.weight)).T),
            bias=lambda: change(_bias(module, module.out_features)()[:, None])[:, 0],
        )

    def ordered(self, read: Read) -> Read:
        """Rows for a flattened image are in the order of [c, h, w]; here it is [h, w, c]."""
        image, self.flattened = self.flattened, None
        if image is None:
            return read
        height, width, channels = image

        def ordered() -> Array:
            found = read()
            whole = found.reshape(channels, height, width, -1).transpose(1, 2, 0, 3)
            return whole.reshape(found.shape)

        return ordered

    def _activation(self, module: TorchModule, name: str) -> None:
        kind = ACTIVATIONS[type(module)]
        alpha = getattr(module, "alpha", getattr(module, "negative_slope", None))
        if kind == "softplus" and (module.beta != 1 or module.threshold < SOFTPLUS_THRESHOLD):
            raise UnsupportedError(
                f"actors do not support softplus({module.beta}, {module.threshold})",
                node=name,
            )
        attrs: dict[str, object] = {"activation": kind}
        if alpha is not None:
            attrs["alpha"] = float(alpha)
        last = self.steps[-1] if self.steps else None
        if last is not None and last.is_linear_layer:
            self.steps[-1] = last.with_attrs(**attrs)
        else:
            self.add("activate", name, attrs=attrs)

    def _conv(self, module: TorchModule, name: str) -> None:
        plain = module.groups == 1 and module.dilation == (1, 1)
        if not plain or module.padding_mode != "zeros" or isinstance(module.padding, str):
            raise UnsupportedError("actors do not support such a convolution", node=name)
        pads = tuple((int(p), int(p)) for p in module.padding)
        self.add(
            "conv", name, attrs={"strides": tuple(module.stride), "pads": pads},
            kernel=lambda: numbers(module.weight).transpose(2, 3, 1, 0),
            bias=_bias(module, module.out_channels),
        )  # fmt: skip

    def _layer_norm(self, module: TorchModule, name: str) -> None:
        size = module.normalized_shape[0]
        flattened = self.flattened
        gamma = _reads(module.weight) if module.weight is not None else lambda: np.ones(size)
        beta = _reads(module.bias) if module.bias is not None else lambda: np.zeros(size)
        reads = {"gamma": self.ordered(gamma)}
        self.flattened = flattened
        reads["beta"] = self.ordered(beta)
        self.flattened = flattened  # the order stays for what follows
        self.add("layer_norm", name, attrs={"epsilon": float(module.eps)}, **reads)

    def _flatten(self, name: str) -> None:
        before = self._shapes()[self.value]
        if len(before) == 1:
            return
        if len(before) == 3 and self.images:
            self.flattened = before
        self.add("flatten", name)


def states_of_lstm(module: TorchModule, name: str) -> tuple[ProgramState, ...]:
    """The states of an LSTM, layer by layer."""
    cells = [cell_of(module, name, layer) for layer in range(module.num_layers)]
    return tuple(
        ProgramState(f"{name}_{state}_{layer}", cell.units, cell.next(state))
        for layer, cell in enumerate(cells)
        for state in cell.states
    )


def cell_of(module: TorchModule, name: str, layer: int) -> RecurrentCell:
    """A layer of an LSTM."""
    inputs = module.hidden_size if layer else module.input_size
    return RecurrentCell(CellKind.LSTM, f"{name}.{layer}", inputs, module.hidden_size)


def _cell_weight(module: TorchModule, cell: RecurrentCell, layer: int, name: str) -> Array:
    """The weight of a gate, from rows of all gates."""
    place, role = name.removeprefix(f"{cell.name}/").split("/")
    gate, part = place.split("_")
    kind = "ih" if part == "input" else "hh"
    if role == "bias" and not module.bias:
        return np.zeros(cell.units, np.float32)
    word = "weight" if role == "kernel" else "bias"
    rows = numbers(getattr(module, f"{word}_{kind}_l{layer}"))
    at = GATES[cell.kind].index(gate) * cell.units
    return np.asarray(rows[at : at + cell.units].T)


def numbers(parameter: TorchTensor) -> Array:
    return np.asarray(parameter.detach().cpu().numpy())


def _reads(parameter: TorchTensor) -> Read:
    return lambda: numbers(parameter)


def _bias(module: TorchModule, size: int) -> Read:
    return (lambda: np.zeros(size, np.float32)) if module.bias is None else _reads(module.bias)
