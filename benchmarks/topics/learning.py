"""Topics of learning with quantized actors, compressed policies and low precision."""

from __future__ import annotations

import numpy as np

from benchmarks.result import Result
from benchmarks.tables import Table
from benchmarks.topics.figures import Bars, Lines
from benchmarks.topics.topic import Topic, first_table

NEAR = 2  # standard errors of a difference


def _training(result: Result) -> Table:
    return result.tables[0].only(
        "task", "bits", "seeds", "best return", "seeds to 95 %", "steps to 95 %", "steps/s",
        "actors wait", "energy",
    )  # fmt: skip


def _steps_to(result: Result) -> Table:
    made = Table("", {"task": "", "bits": "", "steps": ",.0f"})
    for row in result.tables[0].rows:
        if row["steps to 95 %"] is not None:
            actors = "float32" if row["bits"] == 32 else f"int{row['bits']}"
            made.add(row["task"], f"{actors} actors", row["steps to 95 %"])
    return made.pivot("task", "bits", "steps")


def _best(result: Result, task: str) -> str:
    found = (result.tables[0].row(task=task, bits=bits)["best return"] for bits in (8, 32))
    return " and ".join(f"{mean:.0f} ± {error:.0f}" for mean, error in found)


RL_TRAINING = Topic(
    "rl_training",
    "Learning from int8 actors",
    lambda result: (
        f"CartPole {_best(result, 'cartpole')}, balance {_best(result, 'balance')} with "
        "int8 and float32 actors"
    ),
    "DQN and D4PG, ten seeds, best return; first and last layers of actors have 16 bits; ± is the "
    "standard error",
    _training,
    _steps_to,
    Bars("actor steps to 95 % of the best return, ± one standard error"),
)


def _actors(bits: int) -> str:
    """The format of actors' weights with a number of bits."""
    return f"{'float' if bits >= 16 else 'int'}{bits}"


def _wide_training(result: Result) -> Table:
    return result.tables[0].only(
        "task", "bits", "seeds", "best return", "seeds to 95 %", "steps to 95 %",
        "seconds to 95 %", "of float's seconds", "steps/s", "learner waits", "actors wait",
        "energy", "kJ", "g CO2",
    )  # fmt: skip


def _seconds_to(result: Result) -> Table:
    made = Table("", {"task": "", "bits": "", "seconds": ",.0f"})
    for row in result.tables[0].rows:
        made.add(row["task"], f"{_actors(row['bits'])} actors", row["seconds to 95 %"])
    return made.pivot("task", "bits", "seconds")


def _times_sooner(result: Result) -> str:
    rows = result.tables[0].where(bits=8).rows
    shares = [row["of float's seconds"] for row in rows]
    each = ", ".join(f"{row['task'].removesuffix('-wide')} {share:.2f}"
                     for row, share in zip(rows, shares, strict=True))  # fmt: skip
    return f"int8 actors reach 95 % of float32's return in a share of its seconds: {each}"


TIME_TO_RETURN = Topic(
    "time_to_return",
    "Time to a return",
    _times_sooner,
    "IMPALA, policies of three layers of 2048, one actor, one thread of the learner; ± is the "
    "standard error over seeds",
    _wide_training,
    _seconds_to,
    Bars("seconds to 95 % of the best return of float32, ± one standard error"),
)


def _ppo_returns(result: Result) -> Table:
    return result.tables[0].pivot("task", "trained by", "return")


def _near(result: Result) -> str:
    rows = [row for row in result.tables[0].rows if row["errors from sb3"] is not None]
    near = sum(abs(row["errors from sb3"]) <= NEAR for row in rows)
    farthest = max(abs(row["errors from sb3"]) for row in rows)
    return (
        f"{near} of {len(rows)} returns within {NEAR} standard errors of stable-baselines3's, "
        f"the farthest at {farthest:.1f}"
    )


PPO_RETURNS = Topic(
    "ppo_returns",
    "PPO beside stable-baselines3",
    _near,
    "CartPole, Acrobot, Pendulum and LunarLander, equal hyperparameters, float32 and int8 actors",
    first_table,
    _ppo_returns,
    Bars("return of the final policy, ± one standard error"),
)


def _compressed(result: Result) -> Table:
    tasks = ("cartpole", "acrobot", "lunar", "breakout")
    return (
        result.tables[0]
        .where(task=tasks)
        .only("task", "actors' policy", "block, kB", "actor, us", "times less", "alone, us",
              "of wall", "KL", "return", "of actors")
    )  # fmt: skip


def _less(result: Result) -> Table:
    return _compressed(result).pivot("actors' policy", "task", "times less")


def _distilled(result: Result) -> str:
    rows = _compressed(result).where({"actors' policy": "distilled"}).rows
    times = [row["times less"] for row in rows]
    return f"{min(times):.1f} to {max(times):.1f}"


COMPRESSION = Topic(
    "compression",
    "Policies compressed in more ways than bits",
    lambda result: (
        f"an actor's inference takes {_distilled(result)} times less where its policy "
        "is distilled, at equal return"
    ),
    "IMPALA on four tasks, three seeds, policies wider than the tasks need; the runs get no "
    "shorter, as the learner is the bottleneck",
    _compressed,
    _less,
    Bars("times less time than float32 for an actor's step", line=1.0),
)

