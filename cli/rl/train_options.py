"""The options of `qgraph rl train`: a few of its own, and those generated from the configs."""

from __future__ import annotations

import copy
import inspect
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, get_type_hints

import typer

from qgraph.choices import LearnerDevice
from qgraph.cli.choice import choice
from qgraph.cli.completion import complete_environment
from qgraph.cli.rl.command import RlCommand
from qgraph.errors import UsageError
from qgraph.foreign import ClickObject
from qgraph.rl.agents.config import RunConfig
from qgraph.rl.agents.declared_field import DeclaredField
from qgraph.rl.agents.former_names import half_settings
from qgraph.rl.agents.precision import LearnerPrecision
from qgraph.rl.agents.registry import AGENTS, config_class, config_classes
from qgraph.rl.agents.setting import Panel
from qgraph.words import alternatives

PRIORITY = 0.6  # the exponent of --prioritized
METAVAR, TYPES = 8, {int: "N", float: "NUMBER"}  # the longest unit that stands for a value
ALGORITHM = ("--algo", "--algorithm")


def _algorithms() -> str:
    """Describe which algorithms are for discrete and which for continuous actions."""
    discrete = [kind.algorithm for kind in config_classes() if kind.discrete_actions]
    numbers = [kind.algorithm for kind in config_classes() if kind.continuous_actions]
    return (
        f"Algorithm: {', '.join(discrete)} for discrete actions; {', '.join(numbers)} for "
        "continuous actions."
    )


Algo = Annotated[
    str | None,
    choice(
        AGENTS,
        "algorithm",
        *ALGORITHM,
        metavar="NAME",
        help=f"{_algorithms()} `--algo NAME --help` lists only the options of NAME.",
    ),
]
Env = Annotated[
    str | None,
    typer.Option(
        "--env",
        metavar="NAME",
        help="Environment, such as CartPole-v1, dm_control:cartpole-balance or ALE/Pong-v5.",
        autocompletion=complete_environment,
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "-o",
        metavar="DIR",
        help="Directory of the run.",
        show_default="runs/ALGORITHM-ENVIRONMENT-SEED",
    ),
]
Resume = Annotated[
    bool,
    typer.Option("--resume", help="Continue the run in --out. --steps may be larger than before."),
]
Threads = Annotated[
    int | None,
    typer.Option(
        min=1, metavar="N", help="Number of threads of the learner.", show_default="all cores"
    ),
]
Device = Annotated[
    LearnerDevice | None,
    choice(
        LearnerDevice,
        "device",
        metavar="DEVICE",
        help=f"Device of the learner: {alternatives(LearnerDevice)}.",
        show_default="a GPU if TensorFlow sees one",
    ),
]
# Options that stand for values of settings.
SHORTHANDS: Mapping[str, object] = {
    "prioritized": Annotated[
        bool | None,
        typer.Option(
            "--prioritized/--uniform",
            help=f"Shorthand for --priority-exponent {PRIORITY} or 0.",
            show_default="uniform",
            rich_help_panel=Panel.REPLAY,
        ),
    ],
    "mixed_bfloat16": Annotated[
        bool | None, typer.Option("--mixed-bfloat16/--float32", hidden=True)
    ],
    "half": Annotated[str | None, typer.Option("--half", hidden=True)],
}


@dataclass(frozen=True)
class GeneratedOption:
    """One option: the fields of this name, by the algorithms that have it."""

    name: str
    fields: Mapping[type[RunConfig], DeclaredField]
    shared: bool  # whether all algorithms in question have it

    @property
    def first(self) -> DeclaredField:
        return next(iter(self.fields.values()))

    @property
    def panel(self) -> str | None:
        panel = self.first.setting.panel
        if panel is Panel.ALGORITHM:
            return ", ".join(kind.title for kind in self.fields)
        return None if panel is Panel.RUN else str(panel)

    @property
    def metavar(self) -> str | None:
        if self.first.kind is bool:
            return None
        *_, unit = self.first.setting.unit.split() or [""]
        name = unit.upper() if 0 < len(unit) <= METAVAR else TYPES.get(self.first.kind, "TEXT")
        return f"{name},..." if self.first.several and self.first.kind is int else name

    @property
    def help(self) -> str:
        """The text of most algorithms, then the texts of other algorithms."""
        texts = Counter(each.setting.help for each in self.fields.values())
        usual = texts.most_common(1)[0][0]
        others = [
            f" {kind.algorithm}: {each.setting.help}"
            for kind, each in self.fields.items()
            if each.setting.help != usual
        ]
        obvious = self.shared or self.first.setting.panel is Panel.ALGORITHM
        owners = "" if obvious else f"{', '.join(kind.algorithm for kind in self.fields)}: "
        return owners + usual + "".join(others)

    @property
    def default(self) -> str:
        """The default of most algorithms, and the algorithms with another one."""
        if self.first.setting.default_text:
            return self.first.setting.default_text
        shown = {kind.algorithm: _shown(each) for kind, each in self.fields.items()}
        usual = Counter(shown.values()).most_common(1)[0][0]
        parts = [usual, *(f"{name} {text}" for name, text in shown.items() if text != usual)]
        varies = any(self.name in task for kind in self.fields for task in kind.tasks.values())
        return "; ".join([*parts, *(["some tasks differ"] if varies else [])])


