"""A layer as a C function: loops over its output, what is computed there, what is stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from qgraph.backends.c.context import Source
from qgraph.backends.c.elements import bits_for, expression
from qgraph.backends.c.moves import walks, write_take, write_walk
from qgraph.backends.c.text import (
    Text,
    broadcast,
    index,
    merged,
    named,
    number,
    strides,
)
from qgraph.names import comment, identifier
from qgraph.program import Step, Tensor
from qgraph.program.layers import MOVES, ROWS, Layer, elements

Counters = list[tuple[str, int]]
ONE = (1, 1)


@dataclass(frozen=True)
class Function:
    """A layer's function: its name, the tensors that it is called with, its scratch, its text."""

    name: str
    arguments: tuple[str, ...]
    scratch: tuple[str, int] | None  # type and elements
    text: str


def function(layer: Layer, source: Source) -> Function:
    """Write a layer; what else the file needs for it goes into `source`."""
    return _Writer(layer, source).function()


class _Writer:
    def __init__(self, layer: Layer, source: Source) -> None:
        self.layer, self.source, self.program = layer, source, source.program
        self.tensors: Mapping[str, Tensor] = source.program.tensors
        self.text = Text()
        self.bits = bits_for(self.program, layer.steps)
        self.scratch: tuple[str, int] | None = None
        self.read = [v for v in layer.read if v not in self.program.constants]
        self.targets = self._targets()
        self.shape = self.tensors[layer.head.output].shape

    def _targets(self) -> dict[str, str]:
        if len(self.layer.stored) == 1:
            return {self.layer.stored[0]: "to"}
        return {v: self.source.names.fresh(f"to_{identifier(v)}") for v in self.layer.stored}

    def function(self) -> Function:
        head = self.layer.head
        name = self.source.names.fresh(f"layer_{identifier(head.output)}")
        body: Callable[[], None] = self._elements
        if head.op in MOVES or head.op == "reshape":
            body = self._moves
        elif head.op in ROWS:
            body = self._rows
        body_text = Text()
        self.text, signature = body_text, Text()
        body()
        parameters = [
            *(f"const {self.tensors[v].storage}_t *{self.source.idents[v]}" for v in self.read),
            *([f"{self.scratch[0]}_t *row"] if self.scratch else []),
            *(f"{self.tensors[v].storage}_t *{t}" for v, t in self.targets.items()),
        ]
        signature.line(f"/* {comment(self._title())} */")
        signature.line(f"static void {name}({', '.join(parameters)})")
        signature.line("{")
        signature.lines += ["    " + line if line else "" for line in body_text.lines]
        signature.line("}")
        arguments = (*self.read, *self.layer.stored)
        return Function(name, arguments, self.scratch, str(signature))

    def _title(self) -> str:
        shape = "x".join(map(str, self.shape))
        return f"{self.layer.head.output}: {self.layer.head.op} to {shape}"

    # -- moves ------------------------------------------------------------------------------

    def _moves(self) -> None:
        step = self.layer.head
        to = self.tensors[step.output]
        if step.op == "pad":
            self.text.line(f"memset(to, 0, {elements(to)} * sizeof *to);")
        if step.op == "take":
            indices = self.source.array(step.attrs["indices"], f"{step.output} indices")
            write_take(self.text, step, self.program, self._array(step.inputs[0]), indices)
        else:
            for walk in walks(step, self.program):
                same = self.tensors[walk.source].storage == to.storage
                write_walk(self.text, walk, self._array(walk.source), same)
        self.text.line(f"TRACE_ALL({self.source.trace(step.output)}, to, {elements(to)});")

    # -- loops over rows of channels ----------------------------------------------------------

    def _rows(self) -> None:
        head = self.layer.head
        if head.op == "standardize":
            return self._standardized_rows(head)
        names = ("n", "y", "x", "c") if head.op != "matmul" else ("n", "c")
        counters = [*zip(names, self.shape, strict=True)]
        image, sums = self.tensors[head.inputs[0]], self._row_storage()
        self.scratch = (sums, self.shape[-1])
        if head.op != "matmul":
            self._window(head)
        with self.text.loops(counters[:-1]):
            size = elements(image) // image.shape[0]
            batch = index([size], counters[:1])
            place = [n if size > 1 else "0" for n, size in counters[1:3]]
            x = self._array(head.inputs[0]) + (f" + {batch}" if batch != "0" else "")
            if head.op == "max_pool":
                kernel = self.source.kernel("max_pool", image.storage, "", "")
                self.text.line(f"{kernel}({x}, row, {', '.join(place)}, &at);")
            else:
                w = self.tensors[head.inputs[1]]
                op = head.op
                if op == "depthwise_conv2d" and w.shape[3] > 1:
                    op = "depthwise_conv2d_multiplied"
                kernel = self.source.kernel(op, image.storage, w.storage, sums)
                weights = self._array(head.inputs[1])
                rest = ", ".join([*place, "&at"])
                if op == "matmul":
                    rest = f"{w.shape[0]}, {w.shape[1]}"
                self.text.line(f"{kernel}({x}, {weights}, row, {rest});")
            self._chain_of_row(counters)
        return None

    def _chain_of_row(self, counters: Counters) -> None:
        with self.text.loops(counters[-1:]):
            first = "row[c]" if self.shape[-1] > 1 else "row[0]"
            self._chain(counters, None, {self.layer.head.output: first})

    def _standardized_rows(self, head: Step) -> None:
        channels, storage = self.shape[-1], self.tensors[head.output].storage
        outer = [(f"d{k}", size) for k, size in enumerate(self.shape[:-1])]
        counters = [*outer, ("c", channels)]
        self.scratch = (storage, channels)
        x = head.inputs[0]
        kernel = self.source.kernel("standardize", self.tensors[x].storage, "", storage)
        numbers = [channels, *(head.attrs[key] for key in ("guard", "epsilon", "shift"))]
        with self.text.loops(outer):
            row = index(strides(self.shape)[:-1], outer) if outer else "0"
            place = self._array(x) + (f" + {row}" if row != "0" else "")
            self.text.line(f"{kernel}({place}, row, {', '.join(map(number, numbers))});")
            self._chain_of_row(counters)

    def _row_storage(self) -> str:
        head = self.layer.head
        if head.op == "max_pool":
            return self.tensors[head.inputs[0]].storage
        return f"int{bits_for(self.program, [head])}"

    def _window(self, head: Step) -> None:
        image, attrs = self.tensors[head.inputs[0]].shape, head.attrs
        kernel = attrs["ksize"] if "ksize" in attrs else self.tensors[head.inputs[1]].shape[:2]
        (top, _), (left, _) = attrs["pads"]
        facts = {
            "height": image[1],
            "width": image[2],
            "channels": image[3],
            "kernel_height": kernel[0],
            "kernel_width": kernel[1],
            "stride_y": attrs["strides"][0],
            "stride_x": attrs["strides"][1],
            "dilation_y": attrs.get("dilations", ONE)[0],
            "dilation_x": attrs.get("dilations", ONE)[1],
            "top": top,
            "left": left,
            "outputs": self.shape[-1],
            "groups": attrs.get("groups", 1),
        }
        fields = ", ".join(f".{name} = {value}" for name, value in facts.items())
        self.text.line(f"static const window at = {{{fields}}};")
        self.text.line()

    # -- loops over elements ------------------------------------------------------------------

    def _elements(self) -> None:
        """All walks over as few loops as can be: the output's, then those of other tensors."""
        head = self.layer.head
        read = [v for v in self.layer.read if not self._is_table(v)]
        walks = {v: broadcast(self.tensors[v].shape, self.shape) for v in read}
        if head.op == "reduce_max":
            walks[head.inputs[0]] = self._kept_strides(head)
        last = [0] * (len(self.shape) - 1) + [1] if self.shape else []
        every = [strides(self.shape), *walks.values(), *([last] if self._has_vectors() else [])]
        sizes, steps = merged(self.shape, every)
        counters = named(sizes)
        channel = index(steps[-1], counters) if self._has_vectors() else None
        places = dict(zip(walks, steps[1:], strict=False))
        with self.text.loops(counters):
            known: dict[str, str] = {}
            if head.op == "reduce_max":
                known = {head.output: self._largest(head, counters, places[head.inputs[0]])}
            self._chain(counters, places, known, channel)

    def _has_vectors(self) -> bool:
        return any(
            isinstance(value, tuple)
            for step in self.layer.steps
            for key, value in step.attrs.items()
            if key in ("shift", "low", "high")
        )

    def _is_table(self, value: str) -> bool:
        return any(step.op == "lookup" and step.inputs[1] == value for step in self.layer.steps)

    def _kept_strides(self, head: Step) -> list[int]:
        shape, axes = self.tensors[head.inputs[0]].shape, head.attrs["axes"]
        every = strides(shape)
        if head.attrs["keepdims"]:
            return [0 if a in axes else every[a] for a in range(len(shape))]
        return [every[a] for a in range(len(shape)) if a not in axes]

    def _largest(self, head: Step, counters: Counters, places: Sequence[int]) -> str:
        """The largest code over the reduced axes, from the element at their start."""
        x = self.tensors[head.inputs[0]]
        axes = head.attrs["axes"]
        sizes, (steps,) = merged([x.shape[a] for a in axes], [[strides(x.shape)[a] for a in axes]])
        over = [(f"r{k}", size) for k, size in enumerate(sizes)]
        array = self._array(head.inputs[0])
        start = index(places, counters)
        self.text.line(f"int{self.bits}_t largest = {array}[{start}];")
        with self.text.loops(over):
            place = index([*places, *steps], [*counters, *over])
            self.text.line(f"largest = {self._call('max', 'largest', f'{array}[{place}]')};")
        return "largest"

    # -- one element --------------------------------------------------------------------------

    def _chain(
        self,
        counters: Counters,
        places: Mapping[str, Sequence[int]] | None,
        known: Mapping[str, str],
        channel: str | None = None,
    ) -> None:
        """Each step at one element; `known`: what the head has computed there already."""
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
                value = expression(step, operands, self.bits, largest, self._call, vector)
            self.text.declare(f"const int{self.bits}_t {name} = {value};", self._scale(step))
            self.text.line(f"TRACE({self.source.trace(step.output)}, {place}, {name});")
        for tensor, target in self.targets.items():
            kind = self.tensors[tensor].storage
            self.text.line(f"{target}[{place}] = ({kind}_t){self.source.idents[tensor]};")

    def _own_strides(self, counters: Counters) -> list[int]:
        return strides([size for _, size in counters])

    def _scale(self, step: Step) -> str:
        exponent = self.tensors[step.output].exponent
        scale = f"2^{-exponent}" if isinstance(exponent, int) else "2^-e for each channel"
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
        if self._is_table(value):
            return self._array(value)
        tensor = self.tensors[value]
        if value in self.program.constants and elements(tensor) == 1:
            return number(int(self.program.constants[value].reshape(())))
        walk = places[value] if places else broadcast(tensor.shape, self.shape)
        same = [*walk] == self._own_strides(counters)
        return f"{self._array(value)}[{own if same else index(walk, counters)}]"

    def _array(self, value: str) -> str:
        if value in self.program.constants:
            return self.source.constant(value)
        return self.source.idents[value]

    def _call(self, helper: str, *operands: str) -> str:
        kind = f"i{self.bits}"
        self.source.helpers.add((helper, kind))
        return f"{helper}_{kind}({', '.join(operands)})"
