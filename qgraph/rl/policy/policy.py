"""A quantized policy at work: observations in, actions out, without TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from qgraph.archives import reading
from qgraph.choices import PackedForm
from qgraph.errors import LoadError, UsageError
from qgraph.ir.types import Array
from qgraph.records import from_json
from qgraph.rl.actor import Actor
from qgraph.rl.actor.actor import level_number
from qgraph.rl.actor.observations import wrong_shape
from qgraph.rl.actor.program_state import next_states, size_of
from qgraph.rl.policy.balance import power_above
from qgraph.rl.policy.file import QUANTIZE_AGAIN, Packed, PolicyManifest, read
from qgraph.rl.policy.recurrent_outputs import RecurrentOutputs
from qgraph.rl.policy.static import StaticRunner
from qgraph.rl.setting_text import SettingText

if TYPE_CHECKING:
    from qgraph.backends.network_forms import Network
    from qgraph.program import Program
    from qgraph.rl.policy.play import Outputs

Run = Callable[[Array], Mapping[str, Array]]
Observations = Array | Mapping[str, Array]  # one array, or one for each part


def load_policy(path: str | Path, level: str = "auto") -> Policy:
    """Load a policy that `qgraph rl quantize` wrote.

    Args:
        path: Path of the `.qpol` file.
        level: CPU instructions to use, as in `qgraph.rl.actor.Actor`.

    Returns:
        The policy.

    Raises:
        LoadError: The file does not exist or is damaged.
        UsageError: The level is unknown.
        UnsupportedError: This build or CPU does not support the level.

    Examples:
        >>> import numpy as np
        >>> from qgraph.rl.policy import load_policy
        >>> policy = load_policy("policy.qpol")
        >>> policy(np.zeros((3, *policy.shape))).shape
        (3,)
    """
    try:
        return Policy(read(path), level)
    except LoadError as error:
        error.node = error.node or str(path)
        raise


class Policy:
    """A quantized policy, which runs without a framework.

    Args:
        packed: The content of a `.qpol` file.
        level: CPU instructions to use, as in `qgraph.rl.actor.Actor`.

    Attributes:
        about: The manifest of the file.
        form: `dynamic` or `static`.
        bits: Bits of the weights.
        shape: Shape of one observation.
        names: Names of the outputs.
        head: The head, which turns outputs into actions; None without one.
        columns: Parts of observations that are dictionaries, and states; None for others.
        counts: Numbers of observations: `observations` in total; `outside` the range of the
            calibration; `saturated`, which were clipped. The dynamic form clips a number to the
            power of two above the largest of its feature, the static form to the range of its
            codes.

    Raises:
        LoadError: The content is damaged.
        UsageError: The level is unknown.
        UnsupportedError: This build or CPU does not support the level.

    Examples:
        >>> from qgraph.rl.policy import load_policy
        >>> policy = load_policy("policy.qpol")
        >>> policy.form, policy.bits
        ('dynamic', 8)
    """

    def __init__(self, packed: Packed, level: str = "auto") -> None:
        self.about = packed.manifest
        self.sections = packed.sections
        self._static: StaticRunner | None = None
        level_number(level)  # before errors are those of the file
        with reading(None, "its manifest is damaged", QUANTIZE_AGAIN):
            facts = from_json(PolicyManifest, packed.manifest)
            self.form, self.bits = facts.form, facts.bits
            self.shape, self.names, self.head = facts.shape, facts.outputs, facts.head
            self._range = None if facts.range is None else facts.range.ends
            self._held_range = None if self._range is None else _held_range(*self._range)
            self.columns = facts.columns
            self._run = self._runner(packed, level)
        self._states: Array | None = None
        self.counts = {"observations": 0, "outside": 0, "saturated": 0}

    @property
    def recurrent(self) -> bool:
        """Whether the policy has states, which each call carries to the next one."""
        return self.columns is not None and bool(self.columns.states)

    def reset(self, ended: Array | None = None) -> None:
        """Begin episodes: the states become zeros at the next call.

        Args:
            ended: Which of the episodes side by side begin again, bool [n]; None for all, whose
                number may then be another one.

        Raises:
            UsageError: The states are of another number of episodes.
        """
        if ended is None or self._states is None:
            self._states = None
            return
        chosen = np.asarray(ended, bool)
        if chosen.shape != (len(self._states),):
            raise UsageError(
                f"`ended` has shape {list(chosen.shape)}, and there are {len(self._states)} states"
            )
        self._states = np.where(chosen[:, None], np.float32(0), self._states)

    def __call__(
        self,
        observations: Observations,
        rng: np.random.Generator | None = None,
        masks: Array | None = None,
    ) -> Array:
        """Compute actions.

        A recurrent policy carries its states from call to call; `reset` begins an episode.

        Args:
            observations: Array `[n, *shape]`, or `[*shape]` for a single observation; a dictionary
                of such arrays, if the policy has several parts.
            rng: Draws actions; None takes the most likely ones.
            masks: Valid options, bool [n, m], or [m] for a single observation; None if all are.

        Returns:
            Actions, int64 [n] or [n, a], or float32 [n, a]. Without a head, the first output. For a
            single observation, without the first axis.

        Raises:
            UsageError: The observations have another shape, or contain NaN.
        """
        observations = self._array(observations)
        outputs = self.outputs(observations)
        if self.head is None:
            return outputs
        alone = np.shape(observations) == self.shape
        given = None if masks is None else np.atleast_2d(masks)
        actions = self.head.actions(np.atleast_2d(outputs), rng, given)
        return np.asarray(actions[0]) if alone else actions

    def outputs(self, observations: Observations) -> Array:
        """Compute the first output.

        Args:
            observations: Array `[n, *shape]`, or `[*shape]` for a single observation.

        Returns:
            The output, float32 [n, m], or [m] for a single observation.

        Raises:
            UsageError: The observations have another shape, or contain NaN.
        """
        return self.run(observations)[self.names[0]]

    def run(self, observations: Observations) -> dict[str, Array]:
        """Compute every output, without the states.

        Args:
            observations: Array `[n, *shape]`, or `[*shape]` for a single observation.

        Returns:
            The outputs by name, with shapes as from `outputs`.

        Raises:
            UsageError: The observations have another shape, or contain NaN.
        """
        x = self._array(observations)
        alone = x.shape == self.shape
        x = x[None] if alone else x
        if x.shape[1:] != self.shape or not len(x):
            raise wrong_shape(x.shape[1:] if alone else x.shape, self.shape)
        x = self._counted(x)
        outputs = self._run(x) if self.columns is None else self._run_columns(x)
        return {name: outputs[name][0] if alone else outputs[name] for name in self.names}

    @property
    def played(self) -> Outputs:
        """The policy for episodes that are played side by side, whose states are given.

        Returns:
            `outputs`, or `RecurrentOutputs` for a policy with states.
        """
        columns = self.columns
        if columns is None or not columns.states:
            return self.outputs

        def run(rows: Array) -> Mapping[str, Array]:
            seen = self._counted(rows[:, : columns.observed].reshape(-1, *self.shape))
            return self._run(columns.joined(seen, rows[:, columns.observed :]))

        return RecurrentOutputs(run, columns.states, self.names[0])

    @property
    def program(self) -> Program:
        """The integer program of a static policy, from which C and other forms are written.

        Raises:
            UsageError: The policy is dynamic.
        """
        if self._static is None:
            raise UsageError(
                "a dynamic policy has no integer program",
                hint=SettingText("quantize it with {form} static"),
            )
        return self._static.session.program

    @property
    def network(self) -> Network:
        """The network of a static policy, which `qgraph.exports` writes as ONNX, C and other forms.

        Raises:
            UsageError: The policy is dynamic.
        """
        from qgraph.backends.network_forms import Network
        from qgraph.quant.profile import load_profile

        program = self.program
        assert self._static is not None
        return Network(self._static.session.graph, program, load_profile("policy-int8"), {})

    def _array(self, observations: Observations) -> Array:
        """Observations as one array, float32."""
        if self.columns is not None:
            return self.columns.array(observations)
        if isinstance(observations, Mapping):
            raise UsageError("the policy takes one array, not a dictionary of observations")
        return np.asarray(observations, np.float32)

    def _run_columns(self, x: Array) -> Mapping[str, Array]:
        """Every output of observations [n, *shape]; states are carried."""
        columns = self.columns
        assert columns is not None
        states = columns.first_states(len(x)) if self._states is None else self._states
        if len(states) != len(x):
            raise UsageError(
                f"{len(x)} observations follow {len(states)}: states belong to as many",
                hint="call `reset` to begin episodes",
            )
        outputs = self._run(columns.joined(x, states))
        if columns.states:
            self._states = next_states(columns.states, outputs)
        return outputs

    def _counted(self, x: Array) -> Array:
        """Count x, and clip it for the dynamic form, whose actor refuses NaN."""
        self.counts["observations"] += len(x)
        if self._range is not None and _is_within(x, *self._range):
            return x
        if self.form == PackedForm.STATIC and not np.isfinite(x).all():
            raise _not_finite(x)
        if self._range is None:
            return x
        assert self._held_range is not None
        self.counts["outside"] += _count_outside(x, self._range)
        self.counts["saturated"] += _count_outside(x, self._held_range)
        return (
            np.clip(x, *self._held_range)
            if self.form == PackedForm.DYNAMIC and np.isfinite(x).all()
            else x
        )

    def _runner(self, packed: Packed, level: str) -> Run:
        if self.form == PackedForm.DYNAMIC:
            actor = Actor(packed.sections["block"], level)
            names, columns = self.names, self.columns
            shape = self.shape
            if columns is not None:
                shape = (columns.observed + size_of(columns.states),)
                names = (*names, *(state.output for state in columns.states))
            if actor.shape != shape or actor.outputs != names:
                raise ValueError("its block belongs to another policy")
            return actor.run
        if self.form != PackedForm.STATIC:
            raise ValueError(f"its form `{self.form}` is unknown")
        static = StaticRunner(packed, level)
        if not set(self.names) <= static.outputs:
            raise ValueError("its graph has other outputs")
        if self._range and static.reach is not None:
            self._held_range = static.reach
        self._static = static
        return static.run


def _not_finite(x: Array) -> UsageError:
    first = tuple(int(i) for i in np.argwhere(~np.isfinite(x))[0])
    return UsageError(
        f"observation {first[0]} has {x[first]} at {list(first[1:])}",
        hint="check the observations that the environment returns",
    )


def _is_within(x: Array, low: Array, high: Array) -> bool:
    """Whether all numbers are in the range. For few numbers the sum is faster than `all`."""
    return int(np.count_nonzero((x >= low) & (x <= high))) == x.size


def _count_outside(x: Array, ends: tuple[Array, Array]) -> int:
    """The number of observations with a number outside the range."""
    outside = (x < ends[0]) | (x > ends[1])
    return int(outside.reshape(len(x), -1).any(-1).sum())


def _held_range(low: Array, high: Array) -> tuple[Array, Array]:
    power = power_above(np.stack([low, high])).astype(np.float32)
    return -power, power
