"""Settings of a run, as values. What is not said is by the algorithm and the task."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from types import MappingProxyType
from typing import Any

from qgraph.errors import UsageError
from qgraph.rl.correct import Correction
from qgraph.rl.environments import ATARI
from qgraph.rl.environments.dm_control import DM_CONTROL, PIXELS
from qgraph.rl.half.methods import PRECISIONS, check_methods

ALGORITHMS = ("dqn", "d4pg", "sac", "impala")
AT_LEAST_ONE = (
    "steps", "actors", "n", "batch", "least", "capacity", "target_period",
    "actor_update_period", "publish_every", "evaluate_every", "episodes", "explore_hold",
    "replicas",
)  # fmt: skip
BITS = (32, 16, *range(2, 9))
# What not all algorithms look at: how it is said, and those that do.
OWN: Mapping[str, tuple[str, tuple[str, ...]]] = MappingProxyType(
    {
        "layer_norm": ("--layer-norm", ("dqn", "d4pg", "impala")),
        "half": ("--mixed-bfloat16", ("dqn", "d4pg", "impala")),
        "alpha": ("--prioritized", ("dqn", "d4pg", "sac")),
        "double": ("--no-double", ("dqn",)),
        "dueling": ("--dueling", ("dqn",)),
        "entropy": ("--entropy", ("impala",)),
        "value": ("--value", ("impala",)),
        "replicas": ("--replicas", ("impala",)),
        "reward_scale": ("--reward-scale", ("impala", "sac")),
        "tau": ("tau", ("sac",)),
    }
)


@dataclass(frozen=True)
class Options:
    """Steps are those of all actors together, unless said otherwise.

    actor_bits          of weights, as actors compute; broadcast_bits: as they come to them
    first_bits          of the first layer, last_bits: of the last; None: `sources.packed_bits`
    n                   steps of a transition, or of a trajectory (impala)
    correct             of what compressed policies did (`qgraph.rl.correct`), by impala
    entropy, value      what both weigh in impala's loss
    reward_scale        impala, sac: what rewards are multiplied by. Weights of impala's loss fit
                        rewards of about 1 in 100 steps
    replicas            devices that share a batch of impala's learner
    spi                 samples per insert: how often a transition is sampled on average
    least               transitions before learning begins
    target_period       learner steps between copies to the target network
    explore             epsilon: the last one, of a ladder over actors; sigma: the largest
    explore_steps       over which epsilon falls
    explore_hold        steps that a random action is held on average
    alpha               0: uniform replay; above: by priority ** alpha
    publish_every       learner steps between policies handed to the quantizer
    actor_update_period steps of an actor between looks for a new policy
    synchronous         at each look it waits until it has the newest
    on_demand           policies are packed when an actor asks
    quantizer           a process of its own packs policies; else the learner does
    in_process          actors take turns in the learner's process
    ray                 address of a Ray cluster that actors are on, "" where they are here
    nodes               of the cluster, which share the actors
    tau                 sac: share of the critics that their average takes, each target_period
    precision           sac: what is stored and computed in (`half.methods.PRECISIONS`)
    methods             sac: what float16 needs (`half.methods.METHODS`)
    significand         sac: bits that numbers are rounded to, 1 to 10; None for those of the type
    energy              codecarbon estimates what the run takes
    compress            the chain that makes policies for actors (`qgraph.rl.compress`), "" for none
    monitor             the strategy that steers it, "" for none
    monitor_every       policies between its looks
    evaluate_every      learner steps between evaluations of the full-precision policy
    """

    algorithm: str
    environment: str
    steps: int
    seed: int = 0
    actors: int = 1
    actor_bits: int = 32
    broadcast_bits: int = 32
    first_bits: int | None = None
    last_bits: int | None = None
    actor_update_period: int = 100
    publish_every: int = 10
    synchronous: bool = False
    on_demand: bool = False
    quantizer: bool = True
    in_process: bool = False
    ray: str = ""
    nodes: int = 1
    hidden: tuple[int, ...] = (256, 256)
    layer_norm: bool = False
    half: bool = False
    n: int = 5
    gamma: float = 0.99
    batch: int = 256
    spi: float = 32.0
    least: int = 1000
    capacity: int = 1_000_000
    rate: float = 1e-4
    target_period: int = 100
    explore: float = 0.05
    explore_steps: int = 0
    explore_hold: int = 1
    alpha: float = 0.0
    double: bool = True
    dueling: bool = False
    critic: tuple[int, ...] = (512, 512, 256)
    atoms: int = 51
    value_limit: float = 150.0
    tau: float = 0.005
    reward_scale: float = 1.0
    precision: str = "float32"
    methods: tuple[str, ...] = ()
    significand: int | None = None
    correct: str = "none"
    entropy: float = 0.02
    value: float = 0.25
    replicas: int = 1
    evaluate_every: int = 1000
    episodes: int = 10
    energy: bool = False
    compress: str = ""
    monitor: str = ""
    monitor_every: int = 10

    def __post_init__(self) -> None:
        if self.algorithm not in ALGORITHMS:
            raise UsageError(
                f"no algorithm is called `{self.algorithm}`", hint=f"one of {', '.join(ALGORITHMS)}"
            )
        for name in ("actor_bits", "broadcast_bits", "first_bits", "last_bits"):
            if getattr(self, name) not in (None, *BITS):
                raise UsageError(f"{name} is {getattr(self, name)}; it can be 32, 16 or 8 to 2")
        if self.actor_bits != self.broadcast_bits and (self.first_bits or self.last_bits):
            raise UsageError(
                "first and last layers have bits of their own only where actors compute in the "
                "bits that come by broadcast",
                hint="leave --broadcast-bits out",
            )
        for name in AT_LEAST_ONE:
            if getattr(self, name) < 1:
                raise UsageError(f"{name} is {getattr(self, name)}, but has to be at least 1")
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
        for name in ("rate", "spi", "value_limit"):
            if not 0 < getattr(self, name) < math.inf:
                raise UsageError(f"{name} is {getattr(self, name)}; it is a finite number above 0")
        for name in ("gamma", "explore", "alpha"):
            if not 0 <= getattr(self, name) <= 1:
                raise UsageError(f"{name} is {getattr(self, name)}; it is 0 to 1")
        if min(*self.hidden, *self.critic, 1) < 1:
            raise UsageError(f"layers of {self.hidden} and {self.critic}: units are 1 or more")
        if self.atoms < 2 or self.seed < 0:
            raise UsageError(f"atoms {self.atoms}, seed {self.seed}; they are from 2 and from 0")
        if not 0 < self.tau <= 1:
            raise UsageError(f"tau is {self.tau}; it is a share, above 0 to 1")
        self._check_own()
        self._check_precision()
        if self.compress or self.monitor or self.monitor_every != Options.monitor_every:
            check_compression(self)
        if self.steps <= self.least and not self.queued:
            raise UsageError(
                f"of {self.steps} steps none is learnt from: it begins after {self.least}",
                hint=f"more --steps than {self.least}",
            )
        if self.least > self.capacity:
            raise UsageError(f"least is {self.least}, but capacity only {self.capacity}")
        if self.queued:
            self._check_queued()
        elif self.correct != "none":
            raise UsageError(
                f"{self.algorithm} corrects nothing", hint="--correct is for --algo impala"
            )

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
                f"spi is {self.spi:g}, but {self.algorithm} learns from each step once"
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
        """What an algorithm would not look at is not taken from a user."""
        usual = {part.name: part.default for part in fields(self)}
        for name, (said, takers) in OWN.items():
            if self.algorithm not in takers and getattr(self, name) != usual[name]:
                raise UsageError(
                    f"{self.algorithm} has no use for {said}", hint=f"it is for {', '.join(takers)}"
                )

    def _check_precision(self) -> None:
        if self.precision not in PRECISIONS:
            raise UsageError(f"no precision is called `{self.precision}`")
        check_methods(self.methods)
        if self.significand is not None and not 1 <= self.significand <= 10:
            raise UsageError(f"significand is {self.significand}; it can be 1 to 10")
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


# What a task needs beyond its algorithm: exploration and length, mostly.
OF_ALGORITHMS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "dqn": {
            "steps": 40_000,
            "hidden": (256, 256),
            "batch": 128,
            "spi": 64.0,
            "rate": 5e-4,
            "explore_steps": 10_000,
            "capacity": 100_000,
        },
        "d4pg": {
            "steps": 40_000,
            "hidden": (256, 256, 256),
            "batch": 256,
            "spi": 64.0,
            "rate": 1e-4,
            "explore": 0.2,
            "episodes": 5,
        },
        # Of pytorch_sac, but for networks, batches and the rate. It maps log-deviations into -5..2
        # by tanh; here they are clipped to that.
        "sac": {
            "steps": 40_000,
            "hidden": (256, 256),
            "critic": (256, 256),
            "batch": 256,
            "spi": 256.0,
            "rate": 3e-4,
            "n": 1,
            "target_period": 2,
            "actor_update_period": 1,
            "publish_every": 1,
            "episodes": 5,
        },
        # Table 5 of AcceRL.
        "impala": {
            "steps": 400_000,
            "hidden": (256, 256),
            "n": 5,
            "batch": 160,
            "spi": 1.0,
            "rate": 3e-4,
            "correct": "vtrace,is",
            "publish_every": 1,
            "actor_update_period": 5,
            "evaluate_every": 250,
        },
    }
)
OF_TASKS: Mapping[tuple[str, str], Mapping[str, Any]] = MappingProxyType(
    {
        # Nobody gets up there by trembling.
        ("dqn", "MountainCar-v0"): {"explore_steps": 20_000, "explore_hold": 20},
        # Values of 1600 would have a step of 1 in float16.
        ("sac", "Pendulum-v1"): {"reward_scale": 0.1, "rate": 1e-3, "steps": 10_000},
        # Eight rewards in each step.
        ("sac", "dm_control:cartpole-swingup:held"): {
            "reward_scale": 0.1,
            "rate": 1e-3,
            "steps": 12_000,
        },
        # Rewards of up to eight.
        ("sac", PIXELS): {"reward_scale": 0.1, "rate": 1e-3},
        # A reward in each step, 100 to come; once it balances, advantages are small beside entropy.
        ("impala", "CartPole-v1"): {
            "steps": 200_000,
            "hidden": (64, 64),
            "layer_norm": True,
            "reward_scale": 0.05,
            "entropy": 0.005,
        },
        # Settings of the papers, with fewer frames.
        ("dqn", ATARI): {
            "steps": 1_000_000,
            "hidden": (512,),
            "batch": 32,
            "spi": 8.0,
            "n": 3,
            "rate": 1e-4,
            "explore_steps": 250_000,
            "capacity": 50_000,  # 56 kB each
            "least": 10_000,
            "target_period": 2000,
            "alpha": 0.6,
            "dueling": True,
            "evaluate_every": 10_000,
            "episodes": 3,
        },
    }
)


def kind_of(environment: str) -> str:
    """Its name in OF_TASKS: all Atari games have one, and all images of dm_control."""
    if environment.startswith(ATARI):
        return ATARI
    images = environment.startswith(DM_CONTROL) and environment.endswith(PIXELS)
    return PIXELS if images else environment


def options_for(algorithm: str, environment: str, **given: Any) -> Options:
    """The settings of an algorithm and a task, and over them what is given (and not None)."""
    if algorithm not in ALGORITHMS:
        raise UsageError(
            f"no algorithm is called `{algorithm}`", hint=f"one of {', '.join(ALGORITHMS)}"
        )
    of_task = OF_TASKS.get((algorithm, kind_of(environment)), {})
    settings = {**OF_ALGORITHMS[algorithm], **of_task}
    said = {name: value for name, value in given.items() if value is not None}
    if "actor_bits" in said:
        said.setdefault("broadcast_bits", said["actor_bits"])
    found = Options(algorithm, environment, **{**settings, **said})
    Correction.parse(found.correct)  # raises UsageError
    return found
