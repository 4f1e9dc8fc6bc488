"""Classes of commands, whose help is easy to read."""

from __future__ import annotations

from typer.core import TyperCommand, TyperGroup

from qgraph.foreign import ClickObject


class Command(TyperCommand):
    """A command. Its help has paragraphs without line breaks, and flags without `<bool>`."""

    def __init__(self, name: str | None, **options: ClickObject) -> None:
        super().__init__(name, **options)
        self.help = unwrapped(self.help or "")

    def get_params(self, ctx: ClickObject) -> list[ClickObject]:
        return without_types_of_flags(super().get_params(ctx))


class CommandGroup(TyperGroup):
    """A group of commands, with such help."""

    def __init__(self, **options: ClickObject) -> None:
        super().__init__(**options)
        self.help = unwrapped(self.help or "")

    def get_params(self, ctx: ClickObject) -> list[ClickObject]:
        return without_types_of_flags(super().get_params(ctx))


def unwrapped(text: str) -> str:
    """The text with each paragraph in one line: the terminal wraps it."""
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


def without_types_of_flags(parameters: list[ClickObject]) -> list[ClickObject]:
    """The parameters; those that are flags show an empty type in help."""
    for parameter in parameters:
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
    return parameters
