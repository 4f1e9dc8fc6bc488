"""Write a layer as a C function: loops over its output, which compute and store each element."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from qgraph.backends.c.c_text import Shape, Text, broadcast, index, merged, named, number, strides
from qgraph.backends.c.context import CContext, CFunction, LayerScratch
from qgraph.backends.c.elements import CStep, bits_for, expression
from qgraph.backends.c.kernels import WINDOW_FIELDS
from qgraph.backends.c.moves import WALKS, write_rows, write_take, write_walk
from qgraph.names import comment, identifier
from qgraph.ops.attribute_types import Pads, Pair
from qgraph.ops.windows import ONE
from qgraph.program import Step, Tensor
from qgraph.program.layers import Layer, elements
from qgraph.program.ops import (
    Conv2dAttrs,
    MaxPoolAttrs,
    ReduceMaxAttrs,
    SoftmaxProgramAttrs,
    StandardizeAttrs,
    TakeAttrs,
    WindowAttrs,
)

Counters = list[tuple[str, int]]


class FunctionWriter:
    """Writes the function of one layer; adds helpers and constants that it needs to `source`."""

    def __init__(self, layer: Layer, source: CContext) -> None:
        self.layer, self.source, self.program = layer, source, source.program
        self.tensors: Mapping[str, Tensor] = source.program.tensors
        self.text = Text()
        self.bits = bits_for(self.program, layer.steps)
        self.scratch: list[LayerScratch] = []
        self.read = [v for v in layer.read if v not in self.program.constants]
        self.targets = self._targets()
        self.shape = self.tensors[layer.head.output].shape

    def _targets(self) -> dict[str, str]:
        if len(self.layer.stored) == 1:
            return {self.layer.stored[0]: "to"}
        return {v: self.source.names.fresh(f"to_{identifier(v)}") for v in self.layer.stored}

    def function(self, write: Callable[[FunctionWriter, Step], None]) -> CFunction:
        """The function of the layer. write: writes the loops of its first step."""
        head = self.layer.head
        name = self.source.names.fresh(f"layer_{identifier(head.output)}")
        body_text = Text()
        self.text, signature = body_text, Text()
        write(self, head)
        parameters = [
            *(f"const {self.tensors[v].storage}_t *{self.source.idents[v]}" for v in self.read),
            *(f"{one.kind}_t *{one.name}" for one in self.scratch),
            *(f"{self.tensors[v].storage}_t *{t}" for v, t in self.targets.items()),
        ]
        signature.line(f"/* {comment(self._title())} */")
        signature.line(f"static void {name}({', '.join(parameters)})")
        signature.line("{")
        signature.lines += [_inside(line) for line in body_text.lines]
        signature.line("}")
        arguments = (*self.read, *self.layer.stored)
        return CFunction(name, arguments, tuple(self.scratch), str(signature))

    def _title(self) -> str:
        shape = "x".join(map(str, self.shape))
        return f"{self.layer.head.output}: {self.layer.head.op} to {shape}"

    # -- moves ------------------------------------------------------------------------------

    def pad(self, step: Step) -> None:
        self.text.line(f"memset(to, 0, {elements(self.tensors[step.output])} * sizeof *to);")
        self.walk(step)

    def walk(self, step: Step) -> None:
        storage = self.tensors[step.output].storage
        for walk in WALKS[step.op](step, self.program):
            same = self.tensors[walk.source].storage == storage
            write_walk(self.text, walk, self.array(walk.source), same)
        self._trace_all(step)

    def take(self, step: Step) -> None:
        attrs = step.attrs_as(TakeAttrs)
        indices = self.source.array(attrs.indices, f"{step.output} indices")
        write_take(self.text, step, self.program, self.array(step.inputs[0]), indices)
        self._trace_all(step)

    def embedding(self, step: Step) -> None:
        x, table = step.inputs
        write_rows(self.text, step, self.program, self.array(x), self.array(table))
        self._trace_all(step)

    def _trace_all(self, step: Step) -> None:
        count = elements(self.tensors[step.output])
        self.text.line(f"TRACE_ALL({self.source.trace(step.output)}, to, {count});")

    # -- loops over rows of channels ----------------------------------------------------------

    def depthwise(self, head: Step) -> None:
        multiplied = self.tensors[head.inputs[1]].shape[3] > 1
        self._convolution(head, "depthwise_conv2d_multiplied" if multiplied else head.op)

    def conv2d(self, head: Step) -> None:
        self._convolution(head, head.op)

    def _convolution(self, head: Step, kernel: str) -> None:
        x, w = (self.tensors[v] for v in head.inputs)
        attrs = head.attrs_as(WindowAttrs)
        groups = attrs.groups if isinstance(attrs, Conv2dAttrs) else 1
        sums = self.row_of_sums(head)
        self.window(x.shape[1:], w.shape[:2], attrs.strides, attrs.dilations, attrs.pads, groups)
        name = self.source.kernel(kernel, x.storage, w.storage, sums)
        weights = self.array(head.inputs[1])
        with self.pixels(x) as (counters, image, place):
            self.text.line(f"{name}({image}, {weights}, row, {place}, &at);")
            self._chain_of_row(counters)

    def max_pool(self, head: Step) -> None:
        x, attrs = self.tensors[head.inputs[0]], head.attrs_as(MaxPoolAttrs)
        self.scratch = [LayerScratch("row", x.storage, self.shape[-1])]
        self.window(x.shape[1:], attrs.ksize, attrs.strides, ONE, attrs.pads, 1)
        name = self.source.kernel("max_pool", x.storage, "", "")
        with self.pixels(x) as (counters, image, place):
            self.text.line(f"{name}({image}, row, {place}, &at);")
            self._chain_of_row(counters)

    def matmul(self, head: Step) -> None:
        x, w = (self.tensors[v] for v in head.inputs)
        sums = self.row_of_sums(head)
        counters = [*zip(("n", "c"), self.shape, strict=True)]
        with self.text.loops(counters[:-1]):
            row = self._row(x, counters)
            name = self.source.kernel("matmul", x.storage, w.storage, sums)
            weights = self.array(head.inputs[1])
            self.text.line(f"{name}({row}, {weights}, row, {w.shape[0]}, {w.shape[1]});")
            self._chain_of_row(counters)

    def batch_matmul(self, head: Step) -> None:
        a, b = (self.tensors[v] for v in head.inputs)
        sums, shape = self.row_of_sums(head), self.shape
        outer = [(f"d{k}", size) for k, size in enumerate(shape[:-1])]
        kernel = self.source.kernel("matmul", a.storage, b.storage, sums)
        rows = broadcast(a.shape, (*shape[:-1], a.shape[-1]))[:-1]
        matrices = [*broadcast(b.shape, (*shape[:-2], *b.shape[-2:]))[:-2], 0]
        with self.text.loops(outer):
            row, matrix = (
                self.at(name, index(walk, outer))
                for name, walk in zip(head.inputs, (rows, matrices), strict=True)
            )
            self.text.line(f"{kernel}({row}, {matrix}, row, {a.shape[-1]}, {shape[-1]});")
            self._chain_of_row([*outer, ("c", shape[-1])])

    def standardize(self, head: Step) -> None:
        attrs = head.attrs_as(StandardizeAttrs)
        self._rows(head, "standardize", [attrs.guard, attrs.epsilon, attrs.shift])

    def softmax(self, head: Step) -> None:
        attrs = head.attrs_as(SoftmaxProgramAttrs)
        entries = self.tensors[head.inputs[1]].shape[0]
        self._rows(head, "softmax", [entries, attrs.bits, attrs.high])

    def _rows(self, head: Step, kernel: str, numbers: list[int]) -> None:
        """A kernel for each row of x; its other operand is a table."""
        channels, storage = self.shape[-1], self.tensors[head.output].storage
        outer = [(f"d{k}", size) for k, size in enumerate(self.shape[:-1])]
        self.scratch = [LayerScratch("row", storage, channels)]
        x, *tables = head.inputs
        types = [self.tensors[v].storage for v in (x, *tables)]
        name = self.source.kernel(kernel, types[0], "".join(types[1:]), storage)
        with self.text.loops(outer):
            place = index(strides(self.shape)[:-1], outer) if outer else "0"
            arrays = [self.at(x, place), *map(self.array, tables), "row"]
            self.text.line(f"{name}({', '.join([*arrays, *map(number, [channels, *numbers])])});")
            self._chain_of_row([*outer, ("c", channels)])

    def row_of_sums(self, head: Step) -> str:
        """The type of sums; a row of them is the layer's scratch."""
        sums = f"int{bits_for(self.program, [head])}"
        self.scratch = [LayerScratch("row", sums, self.shape[-1])]
        return sums

    @contextmanager
    def pixels(self, x: Tensor) -> Iterator[tuple[Counters, str, str]]:
        """Loops over pixels; returns the counters, the image, and the position in it."""
        counters = [*zip(("n", "y", "x", "c"), self.shape, strict=True)]
        with self.text.loops(counters[:-1]):
            place = ", ".join(n if size > 1 else "0" for n, size in counters[1:3])
            yield counters, self._row(x, counters), place

    def _row(self, x: Tensor, counters: Counters) -> str:
        """Pointer to the current sample of a tensor."""
        return self.at(x.name, index([elements(x) // x.shape[0]], counters[:1]))

    def at(self, name: str, place: str) -> str:
        """Pointer to an element of a tensor."""
        return self.array(name) + (f" + {place}" if place != "0" else "")

    def _chain_of_row(self, counters: Counters) -> None:
        with self.text.loops(counters[-1:]):
            first = "row[c]" if self.shape[-1] > 1 else "row[0]"
            self.chain(counters, None, {self.layer.head.output: first})

    def window(
        self, x: Shape, kernel: Shape, strides: Pair, dilations: Pair, pads: Pads, groups: int
    ) -> None:
        """Write the constant `at`: the window of a layer, and its image x, without the samples."""
        facts = (*x, *kernel, *strides, *dilations, pads[0][0], pads[1][0])
        facts += (self.shape[-1], groups, self.shape[-2])
        fields = zip(WINDOW_FIELDS, facts, strict=True)
        text = ", ".join(f".{name} = {value}" for name, value in fields)
        self.text.line(f"static const window at = {{{text}}};")
        self.text.line()

    def scratch_of(self, name: str, kind: str, count: int) -> None:
        """Take memory while the layer runs."""
        self.scratch.append(LayerScratch(name, kind, count))

    # -- loops over elements ------------------------------------------------------------------

    def elements(self, head: Step) -> None:
        """Merge all walks into as few loops as possible: the output's first, then others'."""
        read = [v for v in self.layer.read if not self.is_table(v)]
        walks = {v: broadcast(self.tensors[v].shape, self.shape) for v in read}
        if isinstance(head.attrs, ReduceMaxAttrs):
            walks[head.inputs[0]] = self._kept_strides(head.inputs[0], head.attrs)
        last = [0] * (len(self.shape) - 1) + [1] if self.shape else []
        every = [strides(self.shape), *walks.values(), *([last] if self._has_vectors() else [])]
        sizes, steps = merged(self.shape, every)
        counters = named(sizes)
        channel = index(steps[-1], counters) if self._has_vectors() else None
        places = dict(zip(walks, steps[1:], strict=False))
        with self.text.loops(counters):
            known: dict[str, str] = {}
            if isinstance(head.attrs, ReduceMaxAttrs):
                x, axes = head.inputs[0], head.attrs.axes
                known = {head.output: self._largest(x, axes, counters, places[x])}
            self.chain(counters, places, known, channel)

    def _has_vectors(self) -> bool:
        """Whether a step of the chain has per-channel numbers."""
        return any(
            isinstance(value, tuple)
            for step in self.layer.steps
            if step.family.pointwise
            for _, value in step.attrs.items()
        )

    def is_table(self, value: str) -> bool:
        return any(step.op == "lookup" and step.inputs[1] == value for step in self.layer.steps)

    def _kept_strides(self, x: str, attrs: ReduceMaxAttrs) -> list[int]:
        shape, axes = self.tensors[x].shape, attrs.axes
        every = strides(shape)
        if attrs.keepdims:
            return [0 if a in axes else every[a] for a in range(len(shape))]
        return [every[a] for a in range(len(shape)) if a not in axes]

    def _largest(self, x: str, axes: Shape, counters: Counters, places: Sequence[int]) -> str:
        """The largest code over the reduced axes, from the element at their start."""
        shape = self.tensors[x].shape
        sizes, (steps,) = merged([shape[a] for a in axes], [[strides(shape)[a] for a in axes]])
        over = [(f"r{k}", size) for k, size in enumerate(sizes)]
        array = self.array(x)
        start = index(places, counters)
        self.text.line(f"int{self.bits}_t largest = {array}[{start}];")
        with self.text.loops(over):
            place = index([*places, *steps], [*counters, *over])
            self.text.line(f"largest = {self._call('max', 'largest', f'{array}[{place}]')};")
        return "largest"

    # -- one element --------------------------------------------------------------------------

    def chain(
        self,
        counters: Counters,
        places: Mapping[str, Sequence[int]] | None,
        known: Mapping[str, str],
        channel: str | None = None,
    ) -> None:
        """The steps for one element; `known` are values that the head has computed."""
        place = index(self._own_strides(counters), counters)
        if not place.isidentifier() and not place.isdigit():
            self.text.line(f"const int32_t i = {place};")
            place = "i"
        at = channel if places is not None else ("c" if self.shape[-1] > 1 else "0")

        def vector(values: tuple[int, ...], text: str) -> str:
            return f"{self.source.array(values, text)}[{at}]"

        for step in self.layer.steps:
            name = self.source.idents[step.output]
            if step.output in known:
                value = known[step.output]
            else:
                operands = [self._operand(v, counters, places, place) for v in step.inputs]
                first = self.tensors[step.inputs[0]]
                largest = max(-first.low, first.high)
                site = CStep(step, operands, self.bits, largest, self._call, vector)
                value = expression(site)
            self.text.declare(f"const int{self.bits}_t {name} = {value};", self._scale(step))
            self.text.line(f"TRACE({self.source.trace(step.output)}, {place}, {name});")
        for tensor, target in self.targets.items():
            kind = self.tensors[tensor].storage
            self.text.line(f"{target}[{place}] = ({kind}_t){self.source.idents[tensor]};")

    def _own_strides(self, counters: Counters) -> list[int]:
        return strides([size for _, size in counters])

    def _scale(self, step: Step) -> str:
        exponent = self.tensors[step.output].exponent
        scale = f"2^{-exponent}" if isinstance(exponent, int) else "2^-e, one e for each channel"
        return f"/* {comment(step.output)}, {scale} */"

    def _operand(
        self,
        value: str,
        counters: Counters,
        places: Mapping[str, Sequence[int]] | None,
        own: str,
    ) -> str:
        if value in self.layer.made:
            return self.source.idents[value]
        if self.is_table(value):
            return self.array(value)
        tensor = self.tensors[value]
        if value in self.program.constants and elements(tensor) == 1:
            return number(int(self.program.constants[value].reshape(())))
        walk = places[value] if places else broadcast(tensor.shape, self.shape)
        same = [*walk] == self._own_strides(counters)
        return f"{self.array(value)}[{own if same else index(walk, counters)}]"

    def array(self, value: str) -> str:
        if value in self.program.constants:
            return self.source.constant(value)
        return self.source.idents[value]

    def _call(self, helper: str, *operands: str) -> str:
        kind = f"i{self.bits}"
        self.source.helpers.add((helper, kind))
        return f"{helper}_{kind}({', '.join(operands)})"


def _inside(line: str) -> str:
    """A line of a function; those for the preprocessor are not indented."""
    bare = line.lstrip()
    return bare if bare.startswith("#") else "    " + line if line else ""
