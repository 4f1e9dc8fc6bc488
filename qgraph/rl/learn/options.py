"""Settings of a run, as values. Unset fields take defaults from the algorithm and the task."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from qgraph.errors import UsageError
from qgraph.rl.half.methods import PRECISIONS, check_methods
from qgraph.rl.learn.setting import (
    AT_LEAST_ONE,
    NOT_NEGATIVE,
    POSITIVE,
    SHARE,
    Within,
    check_value,
    setting,
    settings_of,
)

ALGORITHMS = ("dqn", "d4pg", "sac", "impala")
REPLAYED = ("dqn", "d4pg", "sac")  # algorithms that sample from a replay
BITS = (32, 16, *range(8, 1, -1))
BY_TASK = "by algorithm and task"
COMPRESSION = "Compression"


@dataclass(frozen=True)
class Options:
    """Each setting is declared once: its default, meaning, range and option.

    The command line and `options_for` are derived from these fields. Raises UsageError for values
    out of range, and for what an algorithm does not look at.
    """

    algorithm: str
    environment: str
    steps: int = setting(
        40_000, "Steps of all actors together.", AT_LEAST_ONE, metavar="N", usual=BY_TASK
    )
    actors: int = setting(1, "Actors.", AT_LEAST_ONE, metavar="N")
    actor_bits: int = setting(
        32, "Bits of weights as actors compute: 32, 16, 8 to 2.", choices=BITS, metavar="BITS"
    )
    broadcast_bits: int = setting(
        32, "Bits of weights on their way to actors.", choices=BITS, metavar="BITS",
        usual="--actor-bits",
    )  # fmt: skip
    first_bits: int | None = setting(
        None, "Bits of the first layer.", choices=(None, *BITS), metavar="BITS",
        usual="16 for vectors where the others have 8 or fewer",
    )  # fmt: skip
    last_bits: int | None = setting(
        None, "Bits of the last layer.", choices=(None, *BITS), metavar="BITS",
        usual="16 where the others have 8 or fewer",
    )  # fmt: skip
    spi: float = setting(
        32.0, "Samples per insert: how often a transition is learnt from on average.", POSITIVE,
        metavar="RATIO", usual=BY_TASK,
    )  # fmt: skip
    least: int = setting(
        1000, "Transitions in the replay before learning starts.", AT_LEAST_ONE, takers=REPLAYED,
        metavar="N", usual=BY_TASK,
    )  # fmt: skip
    capacity: int = setting(
        1_000_000, "Transitions that the replay holds.", AT_LEAST_ONE, takers=REPLAYED,
        metavar="N", usual=BY_TASK,
    )  # fmt: skip
    actor_update_period: int = setting(
        100, "Steps of an actor between looks for a new policy.", AT_LEAST_ONE, metavar="STEPS",
        usual=BY_TASK,
    )  # fmt: skip
    publish_every: int = setting(
        10, "Learner steps between policies handed to the quantizer.", AT_LEAST_ONE,
        metavar="STEPS", usual=BY_TASK,
    )  # fmt: skip
    synchronous: bool = setting(
        False, "Actors wait for the newest policy.", flags="--sync/--async", parameter="sync"
    )
    on_demand: bool = setting(
        False, "Policies are packed when an actor asks.", flags="--pull/--push", parameter="pull"
    )
    quantizer: bool = setting(
        True, "A process of its own packs policies; else the learner does.",
        flags="--quantizer/--no-quantizer",
    )  # fmt: skip
    in_process: bool = setting(
        False, "Actors take turns in this process: one seed gives one result.",
        flags="--in-process/--processes",
    )  # fmt: skip
    ray: str = setting(
        "", "Address of a Ray cluster that actors run on; `auto` finds the local one.",
        metavar="ADDRESS", usual="here",
    )  # fmt: skip
    nodes: int = setting(1, "Cluster nodes to spread actors over.", AT_LEAST_ONE, metavar="N")
    double: bool = setting(
        True, "Double Q-learning.", takers=("dqn",), flags="--double/--no-double"
    )
    dueling: bool = setting(
        False, "Dueling heads.", takers=("dqn",), flags="--dueling/--no-dueling", usual=BY_TASK
    )
    alpha: float = setting(
        0.0, "Exponent of priorities in replay; 0 samples uniformly.", SHARE, takers=REPLAYED,
        said="--prioritized", metavar="EXPONENT", usual=BY_TASK,
    )  # fmt: skip
    n: int = setting(
        5, "Steps of a transition, or of a trajectory (impala).", AT_LEAST_ONE, metavar="STEPS",
        usual=BY_TASK,
    )  # fmt: skip
    gamma: float = setting(0.99, "Discount of a step.", SHARE, metavar="FACTOR")
    correct: str = setting(
        "none", "Correction for the actors' other policy: vtrace, retrace, tree_backup, is; with "
        "constants, like vtrace(rho=1,c=0.9).",
        takers=("impala",), metavar="LIST", usual="vtrace,is",
    )  # fmt: skip
    entropy: float = setting(
        0.02, "Weight of the entropy in the loss.", NOT_NEGATIVE, takers=("impala",),
        metavar="WEIGHT", usual=BY_TASK,
    )  # fmt: skip
    value: float = setting(
        0.25, "Weight of the critic's loss.", NOT_NEGATIVE, takers=("impala",), metavar="WEIGHT"
    )
    replicas: int = setting(
        1, "GPUs that share the learner's batch.", AT_LEAST_ONE, takers=("impala",), metavar="N"
    )
    reward_scale: float = setting(
        1.0, "Factor of rewards in learning.", POSITIVE, takers=("impala", "sac"),
        metavar="FACTOR", usual=BY_TASK,
    )  # fmt: skip
    reward_clip: float = setting(
        0.0, "Rewards are clipped to plus and minus this in learning; 0 leaves them. Returns "
        "count what the environment gives.",
        NOT_NEGATIVE, metavar="NUMBER", usual="1 for Atari, else 0",
    )  # fmt: skip
    hidden: tuple[int, ...] = setting(
        (256, 256), "Units of the policy's hidden layers: 256,256.", AT_LEAST_ONE,
        metavar="UNITS", usual=BY_TASK,
    )  # fmt: skip
    layer_norm: bool = setting(
        False, "Normalize after the first layer.", takers=("dqn", "d4pg", "impala"),
        flags="--layer-norm/--no-layer-norm", usual=BY_TASK,
    )  # fmt: skip
    critic: tuple[int, ...] = setting(
        (512, 512, 256), "Units of the critic's hidden layers.", AT_LEAST_ONE,
        takers=("d4pg", "sac"), metavar="UNITS", usual=BY_TASK,
    )  # fmt: skip
    atoms: int = setting(
        51, "Atoms of the critic's distribution.", Within(2), takers=("d4pg",), metavar="N"
    )
    value_limit: float = setting(
        150.0, "The critic's distribution reaches from minus to plus this.", POSITIVE,
        takers=("d4pg",), metavar="NUMBER",
    )  # fmt: skip
    rate: float = setting(1e-4, "Adam learning rate.", POSITIVE, metavar="RATE", usual=BY_TASK)
    batch: int = setting(
        256, "Transitions, or steps (impala), of a batch.", AT_LEAST_ONE, metavar="N",
        usual=BY_TASK,
    )  # fmt: skip
    target_period: int = setting(
        100, "Learner steps between updates of the target network.", AT_LEAST_ONE,
        takers=REPLAYED, metavar="STEPS", usual=BY_TASK,
    )  # fmt: skip
    tau: float = setting(
        0.005, "Share of the critics in an update of their average.", Within(above=0, high=1),
        takers=("sac",), metavar="SHARE",
    )  # fmt: skip
    explore: float = setting(
        0.05, "dqn: the last epsilon of a ladder over actors; d4pg: the largest sigma.", SHARE,
        takers=("dqn", "d4pg"), metavar="NUMBER", usual=BY_TASK,
    )  # fmt: skip
    explore_steps: int = setting(
        0, "Steps over which epsilon falls.", NOT_NEGATIVE, takers=("dqn",), metavar="STEPS",
        usual=BY_TASK,
    )  # fmt: skip
    explore_hold: int = setting(
        1, "Steps that a random action is held on average.", AT_LEAST_ONE, takers=("dqn",),
        metavar="STEPS", usual=BY_TASK,
    )  # fmt: skip
    half: bool = setting(
        False, "Products in bfloat16.", takers=("dqn", "d4pg", "impala"),
        flags="--mixed-bfloat16/--float32", parameter="mixed_bfloat16",
    )  # fmt: skip
    precision: str = setting(
        "float32", "What is stored and computed in.", choices=PRECISIONS, flags=""
    )
    methods: tuple[str, ...] = setting((), "What learning in float16 needs.", flags="")
    significand: int | None = setting(
        None, "sac: significand bits that numbers are rounded to.", Within(1, 10), metavar="BITS",
        usual="10 with --half",
    )  # fmt: skip
    evaluate_every: int = setting(
        1000, "Learner steps between evaluations of the full-precision policy.", AT_LEAST_ONE,
        metavar="STEPS", usual=BY_TASK,
    )  # fmt: skip
    episodes: int = setting(
        10, "Episodes of an evaluation.", AT_LEAST_ONE, metavar="N", usual=BY_TASK
    )
    energy: bool = setting(
        False, "Estimate the energy of the run with codecarbon.", flags="--energy/--no-energy"
    )
    compress: str = setting(
        "", "Links that compress policies on their way to actors: 'prune(0.5)|quantize(8)'.",
        metavar="LINKS", usual="nothing", panel=COMPRESSION,
    )  # fmt: skip
    monitor: str = setting(
        "", "Strategy that steers compression: kl_max:14, reward_gap:10, mix:0.5, growth, watch.",
        metavar="STRATEGY", usual="none", panel=COMPRESSION,
    )  # fmt: skip
    monitor_every: int = setting(
        10, "Policies between looks of the monitor.", AT_LEAST_ONE, metavar="N",
        panel=COMPRESSION,
    )  # fmt: skip
    seed: int = setting(0, "Seed of the run.", NOT_NEGATIVE, metavar="N")

    def __post_init__(self) -> None:
        check_algorithm(self.algorithm)
        for name, default, declared in settings_of(Options):
            check_value(name, getattr(self, name), default, declared)
        if self.actor_bits != self.broadcast_bits and (self.first_bits or self.last_bits):
            raise UsageError(
                "first and last layers have bits of their own only where actors compute in the "
                "bits that come by broadcast",
                hint="leave --broadcast-bits out",
            )
        if self.nodes > 1 and (not self.ray or self.nodes > self.actors):
            where = f"{self.actors} actors" if self.ray else "no Ray cluster (--ray)"
            raise UsageError(f"{self.nodes} nodes for {where}")
        if not self.quantizer and (self.ray or self.on_demand or self.compress):
            raise UsageError(
                "without a quantizer the learner packs for actors on this machine, all that it "
                "publishes: not on Ray, on demand or by a chain"
            )
        if self.ray and self.in_process:
            raise UsageError("actors are in this process or on a Ray cluster, not both")
        self._check_own()
        self._check_precision()
        if self.compress or self.monitor or self.monitor_every != Options.monitor_every:
            check_compression(self)
        if self.steps <= self.least and not self.queued:
            raise UsageError(
                f"--steps {self.steps} is too few: learning starts after {self.least} steps",
                hint=f"more --steps than {self.least}, or a smaller --least",
            )
        if self.least > self.capacity:
            raise UsageError(f"--least is {self.least}, but --capacity only {self.capacity}")
        if self.queued:
            self._check_queued()

    @property
    def queued(self) -> bool:
        """Whether trajectories are learnt from once, in order, and not sampled from a replay."""
        return self.algorithm == "impala"

    @property
    def steps_of_a_record(self) -> int:
        """Trajectories are put together by the learner, out of single steps."""
        return 1 if self.queued else self.n

    def _check_queued(self) -> None:
        if self.spi != 1:
            raise UsageError(
                f"--spi is {self.spi:g}, but {self.algorithm} learns from each step once"
            )
        waiting = self.batch + self.actors * (self.n - 1)  # of each actor a part of a trajectory
        if self.steps < waiting:
            raise UsageError(
                f"of {self.steps} steps none is learnt from: a batch is {self.batch}, and "
                f"{self.actors} actors may each have begun another trajectory",
                hint=f"--steps {waiting} or more",
            )
        share = self.n * self.replicas
        if self.batch % share:
            each = f" for each of {self.replicas} replicas" if self.replicas > 1 else ""
            raise UsageError(
                f"a batch of {self.batch} steps is no whole number of trajectories of "
                f"{self.n}{each}",
                hint=f"--batch {self.batch // share * share or share}",
            )

    def _check_own(self) -> None:
        """A setting that an algorithm would not look at is refused."""
        for name, default, declared in settings_of(Options):
            takers = declared.takers
            if takers and self.algorithm not in takers and getattr(self, name) != default:
                option = declared.said or declared.option(name)
                off = default is True and "/" in option
                raise UsageError(
                    f"{self.algorithm} has no use for {option.split('/')[-1 if off else 0]}",
                    hint=f"it is for {', '.join(takers)}",
                )

    def _check_precision(self) -> None:
        check_methods(self.methods)
        if self.significand is not None and self.precision not in ("float16", "float32"):
            raise UsageError(f"{self.precision} precision has its own significands")
        plain = self.precision == "float32" and not self.methods and self.significand is None
        if self.algorithm != "sac" and not plain:
            raise UsageError(
                f"{self.algorithm} learns in float32 only", hint="sac learns in float16 too"
            )

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(found: Mapping[str, Any]) -> Options:
        lists = {name: tuple(found[name]) for name in ("hidden", "critic", "methods")}
        return Options(**{**found, **lists})


def check_compression(options: Options) -> None:
    """Raises UsageError for a chain or strategy that is none, or what does not go with them."""
    if not options.compress:
        raise UsageError("a monitor watches compression, and there is none", hint="--compress")
    if not options.compress.strip():
        raise UsageError("--compress names no link", hint="--compress 'quantize(8)'")
    own = (options.actor_bits, options.broadcast_bits, options.first_bits, options.last_bits)
    if own != (32, 32, None, None):
        raise UsageError(
            "bits are a link of --compress", hint="--compress 'prune(0.5)|quantize(8)'"
        )
    if options.synchronous or options.ray:
        with_it = "--sync" if options.synchronous else "--ray"
        raise UsageError(f"--compress does not go with {with_it}")
    from qgraph.rl.compress.settings import Settings

    Settings(options.compress, options.monitor or "watch", options.monitor_every)


def check_algorithm(name: str) -> None:
    """Raises UsageError for an algorithm that is unknown."""
    if name not in ALGORITHMS:
        raise UsageError(f"no algorithm is called `{name}`", hint=f"one of {', '.join(ALGORITHMS)}")


def check_names(given: Iterable[str]) -> None:
    """Raises UsageError for a setting that is unknown, with the names that are near."""
    known = [name for name, _, _ in settings_of(Options)]
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, 3, 0.5)
            hint = f"did you mean {' or '.join(near)}?" if near else f"one of {', '.join(known)}"
            raise UsageError(f"unknown setting `{name}`", hint=hint)


def options_for(algorithm: str, environment: str, **given: Any) -> Options:
    """The settings of an algorithm and a task, replaced by those given that are not None.

    Raises UsageError for settings that are unknown or out of range.
    """
    from qgraph.rl.correct import Correction
    from qgraph.rl.learn.usual import usual_settings

    check_algorithm(algorithm)
    check_names(given)
    said = {name: value for name, value in given.items() if value is not None}
    if "actor_bits" in said:
        said.setdefault("broadcast_bits", said["actor_bits"])
    found = Options(algorithm, environment, **{**usual_settings(algorithm, environment), **said})
    Correction.parse(found.correct)  # raises UsageError
    return found
