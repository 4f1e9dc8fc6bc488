"""Rules for ops that move numbers, and for sums and functions along other axes than the last."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from qgraph.ir.graph import Node
from qgraph.ir.ops.attributes import AxisAttrs
from qgraph.ir.ops.movement import PaddingAttrs, PadMode, PartAttrs, mirrored
from qgraph.ir.ops.pool import ReductionAttrs
from qgraph.ir.types import Array
from qgraph.ops.movement import TakeAttrs, TransposeAttrs
from qgraph.rewrite.constants import is_channel_mean
from qgraph.rl.policy.sample_axis import SampleAxis
from qgraph.rl.policy.writer import ActorProgramWriter, no_actor


def reshape(writer: ActorProgramWriter, node: Node) -> None:
    x, types = node.inputs[0], writer.graph.types
    before, after = types[x].shape or (), types[node.name].shape or ()
    samples = writer.samples_of(x).reshaped(before, after)
    if samples is None:
        raise no_actor(node, " that joins numbers of several samples")
    writer.samples[node.name] = samples
    _become(writer, node, writer.value(x), node.name)


def _become(writer: ActorProgramWriter, node: Node, value: str, name: str) -> None:
    """Let a value of the program be that of a node, by the step `name` if its last axis differs."""
    if writer.shapes[value][-1] == writer.known(node.name)[-1]:
        writer.aliases[node.name] = value
        return
    made = writer.reshaped(name, value, writer.known(node.name))
    if made != node.name:
        writer.aliases[node.name] = made


def concat(writer: ActorProgramWriter, node: Node) -> None:
    for value in node.inputs:
        if writer.graph.constant(value) is not None:
            raise no_actor(node, " with a constant")
    place = writer.axis(node, node.typed(AxisAttrs).axis)
    if place == len(writer.known(node.name)) - 1:
        values = [writer.value(value) for value in node.inputs]
        if len({writer.shapes[value][:-1] for value in values}) > 1:
            values = [writer.shaped(value) for value in node.inputs]
        _joined(writer, node.name, values)
        return
    parts = [
        writer.joined_from(f"{node.name}/{i}", writer.shaped(value), place)[0]
        for i, value in enumerate(node.inputs)
    ]
    writer.add(f"{node.name}/columns", "concat", *parts)
    _become(writer, node, f"{node.name}/columns", node.name)


def _joined(writer: ActorProgramWriter, name: str, values: Sequence[str]) -> None:
    """Values one after the other; columns of the observation are selected together."""
    if not all(value in writer.selected for value in values):
        writer.add(name, "concat", *values)
        return
    columns = np.concatenate([writer.selected[value] for value in values])
    total = writer.shapes[writer.observation][0]
    if len(columns) == total and (columns == np.arange(len(columns))).all():
        writer.aliases[name] = writer.observation
    else:
        writer.select(name, columns)


def part(writer: ActorProgramWriter, node: Node) -> None:
    """A part of each axis."""
    shape, slices = writer.graph.types[node.inputs[0]].shape or (), node.typed(PartAttrs).slices
    taken: dict[int, Array] = {}
    for axis, (size, each) in enumerate(zip(shape, slices, strict=True)):
        if (each.start or 0, each.step) == (0, 1) and each.stop in (None, size):
            continue
        place = writer.axis(node, axis)
        taken[place] = np.arange(writer.known(node.inputs[0])[place])[each]
    _take_parts(writer, node, taken)


def take(writer: ActorProgramWriter, node: Node) -> None:
    """Parts of an axis by their numbers."""
    attrs = node.typed(TakeAttrs)
    _take_parts(writer, node, {writer.axis(node, attrs.axis): np.asarray(attrs.indices, int)})


def _take_parts(writer: ActorProgramWriter, node: Node, taken: Mapping[int, Array]) -> None:
    """Indices of axes of one sample: those of the last axis by columns of the layers before."""
    x = node.inputs[0]
    last = len(writer.known(x)) - 1
    value = writer.value(x) if set(taken) <= {last} else writer.shaped(x)
    for place, indices in taken.items():
        if place == last:
            value = writer.columns(node, value, indices, writer.shapes[value][-1])
            continue
        shape = writer.shapes[value]
        joined, inner = writer.joined_from(f"{node.name}/{place}", value, place)
        columns = (indices[:, None] * inner + np.arange(inner)).ravel()
        writer.slices(f"{node.name}/{place}/part", joined, columns)
        left = (*shape[:place], len(indices), *shape[place + 1 :])
        value = writer.reshaped(f"{node.name}/{place}/shaped", f"{node.name}/{place}/part", left)
    writer.aliases[node.name] = value


def pad(writer: ActorProgramWriter, node: Node) -> None:
    attrs = node.typed(PaddingAttrs)
    value = writer.shaped(node.inputs[0])
    for axis, (before, after) in enumerate(attrs.paddings):
        if (before, after) == (0, 0):
            continue
        place = writer.axis(node, axis)
        shape, name = writer.shapes[value], f"{node.name}/{place}"
        joined, inner = writer.joined_from(name, value, place)
        if attrs.mode is PadMode.CONSTANT:
            _filled(writer, name, joined, (before * inner, after * inner), attrs.value)
        else:
            indices = mirrored(np.arange(shape[place]), [(before, after)], attrs.mode)
            columns = (indices[:, None] * inner + np.arange(inner)).ravel()
            writer.slices(f"{name}/padded", joined, columns)
        whole = (*shape[:place], shape[place] + before + after, *shape[place + 1 :])
        value = writer.reshaped(f"{name}/shaped", f"{name}/padded", whole)
    writer.aliases[node.name] = value


def _filled(
    writer: ActorProgramWriter, name: str, value: str, counts: Sequence[int], number: float
) -> None:
    """Add columns that are `number` before and after those of a value: columns clipped to it."""
    width, parts = writer.shapes[value][-1], [value]
    for count, at in zip(counts, (0, 2), strict=True):
        if not count:
            continue
        writer.slices(f"{name}/{at}/any", value, np.arange(count) % width)
        bound = np.full(count, number, np.float32)
        writer.add(f"{name}/{at}", "clip", f"{name}/{at}/any", low=bound, high=bound)
        parts.insert(at, f"{name}/{at}")
    writer.add(f"{name}/padded", "concat", *parts)


def transpose(writer: ActorProgramWriter, node: Node) -> None:
    x = node.inputs[0]
    writer.samples[node.name], order = writer.samples_of(x).order(node.typed(TransposeAttrs).perm)
    made = writer.moved(node.name, writer.shaped(x), order)
    if made != node.name:
        writer.aliases[node.name] = made


def along_last(writer: ActorProgramWriter, node: Node, axis: int, op: str) -> None:
    """An op along one axis, which becomes the last one for it."""
    place = writer.axis(node, axis)
    rank = len(writer.known(node.inputs[0]))
    if place == rank - 1:
        writer.add(node.name, op, node.inputs[0])
        return
    order = [*(i for i in range(rank) if i != place), place]
    turned = writer.moved(f"{node.name}/turned", writer.shaped(node.inputs[0]), order)
    writer.add(f"{node.name}/{op}", op, turned)
    writer.moved(node.name, f"{node.name}/{op}", np.argsort(order).tolist())


def mean(writer: ActorProgramWriter, node: Node) -> None:
    if is_channel_mean(writer.graph, node):
        writer.means[node.name] = writer.value(node.inputs[0])
    else:
        _reduced(writer, node, mean=True)


def total(writer: ActorProgramWriter, node: Node) -> None:
    _reduced(writer, node, mean=False)


def _reduced(writer: ActorProgramWriter, node: Node, mean: bool) -> None:
    """A sum or a mean over any axes, which become the last one."""
    x, attrs = node.inputs[0], node.typed(ReductionAttrs)
    places = sorted({writer.axis(node, axis) for axis in attrs.axes})
    rank = writer.graph.types[x].rank or 0
    if not attrs.keepdims:
        own = writer.samples_of(x)
        gone = sum(axis % rank < own.axis for axis in attrs.axes)
        writer.samples[node.name] = SampleAxis(own.axis - gone, own.before, own.after)
    value = writer.shaped(x)
    shape = writer.shapes[value]
    left = [axis for axis in range(len(shape)) if axis not in places]
    count = math.prod(shape[axis] for axis in places)
    turned = writer.moved(f"{node.name}/turned", value, [*left, *places])
    sizes = (*(shape[axis] for axis in left), count)
    rows = writer.reshaped(f"{node.name}/rows", turned, sizes)
    made = f"{node.name}/sum"
    writer.add(made, "sum", rows)
    if mean:
        share = np.full(1, 1 / count, np.float32)
        writer.add(f"{node.name}/mean", "affine", made, scale=share, offset=np.zeros(1, np.float32))
        made = f"{node.name}/mean"
    _become(writer, node, made, node.name)
