"""Runs, new and resumed: `train` is what `qgraph rl train` does."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType

from qgraph.errors import UsageError
from qgraph.progress import Steps, silent_steps
from qgraph.rl.agents.config import RunConfig
from qgraph.rl.agents.learner import teacher_of
from qgraph.rl.agents.registry import check_fits, config_for, learner_for, own_settings
from qgraph.rl.agents.setting import SettingValues
from qgraph.rl.compress.settings import Settings
from qgraph.rl.environments import make
from qgraph.rl.learn.directory import RunDirectory
from qgraph.rl.learn.status import Status, Watch
from qgraph.rl.learn.training import Training
from qgraph.rl.monitor import parse_strategy
from qgraph.rl.monitor.log import LINES
from qgraph.rl.monitor.thresholds import RewardGap
from qgraph.rl.setting_text import SettingText
from qgraph.train.fused import set_threads

FREE = ("steps", "evaluate_every", "episodes", "ray", "nodes")  # what a resumed run can change


def _unwatched(status: Status) -> None:
    """Does nothing."""


def _unheard(caution: str) -> None:
    """Does nothing."""


def train(
    path: Path,
    algorithm: str | None = None,
    environment: str | None = None,
    settings: SettingValues = MappingProxyType({}),
    *,
    config: RunConfig | None = None,
    resume: bool = False,
    threads: int | None = None,
    watch: Watch = _unwatched,
    tick: Steps = silent_steps,
    warn: Callable[[str], None] = _unheard,
) -> Training:
    """A run in the directory `path`, by a config or by an algorithm and an environment.

    `settings` are the fields of the algorithm's config that are not the task's defaults. A resumed
    run has those that it began with, but for FREE ones. `warn` is called with what the user should
    know before a new run begins. Raises UsageError, OutputError, LoadError, TrainingError.
    """
    if threads is not None:
        use_threads(threads)
    if not resume:
        config = _checked(config, algorithm, environment, settings)  # before anything is written
        for caution in config.cautions():
            warn(caution)
    directory = RunDirectory(path, resume)
    try:
        if resume or config is None:
            config = _resumed(directory.config(), algorithm, environment, settings)
        training = Training(config, directory, resume=resume)
        if not training.done:
            directory.begin(config)
        training.run(watch, tick)
        if config.compress:
            _draw(path)
        return training
    finally:
        directory.close()


def _checked(
    config: RunConfig | None, algorithm: str | None, name: str | None, settings: SettingValues
) -> RunConfig:
    """The config of a new run; an unknown environment is found before its settings are.

    Raises UsageError; UnsupportedError for a chain that does not fit the policy, and for correctors
    that fail.
    """
    if config is None and (algorithm is None or name is None):
        raise UsageError("an algorithm and an environment are needed")
    with closing(make(config.environment if config else str(name))) as environment:
        if config is None:
            config = config_for(str(algorithm), str(name), **settings)
        check_fits(config, environment)
        config.prepare()
        if config.compress:
            _check_gap_is_seen(config)
            learner = learner_for(config, environment)
            found = Settings(config.compress, config.monitor or "watch", seed=config.seed)
            found.check(teacher_of(learner, found).spec)
    return config


def _check_gap_is_seen(config: RunConfig) -> None:
    """Raises UsageError for a strategy by the reward gap whose run ends before the monitor has
    seen one.

    Of new runs only: one that goes on for a while stands where it stood.
    """
    if not isinstance(parse_strategy(config.monitor or "watch"), RewardGap):
        return
    allowed = replace(config.limiter(), inserts=config.steps).ahead
    learnt, between = int(allowed // config.batch_size), config.monitor_every * config.publish_every
    last = learnt // between * between
    if last <= config.evaluate_every:
        raise UsageError(
            f"reward_gap would never see a gap: of {learnt} learner steps the first evaluation is "
            f"after {config.evaluate_every}, and the monitor's last look after {last}",
            hint=SettingText("a smaller {evaluate_every} or {monitor_every}, or more {steps}"),
        )


def _resumed(
    begun: RunConfig, algorithm: str | None, environment: str | None, settings: SettingValues
) -> RunConfig:
    """The config of a run that goes on. Raises UsageError for what it cannot change."""
    own = own_settings(type(begun), settings)
    said = {"algorithm": algorithm, "environment": environment, **own}
    fields = begun.fields()
    for name, value in said.items():
        if value is None or name in FREE:
            continue
        before = getattr(begun, name)
        if before != (fields[name].read(value) if name in fields else value):
            raise UsageError(
                SettingText(
                    f"{{{name}}} is {{value}}, but the run began with {{before}}",
                    value=value, before=before,
                ),
                hint=SettingText(
                    "a resumed run can change " + ", ".join(f"{{{free}}}" for free in FREE)
                ),
            )  # fmt: skip
    return replace(begun, **{name: value for name, value in own.items() if name in FREE})


def _draw(path: Path) -> None:
    """Plot the monitor's looks and decisions, if matplotlib is installed.

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
