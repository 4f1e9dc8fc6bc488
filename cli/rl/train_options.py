"""The options of `qgraph rl train`: a few of its own, and one for each setting of a run."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from qgraph.errors import UsageError
from qgraph.rl.learn.options import ALGORITHMS, Options
from qgraph.rl.learn.setting import Setting, settings_of

PRIORITY = 0.6  # the exponent of --prioritized
Algorithm = Enum("Algorithm", {name: name for name in ALGORITHMS}, type=str)  # type: ignore[misc]

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
Prioritized = Annotated[
    bool | None,
    typer.Option(
        "--prioritized/--uniform",
        help=f"Replay by priority: --alpha {PRIORITY} or 0.",
        show_default="uniform",
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
Resume = Annotated[
    bool,
    typer.Option("--resume", help="Go on with the run in --out; --steps may be more."),
]
Threads = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="Threads of the learner.", show_default="all cores"),
]


def add_settings(command: Callable[..., None]) -> None:
    """Give a command that takes `**given` a parameter for each setting, None by default."""
    types = get_type_hints(command, include_extras=True)
    own = [
        part.replace(annotation=types[part.name])
        for part in inspect.signature(command).parameters.values()
        if part.kind is not part.VAR_KEYWORD
    ]
    given = [
        inspect.Parameter(
            _parameter(name, declared),
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=None,
            annotation=_annotation(name, default, declared),
        )
        for name, default, declared in _optional()
    ]
    command.__signature__ = inspect.Signature([*own[:3], *given, *own[3:]])  # type: ignore[attr-defined]


def settings_from(given: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by field, from parameters; those that are None are left out."""
    found = {}
    for name, default, declared in _optional():
        value = given.get(_parameter(name, declared))
        if value is not None:
            several = isinstance(default, tuple)
            found[name] = _units(value, declared.option(name)) if several else value
    return found


def _optional() -> list[tuple[str, Any, Setting]]:
    return [found for found in settings_of(Options) if found[2].flags != ""]


def _parameter(name: str, declared: Setting) -> str:
    return declared.parameter or name


def _annotation(name: str, default: Any, declared: Setting) -> Any:
    kinds = {bool: bool, float: float, str: str, tuple: str}
    kind = kinds.get(type(default), int)
    takers = f"{', '.join(declared.takers)}: " if declared.takers else ""
    help_text = declared.text if declared.text.startswith("dqn:") else takers + declared.text
    option = typer.Option(
        declared.option(name),
        metavar=declared.metavar or None,
        help=help_text,
        show_default=declared.usual or _shown(default, declared),
        rich_help_panel=declared.panel or None,
    )
    return Annotated[kind | None, option]


def _shown(default: Any, declared: Setting) -> str:
    if isinstance(default, bool):
        on, off = declared.option("").split("/")
        return (on if default else off).removeprefix("--")
    if isinstance(default, tuple):
        return ",".join(map(str, default))
    return f"{default:g}" if isinstance(default, float) else str(default)


def _units(text: str, option: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise UsageError(
            f"`{text}` is not a list of layers", hint=f"like {option} 256,256"
        ) from None
