"""The study: returns of a policy with fewer bits, and its difference from the float policy.

QuaRL (Lam et al., 2019), tables 1 and 2 of it and of ActorQ (Krishnan et al., 2022).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from types import MappingProxyType

import numpy as np

from qgraph.choices import PackedForm
from qgraph.ir.types import Array
from qgraph.progress import Progress, silent
from qgraph.rl.actor.program import ActorProgram, Weights
from qgraph.rl.head import Head
from qgraph.rl.policy.affine import FLOAT, HALF, Simulated
from qgraph.rl.policy.build import STATIC_BITS, pack
from qgraph.rl.policy.play import Outputs, Returns, play, sequences_of, watch, watch_episodes
from qgraph.rl.policy.policy import Policy
from qgraph.rl.policy.read import PolicyNetwork
from qgraph.rl.policy.recurrent_outputs import ProgramRunner, played
from qgraph.rl.policy.shift import Shift, frequencies, shift

Way = Callable[[ActorProgram, Weights, int], ProgramRunner]


def _as_actors_run_it(program: ActorProgram, weights: Weights, bits: int) -> ProgramRunner:
    from qgraph.rl.actor import Actor, Packer, end_bits

    return Actor(Packer(program, bits, *end_bits(program, bits)).pack(weights))


def calibration(
    network: PolicyNetwork, head: Head, environment: str, steps: int, seed: int
) -> Array:
    """The observations of the float policy: [n, *shape], or sequences for a recurrent policy."""
    floating = played(network.program, Simulated(network.program, network.weights))
    if not network.states:
        return watch(environment, floating, head, steps, seed)
    episodes = watch_episodes(environment, floating, head, steps, seed)
    return sequences_of(episodes, network.program.observed, network.shape)


WAYS: Mapping[str, Way] = MappingProxyType(
    {
        # weights and activations, simulated in float
        "papers": Simulated.of,
        # weights alone
        "weights": lambda program, weights, bits: Simulated.of(program, weights, bits, FLOAT),
        # packed weights, 8-bit activations if weights have 8 bits or fewer; ends as in training
        "actor": _as_actors_run_it,
    }
)


# Ways that are used on request only: packed like `qgraph rl quantize`, on observations.
PACKED_FORMS = DYNAMIC, STATIC = tuple(PackedForm)
# Bits of packed forms; the papers' arithmetic allows 9 to 15 too.
PACKED: Mapping[str, Sequence[int]] = MappingProxyType(
    {"actor": (*STATIC_BITS, HALF), DYNAMIC: (*STATIC_BITS, HALF), STATIC: STATIC_BITS}
)
CALIBRATION, CALIBRATION_SEED = 4096, 100_000  # steps for calibration, and their first seed


@dataclass(frozen=True)
class StudyRow:
    """The result of one way with some bits. `change` of the mean return is relative to float."""

    way: str
    bits: int
    returns: Returns
    change: float
    change_error: float
    shift: Shift
    frequencies: Array  # of actions, as `qgraph.rl.policy.shift.frequencies` counts them

    def as_json(self) -> dict[str, object]:
        return {
            "way": self.way,
            "bits": self.bits,
            "return": self.returns.mean,
            "return_error": self.returns.error,
            "change": self.change,
            "change_error": self.change_error,
            **asdict(self.shift),
        }


@dataclass(frozen=True)
class Study:
    """A float policy and its forms with fewer bits, on the same episodes and observations."""

    environment: str
    head: Head
    episodes: int
    first_seed: int
    steps: int
    floating: Returns
    frequencies: Array
    rows: tuple[StudyRow, ...]

    def as_json(self) -> dict[str, object]:
        return {
            "environment": self.environment,
            "head": self.head.as_json(),
            "episodes": self.episodes,
            "first_seed": self.first_seed,
            "steps": self.steps,
            "float": {"return": self.floating.mean, "return_error": self.floating.error},
            "rows": [row.as_json() for row in self.rows],
        }


@dataclass(frozen=True)
class PolicyForm:
    """A quantized form of a policy, with its name."""

    way: str
    bits: int
    policy: Outputs


def forms(
    network: PolicyNetwork,
    bits: Sequence[int],
    ways: Sequence[str] = tuple(WAYS),
    head: Head | None = None,
    environment: str | None = None,
) -> Iterator[PolicyForm]:
    """Each of `ways` with each of `bits`, except 32, which is the float policy.

    A way skips bits that it does not support. `dynamic` and `static` are packed with observations
    of the float policy, and need a head and an environment.
    Raises UnsupportedError for a policy without a static form.
    """
    program, weights = network.program, network.weights
    for way in [way for way in ways if way in WAYS]:
        for b in [b for b in bits if b in PACKED.get(way, range(FLOAT))]:
            yield PolicyForm(way, b, played(program, WAYS[way](program, weights, b)))
    packed = [way for way in ways if way in PACKED_FORMS]
    if packed and head is not None and environment is not None:
        seen = calibration(network, head, environment, CALIBRATION, CALIBRATION_SEED)
        for way in packed:
            for b in [b for b in bits if b in PACKED[way]]:
                yield PolicyForm(way, b, Policy(pack(network, head, b, way, seen)).played)


def study(
    floating: Outputs,
    forms: Iterable[PolicyForm],
    head: Head,
    environment: str,
    *,
    episodes: int = 100,
    first_seed: int = 0,
    steps: int = 5000,
    progress: Progress = silent,
) -> Study:
    """Play episodes with a float policy and each of its forms, from the same seeds.

    Actions are compared on observations of the float policy, from `steps` steps. Raises UsageError
    for an unknown environment.
    """
    seeds = range(first_seed, first_seed + episodes)
    baseline = play(environment, floating, head, seeds, progress, "float")
    seen = watch(environment, floating, head, steps, first_seed)
    wanted = np.asarray(floating(seen))
    rows = []
    for form in forms:
        stage = f"{form.way}, {form.bits} bits"
        returns = play(environment, form.policy, head, seeds, progress, stage)
        found = np.asarray(form.policy(seen))
        taken = frequencies(head, head.actions(found), wanted.shape[1])
        change = returns.change_from(baseline)
        apart = shift(head, wanted, found)
        rows.append(StudyRow(form.way, form.bits, returns, *change, apart, taken))
    taken = frequencies(head, head.actions(wanted), wanted.shape[1])
    return Study(environment, head, episodes, first_seed, steps, baseline, taken, tuple(rows))
