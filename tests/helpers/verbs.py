"""The commands of the command line."""

from collections.abc import Iterator
from typing import Any


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Names and commands, including those of groups."""
    for name in group.list_commands(None):
        command = group.get_command(None, name)
        if hasattr(command, "list_commands"):
            yield from commands(command, (*path, name))
        else:
            yield " ".join((*path, name)), command
