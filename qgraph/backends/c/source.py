"""Write the .c file: helpers, a function for each layer, those that run them, constants.

A network without float islands has one function that runs it. With islands, it has one for each
segment; a tensor that a later segment reads is an exit of one and an entry of the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from qgraph.backends.c.arithmetic import helpers
from qgraph.backends.c.c_text import Text, numbers, short
from qgraph.backends.c.context import CArray, CContext, CFunction
from qgraph.backends.c.kernels import WINDOW
from qgraph.backends.c.layer_functions import function
from qgraph.backends.c.memory import Lifetime, Place, plan
from qgraph.backends.c.packed_kernels import packed_kernels
from qgraph.backends.c.target_instructions import targets
from qgraph.backends.c.vector_chains import ROUNDINGS_X4
from qgraph.names import c_names, comment, identifier
from qgraph.program import Program, segments
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
class CRun:
    """A function that runs a segment, `NAME_in` with an arena: its entries and exits."""

    name: str
    part: Program
    entries: tuple[Port, ...]
    exits: tuple[Port, ...]

    @property
    def parameters(self) -> str:
        tensors = self.part.tensors
        read = [f"const {tensors[p.tensor].storage}_t *{p.name}" for p in self.entries]
        return ", ".join([*read, *(f"{tensors[p.tensor].storage}_t *{p.name}" for p in self.exits)])

    @property
    def arguments(self) -> str:
        return ", ".join(p.name for p in (*self.entries, *self.exits))


@dataclass(frozen=True)
class CUnit:
    """The parts of a .c file, and the facts that the header and the test need."""

    program: Program
    net: str
    entries: tuple[Port, ...]
    exits: tuple[Port, ...]
    runs: tuple[CRun, ...]
    arena: int  # bytes
    traced: tuple[str, ...]
    code: str
    data: tuple[CArray, ...]
    identifiers: Mapping[str, str]  # by tensor

    @property
    def passed_on(self) -> tuple[Port, ...]:
        """Exits of segments that only later segments read."""
        outside = {*self.exits}
        return tuple(p for run in self.runs for p in run.exits if p not in outside)

    @property
    def text(self) -> str:
        """The whole file."""
        return "\n".join([self.code, *map(_definition, self.data)])


def unit(program: Program, net: str) -> CUnit:
    """Write a program as C; names of files, functions and macros begin with `net`."""
    return _Unit(program, net).unit()


class _Unit:
    def __init__(self, program: Program, net: str) -> None:
        self.program, self.net = program, net
        self.names = c_names(net)
        self.parts = segments(program)
        self.layers = [layer for part in self.parts for layer in layers(part)]
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
        self.runs = tuple(self._ports(part) for part in self.parts)
        self.source = CContext(program, self.names, self.idents)
        self.roots = self._roots()

    def _ports(self, part: Program) -> CRun:
        number = "" if len(self.parts) == 1 else f"_{self.parts.index(part)}"
        exits = {port.tensor: port for port in self.exits}
        return CRun(
            f"{self.net}_run{number}",
            part,
            tuple(Port(e.tensor, self.idents[e.tensor]) for e in part.entries),
            tuple(exits.get(n, Port(n, self.idents[n])) for n in part.exits),
        )

    def _roots(self) -> dict[str, str]:
        """The tensor with the codes, for each reshape that only changes their shape."""
        roots: dict[str, str] = {}
        exits = {name for part in self.parts for name in part.exits}
        for layer in self.layers:
            head = layer.head
            if head.family is OpClass.RESHAPE and head.output not in exits:
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
        bodies = [self._run(run, functions, offsets) for run in self.runs]
        data = tuple(self.source.data.values())
        code = "\n".join([*self._head(data), *(f.text for f in functions if f), *bodies])
        return CUnit(
            self.program,
            self.net,
            self.entries,
            self.exits,
            self.runs,
            max(arena, 8),
            tuple(self.source.traced),
            code,
            data,
            self.idents,
        )

    # -- memory -----------------------------------------------------------------------------

    def _plan(self, functions: Sequence[CFunction | None]) -> tuple[dict[Place, int], int]:
        """Offsets of tensors and of the scratch memory of layers."""
        outside = {e.tensor for e in self.program.entries}
        outside |= {name for part in self.parts for name in part.exits}
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
            for one in written.scratch if written else ():
                lives[i, one.name] = Lifetime(one.elements * np.dtype(one.kind).itemsize, i, i)
        return plan(lives)

    def _in_arena(self, kind: str, offset: int) -> str:
        return f"arena->{short(kind)} + {offset // np.dtype(kind).itemsize}"

    # -- text -------------------------------------------------------------------------------

    def _head(self, data: Sequence[CArray]) -> list[str]:
        net = self.net
        kernels = self.source.kernels
        declared = [line for array in data for line in _declaration(array)]
        return [
            f"/* {comment(self.program.name)}: integers only. Tensors are stored row by row, "
            "channels last.\n * A comment at each tensor has its name and the value of one step of "
            "its code. */",
            f'#include "{net}.h"\n\n#include <string.h>\n',
            TRACE.format(net=net, NET=net.upper()),
            *([targets(net)] if self.source.has_targets else []),
            *helpers(self.source.helpers),
            *([WINDOW] if self.source.has_windows else []),
            *kernels.values(),
            *packed_kernels(self.source.packed),
            *([ROUNDINGS_X4] if self.source.has_targets else []),
            "/* The codes are at the end of the file. */",
            "\n".join([*declared, ""]),
        ]

    def _run(
        self, run: CRun, functions: Sequence[CFunction | None], offsets: dict[Place, int]
    ) -> str:
        text, net = Text(), self.net
        own = {step.output for step in run.part.steps}
        text.line(f"void {run.name}_in({net}_arena *arena, {run.parameters})")
        text.line("{")
        calls = [
            line
            for i, (layer, written) in enumerate(zip(self.layers, functions, strict=True))
            if layer.head.output in own
            for line in self._call(i, layer, written, offsets)
        ]
        for line in calls:
            text.line(f"    {line}")
        for port in (p for p in self.copied if p in run.exits):
            tensor = self.program.tensors[port.tensor]
            source = self.idents[port.tensor]
            if port.tensor in self.program.constants:
                source = self.source.constant(port.tensor)
            text.line(
                f"    memcpy({port.name}, {source}, {elements(tensor)} * sizeof *{port.name});"
            )
        if not any("arena->" in line for line in calls):
            text.line("    (void)arena;")
        text.line("}")
        text.line()
        text.line(f"#ifndef {net.upper()}_NO_STATIC_ARENA")
        text.line(f"void {run.name}({run.parameters})")
        text.line("{")
        text.line(f"    static {net}_arena arena;")
        text.line()
        text.line(f"    {run.name}_in(&arena, {run.arguments});")
        text.line("}")
        text.line("#endif")
        return str(text)

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
        scratch = [self._in_arena(one.kind, offsets[i, one.name]) for one in written.scratch]
        given[len(given) - len(layer.stored) : len(given) - len(layer.stored)] = scratch
        return [*lines, f"{written.name}({', '.join(given)});"]


def _declaration(array: CArray) -> list[str]:
    line = f"static const {array.kind}_t {array.name}[{array.codes.size}];"
    return [f"#ifdef {array.guard}", line, "#endif"] if array.guard else [line]


def _definition(array: CArray) -> str:
    shape = "x".join(map(str, array.codes.shape))
    size, codes = array.codes.size, numbers(array.codes)
    text = f"/* {shape} */\nstatic const {array.kind}_t {array.name}[{size}] = {{\n{codes}}};\n"
    return f"#ifdef {array.guard}\n{text}#endif\n" if array.guard else text
