"""Tasks of dm_control's suite.

`dm_control:cartpole-swingup` has states as observations, `dm_control:cartpole-swingup:held` repeats
each action for several steps, and `dm_control:cartpole-swingup:pixels` does so with images.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from qgraph.errors import UsageError
from qgraph.foreign import GymObject
from qgraph.ir.types import Array
from qgraph.rl.environments.environment import Action, Actions, Outcome, floats, imported, unknown

DM_CONTROL, PIXELS, REPEATED = "dm_control:", ":pixels", ":held"
RENDER_HINT = "install libosmesa6 and set MUJOCO_GL=osmesa, or MUJOCO_GL=egl with a GPU"
SIZE, FRAMES = 84, 3  # of an image, the newest last
# Steps that an action is repeated; 1 for other domains (PlaNet, Hafner et al., 2019).
ACTION_REPEATS: Mapping[str, int] = MappingProxyType(
    {"cartpole": 8, "reacher": 4, "cheetah": 4, "ball_in_cup": 4, "finger": 2, "walker": 2}
)


class DmControl:
    """A task whose observations are concatenated to one vector, in their order."""

    dtype = np.dtype(np.float32)

    def __init__(self, name: str) -> None:
        os.environ.setdefault("MUJOCO_GL", "disable")  # nothing is drawn
        task = name.removeprefix(DM_CONTROL).removesuffix(REPEATED)
        self.inner = loaded(task)
        self.action_repeats = action_repeats(task) if name.endswith(REPEATED) else 1
        self.actions = actions_of(self.inner)
        self.shape = self.reset().shape

    def reset(self, seed: int | None = None) -> Array:
        if seed is not None:
            self.inner.task.random.seed(seed)
        return self._row(self.inner.reset().observation)

    def step(self, action: Action) -> Outcome:
        reward, found = repeat_action(self.inner, action, self.action_repeats)
        return Outcome(self._row(found.observation), reward, float(found.discount), found.last())

    def close(self) -> None:
        self.inner.close()

    @staticmethod
    def _row(observation: Mapping[str, Array]) -> Array:
        return np.concatenate([np.ravel(part) for part in observation.values()]).astype(np.float32)


class DmControlPixels:
    """84 x 84 colour images of the first camera, the last three as channels.

    OpenGL draws the images, also in software (OSMesa). Raises UsageError without OpenGL.
    """

    dtype = np.dtype(np.uint8)
    shape: tuple[int, ...] = (SIZE, SIZE, 3 * FRAMES)

    def __init__(self, name: str) -> None:
        task = name.removeprefix(DM_CONTROL).removesuffix(PIXELS)
        self.inner = loaded(task)
        self.action_repeats = action_repeats(task)
        self.actions = actions_of(self.inner)
        self.frames: deque[Array] = deque(maxlen=FRAMES)
        try:
            self.reset()
        except Exception as error:  # each OpenGL library raises other errors
            raise UsageError(
                f"images of `{task}` cannot be drawn: {error}",
                hint=RENDER_HINT,
            ) from error

    def reset(self, seed: int | None = None) -> Array:
        if seed is not None:
            self.inner.task.random.seed(seed)
        self.inner.reset()
        self.frames.extend([self._frame()] * FRAMES)
        return self._image()

    def step(self, action: Action) -> Outcome:
        reward, found = repeat_action(self.inner, action, self.action_repeats)
        self.frames.append(self._frame())
        return Outcome(self._image(), reward, float(found.discount), found.last())

    def close(self) -> None:
        self.inner.physics.free()  # frees OpenGL too, which would complain at the end of Python
        self.inner.close()

    def _frame(self) -> Array:
        frame: Array = self.inner.physics.render(SIZE, SIZE, camera_id=0)
        return frame

    def _image(self) -> Array:
        return np.concatenate(list(self.frames), axis=-1)


def loaded(name: str) -> GymObject:
    """The task `domain-task`. Raises UsageError for an unknown task."""
    try:
        suite = imported("dm_control.suite", "rl")
    except UsageError:
        raise
    except Exception as error:  # the suite loads OpenGL at once, which may be missing
        how = os.environ.get("MUJOCO_GL", "")
        raise UsageError(
            f"images of `{name}` cannot be drawn with MUJOCO_GL={how}: {error}", hint=RENDER_HINT
        ) from error
    domain, _, task = name.partition("-")
    if (domain, task) not in suite.ALL_TASKS:
        known = [f"{DM_CONTROL}{a}-{b}" for a, b in suite.ALL_TASKS]
        raise unknown(f"{DM_CONTROL}{name}", known)
    return suite.load(domain, task, task_kwargs={"random": 0})


def action_repeats(task: str) -> int:
    """The number of steps that `domain-task` repeats an action."""
    return ACTION_REPEATS.get(task.partition("-")[0], 1)


def repeat_action(inner: GymObject, action: Action, steps: int) -> tuple[float, GymObject]:
    """The sum of rewards of `steps` steps, or until the end, and the last time step."""
    step = inner.step(action)
    reward = float(step.reward)
    for _ in range(steps - 1):
        if step.last():
            break
        step = inner.step(action)
        reward += float(step.reward)
    return reward, step


def actions_of(task: GymObject) -> Actions:
    spec = task.action_spec()
    return Actions(low=floats(spec.minimum), high=floats(spec.maximum))
