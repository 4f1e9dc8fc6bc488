"""The options of `qgraph rl train`."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer


class Algorithm(str, Enum):
    """The learners of `qgraph.rl.learn`."""

    dqn = "dqn"
    d4pg = "d4pg"
    sac = "sac"
    impala = "impala"


BY_TASK = "by algorithm and task"
COMPRESSION = "Compression"

Algo = Annotated[
    Algorithm | None,
    typer.Option(
        metavar="NAME", help="dqn, impala (one of several actions), d4pg or sac (numbers)."
    ),
]
Env = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="CartPole-v1, dm_control:cartpole-balance, ALE/Pong-v5, ..."),
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out", "-o", metavar="DIR", help="The run's directory.", show_default="runs/..."
    ),
]
Steps = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="Steps of all actors together.", show_default=BY_TASK),
]
Actors = Annotated[int | None, typer.Option(min=1, metavar="N", help="Actors.", show_default="1")]
ActorBits = Annotated[
    int | None,
    typer.Option(
        metavar="BITS", help="Of weights, as actors compute: 32, 16, 8 to 2.", show_default="32"
    ),
]
BroadcastBits = Annotated[
    int | None,
    typer.Option(
        metavar="BITS", help="Of weights on their way to actors.", show_default="--actor-bits"
    ),
]
FirstBits = Annotated[
    int | None,
    typer.Option(
        metavar="BITS",
        help="Of the first layer.",
        show_default="16 for vectors where the others have 8 or fewer",
    ),
]
LastBits = Annotated[
    int | None,
    typer.Option(
        metavar="BITS",
        help="Of the last layer.",
        show_default="16 where the others have 8 or fewer",
    ),
]
Spi = Annotated[
    float | None,
    typer.Option(
        min=0,
        metavar="RATIO",
        help="Samples per insert: how often a transition is learnt from.",
        show_default=BY_TASK,
    ),
]
ActorUpdatePeriod = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="STEPS",
        help="Steps of an actor between looks for a new policy.",
        show_default="100",
    ),
]
PublishEvery = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="STEPS",
        help="Learner steps between policies for the quantizer.",
        show_default="10",
    ),
]
Sync = Annotated[
    bool | None,
    typer.Option("--sync/--async", help="Actors wait for the newest policy.", show_default="async"),
]
Pull = Annotated[
    bool | None,
    typer.Option(
        "--pull/--push", help="Policies are packed when an actor asks.", show_default="push"
    ),
]
Quantizer = Annotated[
    bool | None,
    typer.Option(
        "--quantizer/--no-quantizer",
        help="A process of its own packs policies; else the learner does.",
        show_default="quantizer",
    ),
]
InProcess = Annotated[
    bool | None,
    typer.Option(
        "--in-process/--processes",
        help="Actors take turns in this process: one seed, one result.",
        show_default="processes",
    ),
]
Ray = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Of a Ray cluster that actors are on; `auto` finds the one at hand.",
        show_default="here",
    ),
]
Nodes = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="Of it, which share the actors.", show_default="1"),
]
Double = Annotated[
    bool | None, typer.Option("--double/--no-double", help="dqn: double.", show_default="on")
]
Dueling = Annotated[
    bool | None,
    typer.Option("--dueling/--no-dueling", help="dqn: dueling heads.", show_default="off"),
]
Prioritized = Annotated[
    bool | None,
    typer.Option("--prioritized/--uniform", help="Replay by priority.", show_default="uniform"),
]
N = Annotated[
    int | None,
    typer.Option(
        "--n",
        min=1,
        metavar="STEPS",
        help="Of a transition; impala: of a trajectory.",
        show_default=BY_TASK,
    ),
]
Correct = Annotated[
    str | None,
    typer.Option(
        metavar="LIST",
        help="impala: for what the actors' policy does differently: vtrace, retrace, "
        "tree_backup, is; with constants, like vtrace(rho=1,c=0.9).",
        show_default="vtrace,is",
    ),
]
Entropy = Annotated[
    float | None,
    typer.Option(min=0, metavar="WEIGHT", help="impala: in the loss.", show_default="0.02"),
]
Value = Annotated[
    float | None,
    typer.Option(
        min=0, metavar="WEIGHT", help="impala: of the critic's loss.", show_default="0.25"
    ),
]
Replicas = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="impala: GPUs that share the learner's batch.",
        show_default="1",
    ),
]
RewardScale = Annotated[
    float | None,
    typer.Option(
        min=0,
        metavar="FACTOR",
        help="impala, sac: rewards times this are learnt from.",
        show_default=BY_TASK,
    ),
]
Hidden = Annotated[
    str | None,
    typer.Option(metavar="UNITS", help="Layers of the policy: 256,256.", show_default=BY_TASK),
]
LayerNorm = Annotated[
    bool | None,
    typer.Option("--layer-norm/--no-layer-norm", help="After the first layer.", show_default="off"),
]
Rate = Annotated[
    float | None,
    typer.Option(min=0, metavar="RATE", help="Of Adam.", show_default=BY_TASK),
]
Batch = Annotated[int | None, typer.Option(min=1, metavar="N", show_default=BY_TASK)]
MixedBfloat16 = Annotated[
    bool | None,
    typer.Option(
        "--mixed-bfloat16/--float32", help="Products in bfloat16.", show_default="float32"
    ),
]
Half = Annotated[
    str | None,
    typer.Option(
        metavar="METHODS",
        help="sac: float16 with `all` methods, `none`, or a list of them; `mixed` in front.",
        show_default="float32",
    ),
]
Significand = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=10,
        metavar="BITS",
        help="sac: that numbers are rounded to.",
        show_default="10 with --half",
    ),
]
EvaluateEvery = Annotated[
    int | None,
    typer.Option(min=1, metavar="STEPS", help="Learner steps between.", show_default=BY_TASK),
]
Episodes = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="Of an evaluation.", show_default=BY_TASK),
]
Energy = Annotated[
    bool | None,
    typer.Option("--energy/--no-energy", help="Estimate it, by codecarbon.", show_default="off"),
]
Compress = Annotated[
    str | None,
    typer.Option(
        metavar="LINKS",
        help="What is done to policies on their way to actors: 'prune(0.5)|quantize(8)'.",
        show_default="nothing",
        rich_help_panel=COMPRESSION,
    ),
]
Monitor = Annotated[
    str | None,
    typer.Option(
        metavar="STRATEGY",
        help="What steers that: kl_max:14, reward_gap:10, mix:0.5, growth, or watch.",
        show_default="none",
        rich_help_panel=COMPRESSION,
    ),
]
MonitorEvery = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="Policies between its looks.",
        show_default="10",
        rich_help_panel=COMPRESSION,
    ),
]
Seed = Annotated[int | None, typer.Option(min=0, metavar="N", show_default="0")]
Resume = Annotated[
    bool,
    typer.Option("--resume", help="Go on with the run in --out; --steps may be more."),
]
Threads = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="Of the learner.", show_default="all cores"),
]
