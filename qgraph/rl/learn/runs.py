"""New and resumed runs: `train` is the function of `qgraph rl train`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType

from qgraph.choices import LearnerDevice, chosen
from qgraph.errors import UsageError
from qgraph.progress import Steps, silent_steps
from qgraph.quiet import quiet_tensorflow
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

CHANGEABLE = (  # settings that a resumed run can change
    "steps",
    "evaluate_every",
    "episodes",
    "ray",
    "nodes",
)


def _no_watch(status: Status) -> None:
    """Do nothing."""


def _no_warning(caution: str) -> None:
    """Do nothing."""


@quiet_tensorflow()
def train(
    path: Path,
    algorithm: str | None = None,
    environment: str | None = None,
    settings: SettingValues = MappingProxyType({}),
    *,
    config: RunConfig | None = None,
    resume: bool = False,
    threads: int | None = None,
    device: str | None = None,
    watch: Watch = _no_watch,
    tick: Steps = silent_steps,
    warn: Callable[[str], None] = _no_warning,
) -> Training:
    """Train in the directory `path`, with a config or with an algorithm and an environment.

    settings: fields of the algorithm's config that differ from the task's defaults. A resumed run
    keeps its settings, except for CHANGEABLE ones. device: `cpu` or `gpu`, on which the learner
    computes; None takes a GPU if TensorFlow sees one. warn: called with warnings before a new run
    begins.
    Raises UsageError, OutputError, LoadError, TrainingError.
    """
    if config is not None and (resume or algorithm or environment or settings):
        raise UsageError(
            "a config is for a new run, without algorithm, environment and settings beside it"
        )
    if threads is not None:
        use_threads(threads)
    if device is not None:
        use_device(device)
    if not resume:
        config = _checked(config, algorithm, environment, settings)  # before anything is written
        for warning in config.warnings():
            warn(warning)
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
        raise UsageError("a new run needs an algorithm and an environment")
    with closing(make(config.environment if config else str(name))) as environment:
        if config is None:
            config = config_for(str(algorithm), str(name), **settings)
        check_fits(config, environment)
        config.prepare()
        if config.compress:
            _check_gap_is_seen(config)
            learner = learner_for(config, environment)
            compression = Settings(config.compress, config.monitor or "watch", seed=config.seed)
            compression.check(teacher_of(learner, compression).spec)
    return config


def _check_gap_is_seen(config: RunConfig) -> None:
    """Raise UsageError for reward_gap if the run ends before the monitor sees a gap.

    This is checked for new runs only; a resumed run continues with its monitor.
    """
    if not isinstance(parse_strategy(config.monitor or "watch"), RewardGap):
        return
    allowed = replace(config.limiter(), inserts=config.steps).ahead
    learner_steps = int(allowed // config.batch_size)
    between = config.monitor_every * config.publish_every
    last = learner_steps // between * between
    if last <= config.evaluate_every:
        raise UsageError(
            f"reward_gap would never see a gap: of {learner_steps} learner steps the first "
            f"evaluation is after {config.evaluate_every}, and the last measurement of the monitor "
            f"after {last}",
            hint=SettingText("a smaller {evaluate_every} or {monitor_every}, or more {steps}"),
        )


def _resumed(
    existing: RunConfig, algorithm: str | None, environment: str | None, settings: SettingValues
) -> RunConfig:
    """The config of a resumed run. Raises UsageError for settings that it cannot change."""
    own = own_settings(type(existing), settings)
    given = {"algorithm": algorithm, "environment": environment, **own}
    fields = existing.fields()
    for name, value in given.items():
        if value is None or name in CHANGEABLE:
            continue
        before = getattr(existing, name)
        if before != (fields[name].read(value) if name in fields else value):
            raise UsageError(
                SettingText(
                    f"{{{name}}} is {{value}}, but the run began with {{before}}",
                    value=value, before=before,
                ),
                hint=SettingText(
                    "a resumed run can change " + ", ".join(f"{{{name}}}" for name in CHANGEABLE)
                ),
            )  # fmt: skip
    return replace(existing, **{name: value for name, value in own.items() if name in CHANGEABLE})


def _draw(path: Path) -> None:
    """Plot the monitor's measurements and decisions, if matplotlib is installed.

    A run that was stopped early may have no log yet.
    """
    if (path / LINES).exists() and find_spec("matplotlib") is not None:
        from qgraph.rl.monitor.plots import plot

        plot(path)


def use_threads(count: int) -> None:
    """Set the threads of TensorFlow's and our ops. Raises UsageError if it is too late."""
    import tensorflow as tf

    try:
        tf.config.threading.set_intra_op_parallelism_threads(count)
        tf.config.threading.set_inter_op_parallelism_threads(count)
    except RuntimeError:
        raise UsageError("TensorFlow has started already, so threads cannot be set") from None
    set_threads(count)


def use_device(device: str) -> None:
    """Let TensorFlow use GPUs or not, and so the learner and the ops that it is made of.

    Raises UsageError if there is no GPU, or if it is too late.
    """
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    wanted = gpus if chosen(LearnerDevice, device, "device") == LearnerDevice.GPU else []
    if device == LearnerDevice.GPU and not gpus:
        raise UsageError("TensorFlow sees no GPU", hint="`qgraph doctor` shows what it sees")
    try:
        tf.config.set_visible_devices(wanted, "GPU")
    except RuntimeError:
        raise UsageError("TensorFlow has started already, so its device is fixed") from None