AS_ACTORS = "actor, packed"


def _returns(result: Result) -> Table:
    ways = (AS_ACTORS, "static, calibrated", "simulated as in the papers")
    return (
        result.table("Returns")
        .where(way=ways)
        .only("way", "policy", "float", "int8", "change, int8", "error of it", "same action")
    )


def _sweep(result: Result) -> Table:
    """The policy that loses most with few bits, by the ways to quantize it."""
    made = Table("", {"bits": "d", "way": "", "change": "+.1%"})
    for row in result.table("Change of").where(policy="sac_LunarLanderContinuous-v2").rows:
        for bits in (16, 8, 6, 5, 4, 3, 2):
            if row[f"{bits} bits"] is not None:
                made.add(bits, row["way"], row[f"{bits} bits"])
    made.rows.sort(key=lambda row: -int(row["bits"]))
    return made.pivot("bits", "way", "change")


def _within(result: Result) -> str:
    rows = _returns(result).where(way=AS_ACTORS).rows
    near = sum(abs(row["change, int8"]) <= 0.01 for row in rows)
    return f"{near} of {len(rows)} policies within 1% of float at 8 bits"


POLICIES_BITS = Topic(
    "policies_bits",
    "Trained policies with fewer bits",
    _within,
    "as actors run them (first and last layers 16 bits), 100 episodes; the others are within three "
    "standard errors",
    _returns,
    _sweep,
    Lines("bits", "change of the return, sac_LunarLander", percent=True),
)


def _gain(result: Result) -> Table:
    """QAT's return minus PTQ's, as a share of the range of returns on the task."""
    made = Table("", {"bits": "d", "task": "", "gain": "+.2f"})
    for row in sorted(result.tables[0].rows, key=lambda row: -int(row["bits"])):
        if row["QAT"] is not None:
            range_ = 500 if "CartPole" in row["task"] else 1500
            made.add(row["bits"], row["task"], (row["QAT"][0] - row["PTQ"][0]) / range_)
    return made.pivot("bits", "task", "gain")


POLICIES_AWARE = Topic(
    "policies_aware",
    "Trained aware of their bits",
    lambda result: (
        "A2C at 4 bits: {0[0]:.0f} ± {0[1]:.0f} trained aware, {1[0]:.0f} ± {1[1]:.0f} "
        "quantized afterwards".format(
            *(result.tables[0].row(task="A2C, CartPole-v1", bits=4)[way] for way in ("QAT", "PTQ"))
        )
    ),
    "CartPole, three seeds, weights, activations and observations; on SAC training aware is behind",
    first_table,
    _gain,
    Lines("bits", "return of QAT minus PTQ, of the task's range"),
)


def _trained_bits(result: Result) -> Table:
    """The gain of training over quantizing afterwards, as a share of the range of returns."""
    made = Table("", {"bits": "d", "task": "", "gain": "+.2f"})
    for row in sorted(result.tables[0].rows, key=lambda row: -int(row["bits"])):
        if row["afterwards"] is not None:
            range_ = 500 if "CartPole" in row["task"] else 1500
            trained, after = (np.ravel(row[way])[0] for way in ("trained", "afterwards"))
            made.add(row["bits"], row["task"], float(trained - after) / range_)
    return made.pivot("bits", "task", "gain")


POLICIES_TRAINED_BITS = Topic(
    "policies_trained_bits",
    "Trained in few bits",
    lambda result: (
        "SAC on Pendulum with 2 bits: {0[0]:.0f} ± {0[1]:.0f} trained, {1[0]:.0f} ± {1[1]:.0f} "
        "quantized afterwards; float {2[0]:.0f} ± {2[1]:.0f}".format(
            *(
                result.tables[0].row(task="sac, Pendulum-v1", bits=bits)[way]
                for bits, way in ((2, "trained"), (2, "afterwards"), (32, "trained"))
            )
        )
    ),
    "static policies, first and last layers 8 bits, few seeds; ± is the standard error over seeds",
    first_table,
    _trained_bits,
    Lines("bits", "return trained minus afterwards, of the task's range"),
)


def _of_float(result: Result) -> Table:
    return result.tables[0].pivot("variant", "task", "of float32")


SAC_FLOAT16 = Topic(
    "sac_float16",
    "SAC in float16",
    lambda result: (
        "swing-up {0[0]:.0f} ± {0[1]:.0f} with all six methods, float32 {1[0]:.0f} ± "
        "{1[1]:.0f}; float16 alone crashes".format(
            *(
                result.tables[0].row(task="swingup", variant=v)["return"]
                for v in ("all six", "float32")
            )
        )
    ),
    "five seeds on Pendulum and cartpole-swingup from states; learning from images is not shown",
    first_table,
    _of_float,
    Bars("of float32's return; 0 %: nothing learned", line=1.0, percent=True),
)

TOPICS = (
    RL_TRAINING, TIME_TO_RETURN, PPO_RETURNS, COMPRESSION, POLICIES_BITS, POLICIES_AWARE,
    POLICIES_TRAINED_BITS, SAC_FLOAT16,
)  # fmt: skip
