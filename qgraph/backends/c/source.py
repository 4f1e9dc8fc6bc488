"""Write the .c file: helpers, a function for each layer, the function that runs them, constants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from qgraph.backends.c.arithmetic import helpers
from qgraph.backends.c.c_text import Text, numbers, short
from qgraph.backends.c.context import CContext
from qgraph.backends.c.functions import CFunction, function
from qgraph.backends.c.kernels import WINDOW
from qgraph.backends.c.memory import Lifetime, Place, plan
from qgraph.ir.types import Array
from qgraph.names import c_names, comment, identifier
from qgraph.program import Program
from qgraph.program.layers import Layer, elements, layers
from qgraph.program.ops import OpClass

TRACE = """\
#ifdef {NET}_TRACE
#define TRACE(tensor, index, code) {net}_trace(tensor, index, code)
#define TRACE_ALL(tensor, codes, count) \\
    do {{ \\
        for (int32_t k = 0; k < (count); ++k) \\
            {net}_trace(tensor, k, (codes)[k]); \\
    }} while (0)
#else
#define TRACE(tensor, index, code) ((void)0)
#define TRACE_ALL(tensor, codes, count) ((void)0)
#endif
"""


@dataclass(frozen=True)
class Port:
    """An entry or an exit: the tensor, and its name in C."""

    tensor: str
    name: str


@dataclass(frozen=True)
class CUnit:
    """The parts of a .c file, and the facts that the header and the test need."""

    program: Program
    net: str
    entries: tuple[Port, ...]
    exits: tuple[Port, ...]
    arena: int  # bytes
    traced: tuple[str, ...]
    code: str
    data: tuple[tuple[str, str, Array], ...]  # name, type, codes
    identifiers: Mapping[str, str]  # by tensor

    @property
    def parameters(self) -> str:
        tensors = self.program.tensors
        read = [f"const {tensors[p.tensor].storage}_t *{p.name}" for p in self.entries]
        return ", ".join([*read, *(f"{tensors[p.tensor].storage}_t *{p.name}" for p in self.exits)])

    @property
    def text(self) -> str:
        """The whole file."""
        return "\n".join([self.code, *(_definition(*array) for array in self.data)])


def unit(program: Program, net: str) -> CUnit:
    """Write a program as C; names of files, functions and macros begin with `net`."""
    return _Unit(program, net).unit()


class _Unit:
    def __init__(self, program: Program, net: str) -> None:
        self.program, self.net = program, net
        self.names = c_names(net)
        self.layers = layers(program)
        self.entries = tuple(Port(e.tensor, self.names.fresh(e.tensor)) for e in program.entries)
        self.idents = {p.tensor: p.name for p in self.entries}
        copied = {n for n in program.exits if n in self.idents or n in program.constants}
        for name in (s.output for layer in self.layers for s in layer.steps):
            self.idents[name] = self.names.fresh(name)
        for name in program.constants:
            self.idents[name] = self.names.fresh(f"{identifier(name)}_codes")
        self.exits = tuple(
            Port(n, self.names.fresh(f"{identifier(n)}_out") if n in copied else self.idents[n])
            for n in program.exits
        )
        self.copied = [p for p in self.exits if p.tensor in copied]
        self.source = CContext(program, self.names, self.idents)
        self.roots = self._roots()

    def _roots(self) -> dict[str, str]:
        """The tensor with the codes, for each reshape that only changes their shape."""
        roots: dict[str, str] = {}
        for layer in self.layers:
            head = layer.head
            if head.family is OpClass.RESHAPE and head.output not in self.program.exits:
                source = head.inputs[0]
                if source not in self.program.constants:
                    roots[head.output] = roots.get(source, source)
        return roots

    def unit(self) -> CUnit:
        functions = [
            None if layer.head.output in self.roots else function(layer, self.source)
            for layer in self.layers
        ]
        offsets, arena = self._plan(functions)
        body = self._run(functions, offsets)
        data = tuple((name, kind, codes) for name, (kind, codes) in self.source.data.items())
        code = "\n".join([*self._head(data), *(f.text for f in functions if f), body])
        return CUnit(
            self.program,
            self.net,
            self.entries,
            self.exits,
            max(arena, 8),
            tuple(self.source.traced),
            code,
            data,
            self.idents,
        )

    # -- memory -----------------------------------------------------------------------------

    def _plan(self, functions: Sequence[CFunction | None]) -> tuple[dict[Place, int], int]:
        """Offsets of tensors by name, and of each layer's row by the number of the layer."""
        outside = {e.tensor for e in self.program.entries} | set(self.program.exits)
        lives: dict[Place, Lifetime] = {}
        for i, (layer, written) in enumerate(zip(self.layers, functions, strict=True)):
            for name in layer.read:
                root = self.roots.get(name, name)
                if root in lives:
                    lives[root] = Lifetime(lives[root].size, lives[root].first, i)
            for name in layer.stored if written else ():
                if name not in outside:
                    tensor = self.program.tensors[name]
                    size = elements(tensor) * np.dtype(tensor.storage).itemsize
                    lives[name] = Lifetime(size, i, i)
            if written and written.scratch:
                kind, count = written.scratch
                lives[i] = Lifetime(count * np.dtype(kind).itemsize, i, i)
        return plan(lives)

    def _in_arena(self, kind: str, offset: int) -> str:
        return f"arena->{short(kind)} + {offset // np.dtype(kind).itemsize}"

    # -- text -------------------------------------------------------------------------------

    def _head(self, data: Sequence[tuple[str, str, Array]]) -> list[str]:
        net = self.net
        kernels = self.source.kernels
        declared = [f"static const {kind}_t {name}[{codes.size}];" for name, kind, codes in data]
        return [
            f"/* {comment(self.program.name)}: integers only. Tensors are stored row by row, "
            "channels last.\n * A comment at each tensor has its name and the value of one step of "
            "its code. */",
            f'#include "{net}.h"\n\n#include <string.h>\n',
            TRACE.format(net=net, NET=net.upper()),
            *helpers(self.source.helpers),
            *([WINDOW] if any("window" in text for text in kernels.values()) else []),
            *kernels.values(),
            "/* The codes are at the end of the file. */",
            "\n".join([*declared, ""]),
        ]

    def _run(self, functions: Sequence[CFunction | None], offsets: dict[Place, int]) -> str:
        text, net, parameters = Text(), self.net, self._parameters()
        arguments = ", ".join(p.name for p in (*self.entries, *self.exits))
        text.line(f"void {net}_run_in({net}_arena *arena, {parameters})")
        text.line("{")
        for i, (layer, written) in enumerate(zip(self.layers, functions, strict=True)):
            for line in self._call(i, layer, written, offsets):
                text.line(f"    {line}")
        for port in self.copied:
            tensor = self.program.tensors[port.tensor]
            source = self.idents[port.tensor]
            if port.tensor in self.program.constants:
                source = self.source.constant(port.tensor)
            text.line(
                f"    memcpy({port.name}, {source}, {elements(tensor)} * sizeof *{port.name});"
            )
        if not offsets:
            text.line("    (void)arena;")
        text.line("}")
        text.line()
        text.line(f"#ifndef {net.upper()}_NO_STATIC_ARENA")
        text.line(f"void {net}_run({parameters})")
        text.line("{")
        text.line(f"    static {net}_arena arena;")
        text.line()
        text.line(f"    {net}_run_in(&arena, {arguments});")
        text.line("}")
        text.line("#endif")
        return str(text)

    def _parameters(self) -> str:
        empty = CUnit(self.program, self.net, self.entries, self.exits, 0, (), "", (), {})
        return empty.parameters

    def _call(
        self, i: int, layer: Layer, written: CFunction | None, offsets: dict[Place, int]
    ) -> list[str]:
        tensors = self.program.tensors
        if written is None:
            made, source = layer.head.output, self.idents[layer.head.inputs[0]]
            tensor, name = tensors[made], self.idents[made]
            trace = f"TRACE_ALL({self.source.trace(made)}, {name}, {elements(tensor)});"
            return [f"const {tensor.storage}_t *const {name} = {source};", trace]
        lines = [
            f"{tensors[n].storage}_t *const {self.idents[n]} = "
            f"{self._in_arena(tensors[n].storage, offsets[n])};"
            for n in layer.stored
            if n in offsets
        ]
        given = [self.idents[n] for n in written.arguments]
        if written.scratch:
            given.insert(
                len(given) - len(layer.stored), self._in_arena(written.scratch[0], offsets[i])
            )
        return [*lines, f"{written.name}({', '.join(given)});"]


def _definition(name: str, kind: str, codes: Array) -> str:
    shape = "x".join(map(str, codes.shape))
    return f"/* {shape} */\nstatic const {kind}_t {name}[{codes.size}] = {{\n{numbers(codes)}}};\n"
