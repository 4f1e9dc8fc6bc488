"""Passes as text: print and parse lists of passes.

    fold-batch-norm,equalize-channels{biases=true, powers-of-two=false}
    float,my_package.passes:MyPass{strength=0.5}

A list names passes by their names, recipes by theirs (all of their passes), and custom passes
by `module:Class`. Options are the fields of a pass's dataclass (`qgraph.option_text`).
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, is_dataclass
from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import get_type_hints

from qgraph.errors import QGraphError, UsageError, reason_of
from qgraph.option_text import (
    Codec,
    Mismatch,
    TextCursor,
    Tree,
    default_of,
    legal,
    option_name,
    options_of,
)
from qgraph.passes import Pass, declared
from qgraph.quant.profile import Profile, builtin_profiles, load_profile
from qgraph.recipes import FLOAT, OPTIONAL, RECIPES, insert

PASSES: Mapping[str, type[Pass]] = MappingProxyType(
    {step.name: type(step) for recipe in (*RECIPES.values(), OPTIONAL) for step in recipe}
)


@cache
def _builtin_profile(name: str) -> Profile:
    return load_profile(name)


def _profile_name(profile: Profile) -> str | None:
    known = profile.name in builtin_profiles() and _builtin_profile(profile.name) == profile
    return profile.name if known else None


CODEC = Codec(loaders={Profile: load_profile}, names={Profile: _profile_name})


def legal_values(kind: object) -> str:
    """The legal values of an option of a pass, in words.

    Args:
        kind: The type of the option.

    Returns:
        The words.

    Examples:
        >>> legal_values(bool)
        'true or false'
    """
    if kind is Profile:
        return f"{', '.join(builtin_profiles())}, a YAML file, or the keys in braces"
    return legal(kind)


# -- values to text -------------------------------------------------------------------------


def print_passes(passes: Iterable[Pass]) -> str:
    """Write passes as text.

    Args:
        passes: The passes.

    Returns:
        Text that `parse_passes` reads as the same passes.

    Raises:
        UsageError: An option has a type that text does not have.

    Examples:
        >>> print_passes(parse_passes("fold-batch-norm,strip-unused"))
        'fold-batch-norm,strip-unused'
    """
    return ",".join(map(print_pass, passes))


def describe_passes(passes: Iterable[Pass]) -> str:
    """Describe passes for messages: as `print_passes`, without options that text cannot express.

    Args:
        passes: The passes.

    Returns:
        The text.

    Examples:
        >>> describe_passes(parse_passes("fold-batch-norm"))
        'fold-batch-norm'
    """
    return ",".join(_described(step) for step in passes)


def _described(step: Pass) -> str:
    try:
        return print_pass(step)
    except UsageError:
        return str(step)


def print_pass(step: Pass) -> str:
    """Write one pass as text.

    Args:
        step: The pass.

    Returns:
        Text that `parse_passes` reads.

    Raises:
        UsageError: An option has a type that text does not have.

    Examples:
        >>> print_pass(parse_passes("fold-batch-norm")[0])
        'fold-batch-norm'
    """
    kind = type(step)
    own = PASSES.get(step.name) is not kind
    name = f"{kind.__module__}:{kind.__qualname__}" if own else step.name
    try:
        return name + CODEC.write_fields(step)
    except Mismatch as error:
        raise UsageError(f"pass `{step.name}`: {error}") from None


# -- text to values -------------------------------------------------------------------------


def parse_passes(text: str, profile: Profile | None = None) -> tuple[Pass, ...]:
    """Read a list of passes from text.

    A class named by `module:Class` is imported, which runs its module.

    Args:
        text: Names of passes and recipes, with options in braces.
        profile: The value of options that are profiles and are not given.

    Returns:
        The passes.

    Raises:
        UsageError: A pass or an option is unknown, or a value is not legal.

    Examples:
        >>> [step.name for step in parse_passes("fold-batch-norm,equalize-channels{biases=true}")]
        ['fold-batch-norm', 'equalize-channels']
    """
    reader, named = TextCursor(text, "pass list"), list[tuple[str, dict[str, Tree] | None]]()
    while not reader.ended:
        name = reader.word("the name of a pass").text
        named.append((name, reader.options() if reader.takes("{") else None))
        if not reader.takes(",") and not reader.ended:
            raise reader.error("`,`")
    if not named:
        raise UsageError("the pass list is empty", hint=f"like {print_passes(FLOAT[:3])}")
    return tuple(step for name, given in named for step in _named(name, given, profile))


def _named(name: str, given: Mapping[str, Tree] | None, profile: Profile | None) -> Sequence[Pass]:
    if name in RECIPES:
        if given is not None:
            raise UsageError(f"`{name}` is a recipe and has no options")
        quantizes = name == "static" and profile is not None
        return (*FLOAT, *insert(profile)) if quantizes and profile else RECIPES[name]
    kind = _own_class(name) if ":" in name else PASSES.get(name)
    if kind is None:
        raise unknown_pass(name, [*PASSES, *RECIPES])
    return [_made(kind, given or {}, profile)]


def unknown_pass(name: str, known: Sequence[str]) -> UsageError:
    """The error of an unknown pass, with a hint at similar names.

    Args:
        name: The unknown name.
        known: The legal names.

    Returns:
        The error. The caller raises it.

    Examples:
        >>> str(unknown_pass("fold", ["cse"])).partition(chr(10))[0]
        'unknown pass `fold`'
    """
    near = difflib.get_close_matches(name.lower().replace("_", "-"), known, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(f'`{n}`' for n in near)}? " if near else ""
    return UsageError(
        f"unknown pass `{name}`",
        hint=f"{hint}`qgraph passes` lists all; module:Class is a pass of your own",
    )


def _own_class(name: str) -> type[Pass]:
    module, _, inside = name.partition(":")
    try:
        found: object = import_module(module)
        for part in inside.split("."):
            found = getattr(found, part)
    except QGraphError:
        raise
    except Exception as error:  # of the module, which may do anything
        raise UsageError(
            f"pass `{name}` cannot be imported: {reason_of(error)}",
            hint="give module:Class; the module must be on Python's path or in this directory",
        ) from error
    if not (isinstance(found, type) and issubclass(found, Pass) and is_dataclass(found)):
        raise UsageError(
            f"`{name}` is not a pass",
            hint="a pass is a frozen dataclass that inherits from qgraph.passes.Pass",
        )
    if inspect.isabstract(found) or not isinstance(getattr(found, "name", None), str):
        lacks = sorted(found.__abstractmethods__) or ["name"]
        raise UsageError(f"pass `{name}` does not define {', '.join(f'`{x}`' for x in lacks)}")
    return found


def _made(kind: type[Pass], given: Mapping[str, Tree], profile: Profile | None) -> Pass:
    """A pass with options from text. Raises UsageError naming the option."""
    options = {field.name: field for field in options_of(kind)}
    types, values = _types_of(kind), dict[str, object]()
    for name, tree in given.items():
        own = name.replace("-", "_")
        if own not in options:
            raise _no_option(kind, name, types)
        if own in values:
            raise UsageError(f"pass `{kind.name}`: option `{name}` is given twice")
        try:
            values[own] = CODEC.read(tree, types[own])
        except Mismatch as error:
            raise UsageError(
                f"pass `{kind.name}`: option `{name}` cannot be `{_shown(tree)}`",
                hint=f"legal: {error}",
            ) from None
    for name, field in options.items():
        if profile is not None and types[name] is Profile and name not in values:
            values[name] = profile
        elif name not in values and default_of(field) is MISSING:
            raise UsageError(
                f"pass `{kind.name}`: option `{option_name(name)}` is missing",
                hint=f"{declared(field).meaning} Legal: {legal_values(types[name])}".strip(),
            )
    try:
        return kind(**values)
    except QGraphError:
        raise
    except Exception as error:  # of a custom pass
        raise UsageError(f"pass `{kind.name}` cannot be created: {reason_of(error)}") from error


def _types_of(kind: type[Pass]) -> Mapping[str, object]:
    try:
        return get_type_hints(kind)
    except Exception as error:  # names that are imported for type checkers only, for one
        raise UsageError(f"pass `{kind.name}`: the types of its options: {error}") from error


def _no_option(kind: type[Pass], name: str, types: Mapping[str, object]) -> UsageError:
    known = [option_name(field.name) for field in options_of(kind)]
    takes = ", ".join(f"{n} ({legal_values(types[n.replace('-', '_')])})" for n in known)
    near = difflib.get_close_matches(name.replace("_", "-"), known, n=1)
    hint = f"did you mean `{near[0]}`? it takes {takes}" if near else f"it takes {takes}"
    return UsageError(
        f"pass `{kind.name}` has no option `{name}`",
        hint=hint if known else "it takes no options",
    )


def _shown(tree: Tree) -> str:
    if isinstance(tree, dict):
        return f"{{{', '.join(f'{k}={_shown(v)}' for k, v in tree.items())}}}"
    return f"[{', '.join(map(_shown, tree))}]" if isinstance(tree, list) else str(tree)
