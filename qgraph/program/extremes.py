"""Samples of a place in which implementations of arithmetic may differ.

These are ties of each rounding, codes beyond both ends of each range, and the largest sums. Sums
are found by random trials; then an input with this sum is computed. Every sample is run, and is
kept only if its codes reach the goal.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from qgraph.ir.types import Codes
from qgraph.program.ops import ClipAttrs, RequantizeAttrs
from qgraph.program.ops.layout import PerChannel
from qgraph.program.places import Place, codes_at, weights_of
from qgraph.program.program import Step, Tensor
from qgraph.program.run import run

GOALS = ("tie above an even code", "tie above an odd code", "below the range", "above the range")
Limits = RequantizeAttrs | ClipAttrs
MAX_TRIAL_ELEMENTS = 1 << 17  # largest number of elements of a tensor in a trial
ATTEMPTS = 24
MAX_CODE_CHANGE = 1 << 15  # largest change of a code when a sum is adjusted


@dataclass(frozen=True)
class Extreme:
    """One sample of a place: its goal, with the tensor, the channel and the code that reach it.

    `before` is the input code of the step that computes `tensor`, `after` its output code.
    """

    goal: str
    tensor: str
    channel: int
    before: int
    after: int
    entries: Mapping[str, Codes]


@dataclass(frozen=True)
class Unreached:
    """A goal without a sample, and the reason."""

    goal: str
    tensor: str
    why: str


def extremes(place: Place, seed: int = 0) -> tuple[list[Extreme], list[Unreached]]:
    """Samples for every rounding and range of a layer, and for its sums; equal for equal seeds."""
    search = _ExtremeSearch(place, np.random.default_rng(seed))
    search.sums()
    for step in place.layer.steps:
        if isinstance(step.attrs, RequantizeAttrs | ClipAttrs):
            search.step(step, step.attrs)
    return search.found, search.missing


class _ExtremeSearch:
    def __init__(self, place: Place, rng: np.random.Generator) -> None:
        self.place, self.rng, self.chain = place, rng, place.chain
        self.tensors = place.program.tensors
        self.found: list[Extreme] = []
        self.missing: list[Unreached] = []
        self.head = place.layer.head.output
        if place.sums:
            self.low, self.high = place.codes
            self.rest = min(max(0, self.low), self.high)
            self.weights, self.where = weights_of(place)
        self.tried = self._tried()
        self.values = run(self.chain, self.tried, [*self.chain.tensors])

    # -- trials -----------------------------------------------------------------------------

    def _tried(self) -> dict[str, Codes]:
        channels = self.tensors[self.head].shape[-1]
        count = max(64, min(1 << 14, MAX_TRIAL_ELEMENTS // channels))
        tried = {}
        for entry in self.chain.entries:
            tensor = self.chain.tensors[entry.tensor]
            low, high = self._reach(tensor)
            shape = (count, *tensor.shape[1:])
            codes = self._spread(shape, low, high)
            if tensor.name == self.head and self.place.sums:
                codes = self._ties(codes)
            tried[tensor.name] = np.clip(codes, low, high)
        return tried

    def _reach(self, tensor: Tensor) -> tuple[Codes, Codes]:
        """Range of each channel."""
        if tensor.name != self.head or not self.place.sums:
            return np.asarray(tensor.low), np.asarray(tensor.high)
        up, down = np.maximum(self.weights, 0).sum(0), np.minimum(self.weights, 0).sum(0)
        return up * self.low + down * self.high, up * self.high + down * self.low

    def _spread(self, shape: tuple[int, ...], low: Codes, high: Codes) -> Codes:
        """Draw codes of every magnitude: as many between 2^k and 2^(k+1) for each k."""
        power = self.rng.uniform(0, np.log2(np.maximum(np.maximum(-low, high), 1) + 1.0), shape)
        codes = np.floor(np.exp2(power)).astype(np.int64) * self.rng.choice([-1, 0, 1, 1], shape)
        codes[0], codes[1], codes[2] = low, high, 0
        return np.asarray(codes)

    def _ties(self, codes: Codes) -> Codes:
        """Change half of the codes to ties of the step after the sums."""
        users = [s for s in self.place.layer.steps if self.head in s.inputs]
        attrs = users[0].attrs if users else None
        if not isinstance(attrs, RequantizeAttrs):
            return codes
        shift = np.clip(np.asarray(attrs.shift, np.int64), 0, 62)
        half = np.where(shift > 0, np.int64(1) << np.maximum(shift - 1, 0), 0)
        moved = (codes >> shift << shift) + half
        return np.where(self.rng.random(codes.shape) < 0.5, moved, codes)

    # -- goals ----------------------------------------------------------------------------------

    def sums(self) -> None:
        """The largest and the smallest sum, in the channel with the largest magnitude."""
        if not self.place.sums:
            return
        lows, highs = self._reach(self.tensors[self.head])
        for goal, channel, ends in (
            ("largest sum", int(highs.argmax()), (self.low, self.high)),
            ("smallest sum", int(lows.argmin()), (self.high, self.low)),
        ):
            window = self._window()
            weights = self.weights[:, channel]
            picked = np.where(weights > 0, ends[1], ends[0])
            window[self.where[:, channel]] = np.where(weights == 0, self.rest, picked)
            wanted = int((highs if goal == "largest sum" else lows)[channel])
            entries = self._entries(window, {n: c[:1] for n, c in self.tried.items()})
            values = run(self.place.program, entries, [self.head])
            reached = int(codes_at(values, self.head, channel)[0])
            assert reached == wanted, (goal, reached, wanted)
            self.found.append(Extreme(goal, self.head, channel, reached, reached, entries))

    def step(self, step: Step, attrs: Limits) -> None:
        """Ties and both ends of one step."""
        before, channels = self.values[step.inputs[0]], self.tensors[step.output].shape[-1]
        for goal in GOALS if isinstance(attrs, RequantizeAttrs) else GOALS[2:]:
            why = self._impossible(step, attrs, goal)
            hits = np.argwhere(_shows(attrs, goal, before).reshape(len(before), -1))
            if why is None and not self._take(
                step, attrs, goal, hits[self.rng.permutation(len(hits))]
            ):
                why = f"none of {before.size} codes tried reaches it, over {channels} channels"
            if why is not None:
                self.missing.append(Unreached(goal, step.output, why))

    def _take(self, step: Step, attrs: Limits, goal: str, hits: Codes) -> bool:
        for row, channel in hits[:ATTEMPTS]:
            kept = {n: c[row : row + 1] for n, c in self.tried.items()}
            entries = kept
            if self.place.sums:
                sum_ = int(codes_at(kept, self.head, channel)[0])
                entries = self._entries(self._solved(sum_, channel), kept)
            values = run(self.place.program, entries, [step.inputs[0], step.output])
            before = int(codes_at(values, step.inputs[0], channel)[0])
            if _shows(attrs, goal, values[step.inputs[0]]).reshape(-1)[channel]:
                after = int(codes_at(values, step.output, channel)[0])
                self.found.append(Extreme(goal, step.output, int(channel), before, after, entries))
                return True
        return False

    def _impossible(self, step: Step, attrs: Limits, goal: str) -> str | None:
        tensor = self.tensors[step.inputs[0]]
        shift = np.asarray(_shift(attrs))
        if goal in GOALS[:2]:
            nothing = "nothing is rounded: the shift is to the left, or zero"
            return nothing if (shift <= 0).all() else None
        ends = np.array([tensor.low, tensor.high]).reshape(2, 1)
        if not _shows(attrs, goal, ends).any():
            return f"its input codes, {tensor.low}..{tensor.high}, stay within its range"
        return None

    # -- inputs ---------------------------------------------------------------------------------

    def _window(self) -> Codes:
        x = self.tensors[self.place.layer.head.inputs[0]]
        return np.full(math.prod(x.shape), self.rest, np.int64)

    def _entries(self, window: Codes, rest: Mapping[str, Codes]) -> dict[str, Codes]:
        """One sample of the place: its window, with 0 in the padding, and its other inputs."""
        x = self.tensors[self.place.layer.head.inputs[0]]
        codes = window.reshape(x.shape)
        if self.place.seen is not True:
            codes = codes * self.place.seen[None, :, :, None]
        others = {e.tensor for e in self.place.program.entries} - {x.name}
        return {x.name: codes, **{n: rest[n] for n in others}}

    def _solved(self, wanted: int, channel: int) -> Codes:
        """A window whose sum in a channel is `wanted`, or close to it."""
        window, weights, where = self._window(), self.weights[:, channel], self.where[:, channel]
        left = wanted - int((window[where] * weights).sum())
        for term in np.argsort(-np.abs(weights), kind="stable"):
            weight, at = int(weights[term]), where[term]
            if weight == 0 or left == 0:
                break
            code = min(max(int(window[at]) + int(left / weight), self.low), self.high)
            left -= (code - int(window[at])) * weight
            window[at] = code
        if left:
            self._settle(window, weights, where, left)
        return window

    def _settle(self, window: Codes, weights: Codes, where: Codes, left: int) -> None:
        """Change two terms so that the sum changes by exactly `left`, if possible."""
        used = np.flatnonzero(weights)
        for _ in range(ATTEMPTS if len(used) > 1 else 0):
            a, b = self.rng.choice(used, 2, replace=False)
            first, second = (int(window[where[term]]) for term in (a, b))
            least = max(self.low - first, -MAX_CODE_CHANGE)
            by = np.arange(least, min(self.high - first, MAX_CODE_CHANGE) + 1)
            rest, odd = np.divmod(left - by * weights[a], weights[b])
            fits = (odd == 0) & (second + rest >= self.low) & (second + rest <= self.high)
            places = np.flatnonzero(fits)
            if len(places):
                window[where[a]], window[where[b]] = first + by[places[0]], second + rest[places[0]]
                return


def _shift(attrs: Limits) -> PerChannel:
    return attrs.shift if isinstance(attrs, RequantizeAttrs) else 0


def _shows(attrs: Limits, goal: str, before: Codes) -> npt.NDArray[np.bool_]:
    """Whether each input code of a step reaches `goal`."""
    shift = np.asarray(_shift(attrs), np.int64)
    if goal in GOALS[:2]:
        right = np.clip(shift, 0, 62)
        half = np.int64(1) << np.maximum(right - 1, 0)
        tie = (right > 0) & (before - (before >> right << right) == half)
        return np.asarray(tie & ((before >> right) % 2 == GOALS.index(goal)))
    shifted = attrs.shifted(before) if isinstance(attrs, RequantizeAttrs) else before
    low, high = attrs.low, attrs.high
    if goal == GOALS[2]:
        return np.zeros(before.shape, bool) if low is None else shifted < np.asarray(low)
    return np.zeros(before.shape, bool) if high is None else shifted > np.asarray(high)


def stacked(place: Place, found: list[Extreme]) -> dict[str, Codes]:
    """The samples as one batch: every tensor of the place."""
    entries = {
        e.tensor: np.concatenate([one.entries[e.tensor] for one in found])
        for e in place.program.entries
    }
    return {**entries, **run(place.program, entries, [s.output for s in place.program.steps])}


def claims_hold(place: Place, found: list[Extreme], codes: Mapping[str, Codes]) -> Iterator[bool]:
    """Yield, for each sample of the batch, whether it reaches its goal."""
    steps = {s.output: s for s in place.layer.steps}
    for row, one in enumerate(found):
        step = steps[one.tensor]
        source = one.tensor if one.goal.endswith("sum") else step.inputs[0]
        before = codes_at(codes, source, one.channel)[row]
        after = codes_at(codes, one.tensor, one.channel)[row]
        shown = one.goal.endswith("sum") or bool(
            isinstance(step.attrs, RequantizeAttrs | ClipAttrs)
            and _shows(step.attrs, one.goal, codes[source][row : row + 1]).reshape(-1)[one.channel]
        )
        yield bool(shown and before == one.before and after == one.after)
