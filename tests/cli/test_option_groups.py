"""Options of the command line are declared once: as the fields of groups."""

import inspect
from dataclasses import dataclass, fields
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

import qgraph
from qgraph import compiler
from qgraph.cli.network_options import (
    LoadOptions,
    PassOptions,
    PlanOptions,
    ResultOptions,
    StateOptions,
)
from qgraph.cli.option_groups import OptionGroup, ReadBy, with_groups
from qgraph.rl.policy import read_policy

FUNCTIONS = {
    compiler.quantize: (PlanOptions, ResultOptions, LoadOptions, PassOptions, StateOptions),
    compiler.pareto: (PlanOptions, LoadOptions),
    qgraph.load: (LoadOptions,),
    qgraph.optimize: (PassOptions, LoadOptions),
    read_policy: (LoadOptions,),
}


@pytest.mark.parametrize(
    ("function", "group"),
    [(function, group) for function, groups in FUNCTIONS.items() for group in groups],
)
def test_an_option_is_a_parameter_of_the_library_with_the_same_default(function, group) -> None:
    parameters = inspect.signature(function).parameters
    for field in fields(group):
        assert field.name in parameters, f"{function.__qualname__} does not take `{field.name}`"
        assert parameters[field.name].default in (field.default, ()), field.name


@dataclass(frozen=True, kw_only=True)
class Size(OptionGroup):
    wide: Annotated[int, typer.Option("--width", min=1, help="Width."), ReadBy(str)] = 3
    deep: Annotated[bool, typer.Option("--deep", help="Deep.")] = False


def printed(*words: str):
    @with_groups
    def verb(name: str, *, size: Size, loud: bool = False) -> None:
        """The verb."""
        print(name, size, size.keywords(), loud)

    app = typer.Typer()
    app.command()(verb)
    return CliRunner().invoke(app, words)


def test_a_group_stands_for_its_options() -> None:
    assert printed("x").output == f"x {Size()} {{'wide': '3', 'deep': False}} False\n"
    given = printed("x", "--width", "5", "--deep", "--loud").output
    assert given == f"x {Size(wide=5, deep=True)} {{'wide': '5', 'deep': True}} True\n"
    assert printed("x", "--width", "0").exit_code == 2
    shown = printed("--help").output
    assert [shown.index(text) for text in ("The verb.", "Width.", "Deep.", "--loud")] == sorted(
        shown.index(text) for text in ("The verb.", "Width.", "Deep.", "--loud")
    )