def generated_options(kinds: list[type[RunConfig]]) -> list[GeneratedOption]:
    """Options for all fields of these configs, by panel."""
    found: dict[str, dict[type[RunConfig], DeclaredField]] = {}
    for kind in kinds:
        for name, each in kind.fields().items():
            found.setdefault(name, {})[kind] = each
    options = [GeneratedOption(n, f, shared=len(f) == len(kinds)) for n, f in found.items()]
    order = list(Panel)
    return sorted(options, key=lambda option: order.index(option.first.setting.panel))


def flags_of(each: DeclaredField, name: str = "") -> str:
    """The text of a field's option; `name` replaces the name of the field."""
    if not name and each.setting.flags:
        return each.setting.flags
    flag = (name or each.name).replace("_", "-")
    return f"--{flag}/--no-{flag}" if each.kind is bool else f"--{flag}"


def add_settings(command: Callable[..., None]) -> None:
    """Give a command that takes `**given` parameters for settings and shorthands, None by default.

    Earlier names are options too, which help does not list.
    """
    types = get_type_hints(command, include_extras=True)
    own = [
        part.replace(annotation=types[part.name])
        for part in inspect.signature(command).parameters.values()
        if part.kind is not part.VAR_KEYWORD
    ]
    listed, hidden = [], {}
    for option in generated_options(config_classes()):
        listed.append(_parameter(option.name, _annotated(_type(option.first), _option(option))))
        for each in option.fields.values():
            former_name = each.setting.former_name
            if former_name and former_name not in hidden:
                unlisted = typer.Option(flags_of(each, former_name), hidden=True)
                hidden[former_name] = _parameter(former_name, _annotated(_type(each), unlisted))
    shorthands = [_parameter(name, kind) for name, kind in SHORTHANDS.items()]
    parameters = [*own[:3], *listed, *shorthands, *own[3:], *hidden.values()]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]


def settings_from(given: Mapping[str, object]) -> dict[str, object]:
    """Settings by name, from the values of parameters; those that are None are left out."""
    found = {n: v for n, v in given.items() if v is not None and n not in SHORTHANDS}
    prioritized, bfloat16, half = (given.get(name) for name in SHORTHANDS)
    if prioritized is not None:
        if {"priority_exponent", "alpha"} & found.keys():
            raise UsageError(
                "--prioritized and --uniform set priorities, and so does --priority-exponent"
            )
        found["priority_exponent"] = PRIORITY if prioritized else 0.0
    formats = [name for name in ("precision", "half") if given.get(name) is not None]
    formats += [] if bfloat16 is None else ["mixed_bfloat16" if bfloat16 else "float32"]
    if len(formats) > 1:
        flags = " and ".join(f"--{name.replace('_', '-')}" for name in formats)
        raise UsageError(f"{flags} exclude each other", hint="choose a format by --precision alone")
    if bfloat16 is not None:
        formats_of_flag = LearnerPrecision.MIXED_BFLOAT16, LearnerPrecision.FLOAT32
        found["precision"] = formats_of_flag[not bfloat16]
    if isinstance(half, str):
        found |= half_settings(half)
    return found


class TrainCommand(RlCommand):
    """Its help after `--algo NAME` has the options and defaults of that algorithm only."""

    def parse_args(self, ctx: ClickObject, args: list[str]) -> list[str]:
        words = [word for arg in args for word in arg.split("=", 1)]
        after = [name for flag, name in pairwise(words) if flag in ALGORITHM]
        ctx.meta["algorithm"] = next((name for name in after if name in AGENTS), None)
        return super().parse_args(ctx, args)

    def format_help(self, ctx: ClickObject, formatter: ClickObject) -> None:
        ctx.meta["helping"] = True
        super().format_help(ctx, formatter)

    def get_params(self, ctx: ClickObject) -> list[ClickObject]:
        found: list[ClickObject] = super().get_params(ctx)
        algorithm = ctx.meta.get("algorithm")
        if not ctx.meta.get("helping") or algorithm is None:
            return found
        every = {option.name for option in generated_options(config_classes())}
        own = {o.name: o for o in generated_options([config_class(algorithm)])}
        shown = []
        for parameter in found:
            if parameter.name in own:
                parameter = copy.copy(parameter)
                option = own[parameter.name]
                parameter.help, parameter.show_default = option.help, option.default
                parameter.rich_help_panel = option.panel
            stands_for = "priority_exponent" if parameter.name == "prioritized" else parameter.name
            if stands_for in own or stands_for not in every:
                shown.append(parameter)
        return shown


def _option(option: GeneratedOption) -> object:
    return typer.Option(
        flags_of(option.first),
        metavar=option.metavar,
        help=option.help,
        show_default=option.default,
        rich_help_panel=option.panel,
    )


def _annotated(kind: type, option: object) -> object:
    return Annotated[kind | None, option]


def _parameter(name: str, annotation: object) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None, annotation=annotation
    )


def _type(each: DeclaredField) -> type:
    """The type of an option's value; lists and enums are text."""
    return each.kind if each.kind in (bool, int, float) and not each.several else str


def _shown(each: DeclaredField) -> str:
    default = each.default
    if isinstance(default, bool):
        return flags_of(each).split("/")[not default].removeprefix("--")
    if isinstance(default, tuple):
        return ",".join(map(str, default))
    return f"{default:g}" if isinstance(default, float) else str(default)
