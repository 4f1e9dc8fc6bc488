"""Layers whose weights are packed: all channels of two outputs at a time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from qgraph.backends.c.c_text import broadcast, index, strides
from qgraph.backends.c.elements import bits_for
from qgraph.backends.c.packed_kernels import BYTES
from qgraph.backends.c.packing import INT8, by_eight, offsets, packable, packed, padded
from qgraph.backends.c.vector_chains import GUARD, LANES, VectorChain
from qgraph.ops.windows import ONE
from qgraph.program import Step, Tensor
from qgraph.program.ops import Conv2dAttrs, WindowAttrs

if TYPE_CHECKING:
    from qgraph.backends.c.functions import Counters, FunctionWriter

AT_ONCE = 2  # outputs of all channels
NO_PADS = ((0, 0), (0, 0))


def packed_product(writer: FunctionWriter, head: Step) -> bool:
    """Write a conv2d or matmul with packed weights. Returns False if that is not possible."""
    places = _places(writer)
    sums = f"int{bits_for(writer.program, [head])}"
    if places is None or not packable(writer.program, head, sums):
        return False
    x, w = (writer.tensors[v] for v in head.inputs)
    depth, outputs = math.prod(w.shape[:-1]), w.shape[-1]
    whole, deep = padded(outputs, depth)
    samples, pixels = _counts(writer.shape)
    patch = _window(writer, head, x, w)
    writer.scratch_of("row", "int32", whole * min(AT_ONCE, pixels))
    writer.scratch_of("work", "int32", deep)
    if patch:
        writer.scratch_of("patch", x.storage, depth)
    kernel = writer.source.packed_kernel(x.storage)
    operands = [
        writer.source.made_of(head.inputs[1], "packed", packed), _offsets(writer, head, x),
        "row", "work", "patch" if patch else "NULL",
    ]  # fmt: skip
    text, counters = writer.text, [("n", samples), ("p", pixels), ("c", outputs)]
    with text.loops(counters[:1]):
        image = writer.at(x.name, index([math.prod(x.shape) // samples], counters[:1]))
        if pixels == 1:
            text.line(f"{kernel}({', '.join([image, *operands])}, 0, 1, &at);")
            channels(writer, "row", counters, places)
            return True
        with text.block(f"for (int32_t first = 0; first < {pixels}; first += {AT_ONCE})"):
            text.line(f"const int32_t pixels = {pixels} - first < 2 ? 1 : 2;")
            text.line()
            text.line(f"{kernel}({', '.join([image, *operands])}, first, pixels, &at);")
            with text.block("for (int32_t q = 0; q < pixels; ++q)"):
                text.line("const int32_t p = first + q;")
                text.line(f"const int32_t *const sums = row + {whole} * q;")
                text.line()
                channels(writer, "sums", counters, places)
    return True


def _counts(shape: tuple[int, ...]) -> tuple[int, int]:
    """Samples, and outputs of all channels in each. The rows of a matmul are one sample."""
    return (shape[0], shape[1] * shape[2]) if len(shape) == 4 else (1, shape[0])


def _operands(writer: FunctionWriter) -> list[str]:
    """Tensors that the steps behind the sums read, element by element."""
    read = dict.fromkeys(v for step in writer.layer.steps[1:] for v in step.inputs)
    return [v for v in read if v not in writer.layer.made and not writer.is_table(v)]


def _places(writer: FunctionWriter) -> dict[str, list[int]] | None:
    """Strides of operands along samples, pixels and channels; None if one has no such strides."""
    found = {}
    for value in _operands(writer):
        walk = broadcast(writer.tensors[value].shape, writer.shape)
        if len(walk) == 4:
            y, x = (0 if n == 1 else s for n, s in zip(writer.shape[1:3], walk[1:3], strict=True))
            if 1 not in writer.shape[1:3] and y != x * writer.shape[2]:
                return None
            walk = [walk[0], x or y, walk[3]]
        else:
            walk = [0, *walk]
        found[value] = walk
    return found


def _window(writer: FunctionWriter, head: Step, x: Tensor, w: Tensor) -> bool:
    """Write the window. Returns whether it has more than one place, or some outside the image."""
    if isinstance(head.attrs, Conv2dAttrs):
        attrs = head.attrs
        writer.window(x.shape[1:], w.shape[:2], attrs.strides, attrs.dilations, attrs.pads, 1)
        return math.prod(w.shape[:2]) > 1 or attrs.pads != NO_PADS
    writer.window((1, x.shape[0], x.shape[1]), ONE, ONE, ONE, NO_PADS, 1)
    return False


def _offsets(writer: FunctionWriter, head: Step, x: Tensor) -> str:
    if x.storage != "uint8":
        return "NULL"
    name = writer.source.made_of(head.inputs[1], "offsets", offsets, "HAS_VECTORS")
    return f"OFFSETS({name})"


def channels(
    writer: FunctionWriter, sums: str, counters: Counters, places: Mapping[str, Sequence[int]]
) -> None:
    """Write the steps behind sums for each channel, the last counter, of one output.

    places: strides of operands along the counters.
    """
    outputs, text = writer.shape[-1], writer.text
    known = {writer.layer.head.output: f"{sums}[{'c' if outputs > 1 else 0}]"}
    chain = VectorChain(writer, sums, counters, places).lines()
    if chain is None:
        with text.loops(counters[-1:]):
            writer.chain(counters, places, known, "c" if outputs > 1 else "0")
        return
    text.line(f"#ifdef {GUARD}")
    vectored = outputs // LANES * LANES
    with text.block(f"for (int32_t c = 0; c < {vectored}; c += {LANES})"):
        text.line(f"const int32_t i = {index(strides([n for _, n in counters]), counters)};")
        text.line()
        for line in chain:
            text.line(line)
    text.line("#endif")
    with text.block(f"for (int32_t c = AFTER_VECTORS({vectored}); c < {outputs}; ++c)"):
        writer.chain(counters, places, known, "c")


def byte_depthwise(writer: FunctionWriter, head: Step) -> bool:
    """Write a depthwise_conv2d of bytes. Returns False if that is not possible."""
    x, w = (writer.tensors[v] for v in head.inputs)
    sums = f"int{bits_for(writer.program, [head])}"
    fits = w.low >= -INT8 - 1 and w.high <= INT8 and x.storage in BYTES and sums == "int32"
    if w.shape[3] > 1 or head.inputs[1] not in writer.program.constants or not fits:
        return False
    attrs = head.attrs_as(WindowAttrs)
    writer.scratch_of("row", "int32", w.shape[2])
    writer.window(x.shape[1:], w.shape[:2], attrs.strides, attrs.dilations, attrs.pads, 1)
    kernel = writer.source.depthwise_kernel(x.storage)
    weights = writer.source.made_of(head.inputs[1], "bytes", by_eight)
    places = {v: broadcast(writer.tensors[v].shape, writer.shape) for v in _operands(writer)}
    with writer.pixels(x) as (counters, image, place):
        writer.text.line(f"{kernel}({image}, {weights}, row, {place}, &at);")
        channels(writer, "row", counters, places)
    return True
