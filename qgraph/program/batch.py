"""Does a program keep the samples of a batch apart? Only then may a run have more of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from qgraph.program.form import Program, Step

Check = Callable[[Program, Step], bool]


def samples_stay_apart(program: Program) -> bool:
    """True if every tensor but constants has one sample in front, and no step mixes samples."""
    apart = [_sample(program, entry.tensor) for entry in program.entries]
    return all(apart) and all(
        _sample(program, step.output) and CHECKS[step.op](program, step) for step in program.steps
    )


def blocks_stay_apart(program: Program, of_two: Program) -> bool:
    """True if two samples are two runs of one: rows of one sample, then rows of the other.

    of_two: the same network, lowered for two samples.
    """
    one, two = program.tensors, of_two.tensors
    made = [name for name in one if name not in program.constants]
    return (
        set(one) == set(two)
        and all(two[n].shape == _doubled(one[n].shape) for n in made)
        and all(np.array_equal(c, of_two.constants[n]) for n, c in program.constants.items())
        and all(CHECKS[step.op](program, step) for step in program.steps)
    )


def _doubled(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (2 * shape[0], *shape[1:]) if shape else ()


def _sample(program: Program, name: str) -> bool:
    return program.tensors[name].shape[:1] == (1,)


def _constant_weights(program: Program, step: Step) -> bool:
    x, weights = step.inputs
    return x not in program.constants and weights in program.constants


def _broadcast(program: Program, step: Step) -> bool:
    rank = len(program.tensors[step.output].shape)
    shapes = [program.tensors[v].shape for v in step.inputs]
    return all(
        (len(shape) < rank or shape[0] == 1) if v in program.constants else len(shape) == rank
        for v, shape in zip(step.inputs, shapes, strict=True)
    )


def _not_along_the_batch(program: Program, step: Step) -> bool:
    """Numbers for each last index are numbers for each sample where the batch is all there is."""
    return len(program.tensors[step.output].shape) > 1 or not any(
        isinstance(value, tuple) for value in step.attrs.values()
    )


def _no_constants(program: Program, step: Step) -> bool:
    return not any(v in program.constants for v in step.inputs)


CHECKS: Mapping[str, Check] = {
    "conv2d": _constant_weights,
    "depthwise_conv2d": _constant_weights,
    "matmul": _constant_weights,
    **dict.fromkeys(("add", "sub", "mul", "maximum", "minimum"), _broadcast),
    "clip": _not_along_the_batch,
    "requantize": _not_along_the_batch,
    "lookup": lambda program, step: True,
    "standardize": lambda program, step: len(program.tensors[step.output].shape) > 1,
    "max_pool": lambda program, step: True,
    "reduce_max": lambda program, step: 0 not in step.attrs["axes"],
    "reshape": lambda program, step: True,
    "transpose": lambda program, step: bool(step.attrs["perm"][0] == 0),
    "slice": lambda program, step: all(
        step.attrs[key][0] == whole for key, whole in (("begin", 0), ("end", None), ("strides", 1))
    ),
    "concat": lambda p, step: step.attrs["axis"] != 0 and _no_constants(p, step),
    "pad": lambda program, step: tuple(step.attrs["paddings"][0]) == (0, 0),
    "take": lambda program, step: bool(step.attrs["axis"] != 0),
}
