"""Every option with a few possible values: an unknown one is answered with the known ones."""

import inspect
from collections.abc import Iterator
from enum import Enum
from typing import Any, get_args, get_type_hints

import pytest
import typer.main

from qgraph.choices import Mode
from qgraph.cli import main
from qgraph.cli.choice import choice
from tests.helpers.cli import run
from tests.helpers.verbs import commands

VERBS = dict(commands(typer.main.get_command(main.app)))


def declared(verb: str) -> Iterator[tuple[str, object, Any]]:
    """Name, type and `typer.Option` of each option that a verb declares."""
    function = inspect.unwrap(VERBS[verb].callback)
    for name, hint in get_type_hints(function, include_extras=True).items():
        kind, *information = get_args(hint) or (hint,)
        if information and hasattr(information[0], "param_decls"):
            yield name, kind, information[0]


def is_choice(option: Any) -> bool:
    parser = getattr(option, "parser", None)
    return parser is not None and parser.__qualname__.startswith(choice.__name__)


CHOICES = [
    (verb, name) for verb in VERBS for name, _, option in declared(verb) if is_choice(option)
]


def arguments(verb: str, wrong: str) -> list[str]:
    """A command line with all that the verb requires, and `x` for one option, which is first."""
    first: list[str] = []
    rest: list[str] = []
    for parameter in VERBS[verb].params:
        flag = [] if parameter.param_type_name == "argument" else [parameter.opts[0]]
        if parameter.name == wrong:
            first = [*flag, "x"]
        elif parameter.required:
            rest += [*flag, "c"]
    return [*first, *rest]


@pytest.mark.parametrize(("verb", "name"), CHOICES)
def test_an_unknown_value_lists_the_known_ones(verb, name) -> None:
    found = run(*verb.split(), *arguments(verb, name))
    assert found.code == 2 and found.out == ""
    assert found.err.startswith("error: unknown ") and " `x`; choose " in found.err
    (option,) = (option for other, _, option in declared(verb) if other == name)
    words = option.autocompletion("")
    assert len(words) > 1 and all(word in found.err for word in words)


def test_options_with_choices_are_found() -> None:
    assert {
        ("quantize", "mode"),
        ("analyze", "effort"),
        ("quantize", "method"),
        ("train", "learn"),
        ("train", "loss"),
        ("export", "form"),
        ("verify", "forms"),
        ("run", "level"),
        ("rl quantize", "form"),
        ("rl evaluate", "head"),
        ("rl train", "algorithm"),
    } <= {*CHOICES}


def enumerations(kind: object) -> list[type[Enum]]:
    """Enumerations in a type such as `list[Mode] | None`."""
    inner = [found for part in get_args(kind) for found in enumerations(part)]
    return [kind, *inner] if isinstance(kind, type) and issubclass(kind, Enum) else inner


@pytest.mark.parametrize("verb", VERBS)
def test_no_option_leaves_an_enumeration_to_typer(verb) -> None:
    for name, kind, option in declared(verb):
        if enumerations(kind):
            assert is_choice(option), f"{verb}: declare `{name}` by `qgraph.cli.choice`"


def test_enumerations_are_found_in_types() -> None:
    assert enumerations(list[Mode] | None) == enumerations(Mode) == [Mode]
    assert enumerations(str | None) == []
