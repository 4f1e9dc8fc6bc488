"""A stable-baselines3 policy as an ONNX file, for `qgraph rl quantize` and others."""

from __future__ import annotations

import io
import json
import warnings
from pathlib import Path

import gymnasium
import torch
from gymnasium import spaces
from stable_baselines3.common.vec_env import VecNormalize

from qgraph.errors import UnsupportedError
from qgraph.files import write_whole
from qgraph.foreign import GymObject, TorchModule, TorchTensor
from qgraph.rl.sb3.aware import in_float
from qgraph.rl.sb3.families import family_of
from qgraph.rl.sb3.read import read


def export_onnx(
    model: TorchModule, path: str | Path, normalizer: VecNormalize | None = None
) -> Path:
    """Write the network of a model's actor as ONNX, from `observation` to `action`.

    `action` are the outputs in front of the head. Observations are those of the environment, also
    uint8 images, as float32 [n, ...]. A dictionary of observations has an input for each part. The
    states of a RecurrentPPO are inputs and outputs. The head is written to `policy.json` beside
    `policy.onnx`, for `qgraph rl quantize` and `qgraph rl evaluate`.

    Args:
        model: The model.
        path: Path of the ONNX file.
        normalizer: The `VecNormalize` of a model that was loaded without its environment. It
            becomes part of the network.

    Returns:
        The path.

    Raises:
        UnsupportedError: Actors do not support a part of the model.
        OutputError: The file cannot be written.

    Examples:
        >>> from stable_baselines3 import PPO
        >>> from qgraph.rl.sb3 import export_onnx
        >>> print(export_onnx(PPO("MlpPolicy", "CartPole-v1", device="cpu"), "policy.onnx"))
        policy.onnx
    """
    path, found = Path(path), read(model, normalizer)
    policy, family = model.policy, family_of(model.policy)

    if found.flat is not None and any(part.options for part in found.flat.parts):
        raise UnsupportedError(
            "observations that are one of several choices have no form in this file",
            hint="`pack(read(model), read(model).head)` packs the policy without it",
        )
    columns = found.columns
    inputs = ["observation"] if columns is None else [part.name for part in columns.parts]
    states = list(found.states)
    after = [f"{state.name}_next" for state in states]

    class ExportedActor(torch.nn.Module):  # type: ignore[misc]  # torch is not type-checked
        def forward(self, *given: TorchTensor) -> TorchTensor | tuple[TorchTensor, ...]:
            seen = given[: len(inputs)]
            observation = (
                seen[0] if not _is_dictionary(model) else dict(zip(inputs, seen, strict=True))
            )
            if found.normalizer is not None:
                observation = found.normalizer.tensor(observation)
            if family.steps is not None:
                return family.steps(policy, observation, *given[len(inputs) :])
            return family.outputs(policy, observation)

    actor = ExportedActor()
    actor.policy = policy  # so that its parameters are found
    training, content = policy.training, io.BytesIO()
    actor.eval()
    shapes = (
        [model.observation_space.shape] if columns is None else [p.shape for p in columns.parts]
    )
    sizes = [*shapes, *((state.size,) for state in states)]
    samples = tuple(torch.zeros(2, *size, device=policy.device) for size in sizes)
    names = [*inputs, *(state.name for state in states)]
    outputs = ["action", *after]
    with warnings.catch_warnings(), in_float(policy):
        warnings.simplefilter("ignore")
        torch.onnx.export(
            actor, samples, content, input_names=names, output_names=outputs,
            dynamic_axes={name: {0: "n"} for name in (*names, *outputs)}, dynamo=False,
        )  # fmt: skip
    policy.set_training_mode(training)
    head = found.head
    about: dict[str, object] = {
        "algorithm": type(model).__name__.lower(),
        "env": _environment(model),
        "action": head.kind,
        "head": head.as_json(),
        "input": inputs[0],
        "output": "action",
    }
    if len(inputs) > 1:
        about["inputs"] = inputs
    if states:
        about["states"] = {state.name: name for state, name in zip(states, after, strict=True)}
    write_whole(path, content.getvalue())
    write_whole(path.with_suffix(".json"), (json.dumps(about, indent=1) + "\n").encode())
    return path


def _is_dictionary(model: TorchModule) -> bool:
    return isinstance(model.observation_space, spaces.Dict)


def _environment(model: TorchModule) -> str | None:
    """The name of its environment, where gymnasium makes the same one by it."""
    environment = model.get_env()
    specs = [] if environment is None else environment.get_attr("spec")
    spec = specs[0] if specs else None
    usual = None if spec is None else gymnasium.registry.get(spec.id)
    if spec is None or usual is None:
        return None
    return spec.id if _settings(usual) == _settings(spec) else None


def _settings(spec: GymObject) -> dict[str, object]:
    return {name: value for name, value in spec.kwargs.items() if name != "render_mode"}
