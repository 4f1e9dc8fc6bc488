"""Runs, new and resumed: `train` is what `qgraph rl train` does."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any

from qgraph.errors import UsageError
from qgraph.progress import Steps, silent_steps
from qgraph.rl.compress.settings import Settings
from qgraph.rl.correct import Correction
from qgraph.rl.environments import make
from qgraph.rl.learn.directory import RunDirectory
from qgraph.rl.learn.learners import check_fits, learner_of, taught_by
from qgraph.rl.learn.memory import limiter_of
from qgraph.rl.learn.options import Options, check_names, options_for
from qgraph.rl.learn.status import Status, Watch
from qgraph.rl.learn.training import Training
from qgraph.rl.monitor import parse_strategy
from qgraph.rl.monitor.log import LINES
from qgraph.rl.monitor.thresholds import RewardGap
from qgraph.train.fused import set_threads

FREE = ("steps", "evaluate_every", "episodes", "ray", "nodes")  # what a resumed run can change


def _unwatched(status: Status) -> None:
    """For those who do not watch."""


def train(
    path: Path,
    algorithm: str | None = None,
    environment: str | None = None,
    settings: Mapping[str, Any] = MappingProxyType({}),
    *,
    resume: bool = False,
    threads: int | None = None,
    watch: Watch = _unwatched,
    tick: Steps = silent_steps,
) -> Training:
    """A run in the directory `path`; `settings` are fields of Options that are not the usual ones.

    A resumed run has those that it began with, but for FREE ones. Raises UsageError, OutputError,
    LoadError, TrainingError.
    """
    if threads is not None:
        use_threads(threads)
    if resume:
        options = None
    else:
        if algorithm is None or environment is None:
            raise UsageError("an algorithm and an environment are needed", hint="--algo and --env")
        options = options_for(algorithm, environment, **settings)
        _check(options)  # before anything is written
    directory = RunDirectory(path, resume)
    try:
        if options is None:
            said = {"algorithm": algorithm, "environment": environment, **settings}
            options = _resumed(directory.options(), said)
        training = Training(options, directory, resume=resume)
        if not training.done:
            directory.begin(options)
        training.run(watch, tick)
        if options.compress:
            _draw(path)
        return training
    finally:
        directory.close()


def _check(options: Options) -> None:
    """Raises UsageError; UnsupportedError for a chain that does not fit the policy, and for
    correctors that fail.
    """
    with closing(make(options.environment)) as environment:
        check_fits(options.algorithm, options.environment, environment)
        if options.queued:
            _try_correction(options)
        if options.compress:
            _check_gap_is_seen(options)
            learner = learner_of(options, environment)
            found = Settings(options.compress, options.monitor or "watch", seed=options.seed)
            found.check(taught_by(learner, found).spec)


def _try_correction(options: Options) -> None:
    from qgraph.rl.correct.trial import try_once
    from qgraph.rl.learn.replicas import strategy_of

    strategy_of(options.replicas)  # a processor is divided before TensorFlow is at work
    trajectories = options.batch // options.n // options.replicas
    try_once(Correction.parse(options.correct), options.n, trajectories)


def _check_gap_is_seen(options: Options) -> None:
    """Raises UsageError for a strategy by the reward gap whose run ends before the monitor has
    seen one.

    Of new runs only: one that goes on for a while stands where it stood.
    """
    if not isinstance(parse_strategy(options.monitor or "watch"), RewardGap):
        return
    allowed = replace(limiter_of(options), inserts=options.steps).ahead
    learnt, between = int(allowed // options.batch), options.monitor_every * options.publish_every
    last = learnt // between * between
    if last <= options.evaluate_every:
        raise UsageError(
            f"reward_gap would never see a gap: of {learnt} learner steps the first evaluation is "
            f"after {options.evaluate_every}, and the monitor's last look after {last}",
            hint="a smaller --evaluate-every or --monitor-every, or more --steps",
        )


def _resumed(begun: Options, said: Mapping[str, Any]) -> Options:
    check_names(name for name in said if name not in ("algorithm", "environment"))
    for name, value in said.items():
        if value is not None and name not in FREE and value != getattr(begun, name):
            raise UsageError(
                f"{name} is {value}, but the run began with {getattr(begun, name)}",
                hint=f"a resumed run can change {', '.join(FREE)}",
            )
    return replace(begun, **{name: v for name, v in said.items() if name in FREE})


def _draw(path: Path) -> None:
    """What the monitor saw and decided, where matplotlib is installed.

    A run that was stopped early may have no compressed policy yet, and no log.
    """
    if (path / LINES).exists() and find_spec("matplotlib") is not None:
        from qgraph.rl.monitor.plots import plot

        plot(path)


def use_threads(count: int) -> None:
    """How many threads TensorFlow's ops and ours take. Raises UsageError where it is too late."""
    import tensorflow as tf

    try:
        tf.config.threading.set_intra_op_parallelism_threads(count)
        tf.config.threading.set_inter_op_parallelism_threads(count)
    except RuntimeError:
        raise UsageError("TensorFlow is at work already: threads cannot be set now") from None
    set_threads(count)
