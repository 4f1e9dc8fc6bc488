"""A quantized policy at work: observations in, actions out, without TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from qgraph.archives import reading
from qgraph.errors import LoadError, UsageError
from qgraph.ir.types import Array
from qgraph.rl.actor import Actor
from qgraph.rl.actor.observations import wrong_shape
from qgraph.rl.head import Head
from qgraph.rl.policy.balance import power_above
from qgraph.rl.policy.file import AGAIN, Packed, read
from qgraph.rl.policy.static import StaticRunner
from qgraph.rl.setting_text import SettingText

if TYPE_CHECKING:
    from qgraph.backends.network_forms import Network
    from qgraph.program import Program

Run = Callable[[Array], Mapping[str, Array]]


def load_policy(path: str | Path, level: str = "auto") -> Policy:
    """The policy that `qgraph rl quantize` wrote. Raises LoadError; `level` is that of `Actor`."""
    try:
        return Policy(read(path), level)
    except LoadError as error:
        error.node = error.node or str(path)
        raise


class Policy:
    """A quantized policy; `counts` counts the observations that it has met.

    observations: all of them; outside: those with a number beyond what calibration saw, if there
    was any; saturated: those of them that were held to the nearest there is. The dynamic form holds
    a number to the power of two above the largest of its feature, the static one to its codes.
    """

    def __init__(self, packed: Packed, level: str = "auto") -> None:
        about = packed.manifest
        self.sections = packed.sections
        self._static: StaticRunner | None = None
        with reading(None, "its manifest does not hold", AGAIN):
            self.about = about
            self.form = str(about["form"])
            self.shape = tuple(int(size) for size in about["shape"])
            self.names = tuple(str(name) for name in about["outputs"])
            self.head = None if about["head"] is None else Head.from_json(about["head"])
            self._range = _ends(about["range"])
            self._held = None if self._range is None else _held(*self._range)
            self._run = self._runner(packed, level)
        self.counts = {"observations": 0, "outside": 0, "saturated": 0}

    def __call__(self, observations: Array, rng: np.random.Generator | None = None) -> Array:
        """Actions for observations [n, *shape] or one of [*shape]; the likeliest without rng.

        Without a head they are the first output. Raises UsageError for observations of another
        shape, and for NaN in them.
        """
        outputs = self.outputs(observations)
        if self.head is None:
            return outputs
        alone = np.shape(observations) == self.shape
        found = self.head.actions(np.atleast_2d(outputs), rng)
        return np.asarray(found[0]) if alone else found

    def outputs(self, observations: Array) -> Array:
        """The first output, float32 [n, m], of [n, *shape]; [m] of one observation."""
        return self.run(observations)[self.names[0]]

    def run(self, observations: Array) -> dict[str, Array]:
        """Every output by name; else as `outputs`."""
        x = np.asarray(observations, np.float32)
        alone = x.shape == self.shape
        x = x[None] if alone else x
        if x.shape[1:] != self.shape or not len(x):
            raise wrong_shape(np.shape(observations), self.shape)
        x = self._counted(x)
        found = self._run(x)
        return {name: found[name][0] if alone else found[name] for name in self.names}

    @property
    def program(self) -> Program:
        """The integer program of a static policy: what C, for one, is written from.

        Raises UsageError for a dynamic one.
        """
        if self._static is None:
            raise UsageError(
                "a dynamic policy has no integer program",
                hint=SettingText("quantize it with {form} static"),
            )
        return self._static.session.program

    @property
    def network(self) -> Network:
        """A static policy as `qgraph.exports` takes it: to ONNX, C and the other forms.

        Raises UsageError for a dynamic one.
        """
        from qgraph.backends.network_forms import Network
        from qgraph.quant.profile import load_profile

        program = self.program
        assert self._static is not None
        return Network(self._static.session.graph, program, load_profile("policy-int8"), {})

    def _counted(self, x: Array) -> Array:
        """x as it is run, after it was counted. A dynamic form's actor refuses NaN by itself."""
        self.counts["observations"] += len(x)
        if self._range is not None and _is_within(x, *self._range):
            return x
        if self.form == "static" and not np.isfinite(x).all():
            raise _not_finite(x)
        if self._range is None:
            return x
        assert self._held is not None
        self.counts["outside"] += _beyond(x, self._range)
        self.counts["saturated"] += _beyond(x, self._held)
        return np.clip(x, *self._held) if self.form == "dynamic" and np.isfinite(x).all() else x

    def _runner(self, packed: Packed, level: str) -> Run:
        if self.form == "dynamic":
            actor = Actor(packed.sections["block"], level)
            if actor.shape != self.shape or actor.outputs != self.names:
                raise ValueError("the block is of another policy")
            return actor.run
        if self.form != "static":
            raise ValueError(f"form `{self.form}` is not known")
        static = StaticRunner(packed, level)
        if not set(self.names) <= static.outputs:
            raise ValueError("its graph has other outputs")
        if self._range and static.reach is not None:
            self._held = static.reach
        self._static = static
        return static.run


def _not_finite(x: Array) -> UsageError:
    first = tuple(int(i) for i in np.argwhere(~np.isfinite(x))[0])
    return UsageError(
        f"observation {first[0]} has {x[first]} at {list(first[1:])}",
        hint="look at what the environment gives",
    )


def _is_within(x: Array, low: Array, high: Array) -> bool:
    """True if all are finite. The sum is quicker than `all` for so few numbers."""
    return int(np.count_nonzero((x >= low) & (x <= high))) == x.size


def _beyond(x: Array, ends: tuple[Array, Array]) -> int:
    """How many observations have a number outside."""
    outside = (x < ends[0]) | (x > ends[1])
    return int(outside.reshape(len(x), -1).any(-1).sum())


def _held(low: Array, high: Array) -> tuple[Array, Array]:
    power = power_above(np.stack([low, high])).astype(np.float32)
    return -power, power


def _ends(found: Any) -> tuple[Array, Array] | None:
    if found is None:
        return None
    return np.asarray(found["low"], np.float32), np.asarray(found["high"], np.float32)
