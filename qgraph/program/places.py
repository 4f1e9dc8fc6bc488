"""A place: a layer at one position of its output, with the inputs that it reads there.

A place is small even if the layer is large, and has the same arithmetic in all channels. Samples of
a place can have any codes, so that rare ones can be constructed (extremes.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from qgraph.exact.sums import Mask
from qgraph.ir.types import Array, Codes
from qgraph.ops.windows import NO_PADS, ONE
from qgraph.program.layers import Layer
from qgraph.program.ops import Conv2dAttrs, OpClass, WindowAttrs
from qgraph.program.ops.products import windows_of
from qgraph.program.program import Entry, Program, Step, Tensor


@dataclass(frozen=True)
class Place:
    """`program` is the layer at one place, for any number of samples, with the network's names.

    Its first entry is the window of the place; taps outside of the image (`seen` is false) must be
    0. `chain` has the steps after the sums, with the sums as an entry.
    """

    layer: Layer
    program: Program
    chain: Program
    seen: Mask  # taps [height, width]
    codes: tuple[int, int]  # lowest and highest in a tap that is seen

    @property
    def sums(self) -> bool:
        """Whether the layer begins with sums of products."""
        return self.layer.head.family is OpClass.PRODUCT


def place_of(program: Program, layer: Layer) -> Place | str:
    """A layer at one place, or the reason why it has none."""
    head, shape = layer.head, program.tensors[layer.head.output].shape
    sums = head.family is OpClass.PRODUCT
    if head.family.moves:
        return "only moves codes"
    if not any(step.family.pointwise for step in layer.steps) and not sums:
        return "only compares codes"
    if head.family is OpClass.MATRIX or (sums and head.inputs[1] not in program.constants):
        return "multiplies activations"
    if len(shape) < 2:
        return "has no channels"
    window = None if head.family.pointwise else head.inputs[0]
    if any(window in step.inputs for step in layer.steps if step is not head):
        return "reads the tensor of its window in another step too"
    return _PlaceBuilder(program, layer).place()


class _PlaceBuilder:
    def __init__(self, program: Program, layer: Layer) -> None:
        self.program, self.layer, self.head = program, layer, layer.head
        self.shape = program.tensors[layer.head.output].shape
        self.tensors: dict[str, Tensor] = {}
        self.constants: dict[str, Array] = {}
        self.seen: Mask = True
        self.at = [0] * (len(self.shape) - 1)

    def place(self) -> Place:
        head = self.head
        if isinstance(head.attrs, WindowAttrs):
            self._look(head.attrs)
        made = (*self.layer.made,)
        for name in made:
            self._narrow(name, (1,) * (len(self.shape) - 1) + self.shape[-1:])
        chain = [s for s in self.layer.steps if s is not head or head.family.pointwise]
        read = dict.fromkeys(v for s in chain for v in s.inputs if v not in made)
        for name in read:
            self._read(name, chain)
        outside = [v for v in read if v not in self.program.constants]
        before = [] if head.family.pointwise else [head.output]
        behind = self._program([*before, *outside], chain)
        if head.family is not OpClass.PRODUCT:
            return Place(self.layer, behind, behind, True, (0, 0))
        window, x = self._window(), self.program.tensors[head.inputs[0]]
        whole = self._program([head.inputs[0], *outside], [window, *chain])
        return Place(self.layer, whole, behind, self.seen, (x.low, x.high))

    def _look(self, attrs: WindowAttrs) -> None:
        """Choose the place whose window has the most taps inside the image."""
        image, filters = (self.program.tensors[name].shape for name in self.head.inputs)
        kernel = filters[:2]
        self.seen = max(windows_of(attrs, image, filters), key=np.sum)
        wanted = np.broadcast_to(self.seen, kernel)
        for axis in (0, 1):
            stride, size = attrs.strides[axis], image[1 + axis]
            taps = np.arange(kernel[axis]) * attrs.dilations[axis] - attrs.pads[axis][0]
            for o in range(self.shape[1 + axis]):
                inside = (taps + o * stride >= 0) & (taps + o * stride < size)
                if (inside == wanted.any(axis=1 - axis)).all():
                    self.at[axis] = o
                    break

    def _narrow(self, name: str, shape: Sequence[int]) -> None:
        self.tensors[name] = replace(self.program.tensors[name], shape=tuple(shape))

    def _read(self, name: str, chain: Sequence[Step]) -> None:
        """Read the operands of pointwise steps at the place."""
        tensor = self.program.tensors[name]
        if any(s.op == "lookup" and s.inputs[1] == name for s in chain):
            self.tensors[name], self.constants[name] = tensor, self.program.constants[name]
            return
        missing = len(self.shape) - len(tensor.shape)
        where = [0, *self.at][missing:-1] if tensor.shape else []
        picks = tuple(slice(p, p + 1) if n > 1 else slice(None)
                      for p, n in zip(where, tensor.shape, strict=False))  # fmt: skip
        if name in self.program.constants:
            codes = self.program.constants[name][picks]
            self.constants[name] = codes
            self._narrow(name, codes.shape)
        else:
            # Each sample of the place has its own codes.
            self._narrow(name, (1,) * (len(self.shape) - 1) + tensor.shape[-1:])

    def _window(self) -> Step:
        x, w = self.head.inputs
        weights, channels = self.program.tensors[w], self.program.tensors[x].shape[-1]
        self.tensors[w], self.constants[w] = weights, self.program.constants[w]
        attrs = self.head.attrs
        if not isinstance(attrs, WindowAttrs):
            self._narrow(x, (1, channels))
            return self.head
        self._narrow(x, (1, *weights.shape[:2], channels))
        if self.seen is not True:  # 0 stands for padding
            low, high = min(self.tensors[x].low, 0), max(self.tensors[x].high, 0)
            self.tensors[x] = replace(self.tensors[x], low=low, high=high)
        plain = replace(attrs, strides=ONE, dilations=ONE, pads=NO_PADS)
        return replace(self.head, attrs=plain)

    def _program(self, entries: Sequence[str], steps: Sequence[Step]) -> Program:
        names = {v for s in steps for v in (*s.inputs, s.output)} | set(entries)
        return Program(
            self.head.output,
            {n: self.tensors[n] for n in self.tensors if n in names},
            {n: c for n, c in self.constants.items() if n in names},
            tuple(Entry.of_codes(self.tensors[n]) for n in dict.fromkeys(entries)),
            tuple(s.output for s in steps) or tuple(entries),
            tuple(steps),
            batch_free=True,
        )


def weights_of(place: Place) -> tuple[Codes, Codes]:
    """Weights as [terms, channels], 0 for taps outside of the image, and the input of each term.

    The second array is [terms, channels] too: positions in the flattened window.
    """
    head, program = place.layer.head, place.program
    codes = np.asarray(program.constants[head.inputs[1]], np.int64)
    if not isinstance(head.attrs, WindowAttrs):
        terms = np.arange(codes.shape[0])[:, None]
        return codes, np.broadcast_to(terms, codes.shape)
    inputs = program.tensors[head.inputs[0]].shape[-1]
    if place.seen is not True:
        codes = codes * place.seen[:, :, None, None]
    outputs = program.tensors[head.output].shape[-1]
    groups = head.attrs.groups if isinstance(head.attrs, Conv2dAttrs) else inputs
    taps, each = codes.shape[0] * codes.shape[1], inputs // groups
    channel = np.arange(outputs) // (outputs // groups) * each  # first input of each output
    where = np.arange(taps)[:, None, None] * inputs + np.arange(each)[None, :, None] + channel
    return codes.reshape(taps * each, outputs), where.reshape(taps * each, outputs)


def codes_at(values: Mapping[str, Codes], name: str, channel: int) -> Codes:
    """Codes of a channel in samples of a place."""
    codes = values[name]
    return codes.reshape(len(codes), -1)[:, channel if codes.shape[-1] > 1 else 0]
