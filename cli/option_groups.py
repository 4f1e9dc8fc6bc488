"""Groups of options: a frozen dataclass, each field of which declares one option."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, get_args, get_type_hints


@dataclass(frozen=True)
class ReadBy:
    """Converts the text of an option to the value of the library; part of the option's type."""

    read: Callable[..., object]


@dataclass(frozen=True, kw_only=True)
class OptionGroup:
    """Options that belong together.

    A field has the name of the library's parameter, its default, and as its type
    `Annotated[type, typer.Option(...)]`, with a `ReadBy` where the library takes another value.
    """

    def keywords(self) -> dict[str, Any]:
        """The options as keyword arguments of the library. Raises UsageError."""
        hints = get_type_hints(type(self), include_extras=True)
        values = {part.name: getattr(self, part.name) for part in fields(self)}
        for name, value in values.items():
            for extra in get_args(hints[name])[1:]:
                if isinstance(extra, ReadBy):
                    values[name] = extra.read(value)
        return values


def with_groups(verb: Callable[..., None]) -> Callable[..., None]:
    """The verb with the options of each `OptionGroup` in place of a parameter of that type."""
    parameters, groups = [], dict[str, type[OptionGroup]]()
    hints = get_type_hints(verb, include_extras=True)
    for part in inspect.signature(verb).parameters.values():
        kind = hints[part.name]
        if isinstance(kind, type) and issubclass(kind, OptionGroup):
            groups[part.name] = kind
            parameters += _options(kind)
        else:
            parameters.append(part.replace(annotation=kind, kind=part.POSITIONAL_OR_KEYWORD))

    signature = inspect.Signature(parameters)

    def grouped(*positional: object, **named: object) -> None:
        bound = signature.bind(*positional, **named)
        bound.apply_defaults()
        given = dict(bound.arguments)
        made = {
            name: kind(**{part.name: given.pop(part.name) for part in fields(kind)})
            for name, kind in groups.items()
        }
        verb(**given, **made)

    grouped.__name__, grouped.__doc__, grouped.__module__ = verb.__name__, verb.__doc__, __name__
    grouped.__annotations__ = {part.name: part.annotation for part in parameters}
    grouped.__signature__ = signature  # type: ignore[attr-defined]
    return grouped


def _options(kind: type[OptionGroup]) -> list[inspect.Parameter]:
    hints = get_type_hints(kind, include_extras=True)
    place = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return [
        inspect.Parameter(part.name, place, default=part.default, annotation=hints[part.name])
        for part in fields(kind)
    ]
