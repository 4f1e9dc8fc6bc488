"""The class of the commands of `qgraph rl`."""

from __future__ import annotations

from qgraph.cli.command import Command
from qgraph.errors import QGraphError
from qgraph.foreign import ClickObject
from qgraph.rl.setting_text import SettingText


class RlCommand(Command):
    """A command whose errors name flags; errors of the library name fields."""

    def invoke(self, ctx: ClickObject) -> object:
        try:
            return super().invoke(ctx)
        except QGraphError as error:
            self.spell_flags(error)
            raise

    def spell_flags(self, error: QGraphError) -> None:
        """Replace names of settings in the error by the flags of this command."""
        flags = {parameter.name: parameter.opts[0] for parameter in self.params}

        def flag(name: str) -> str:
            return flags.get(name, name)

        if isinstance(error.message, SettingText):
            error.message = error.message.spelled(flag)
        if isinstance(error.hint, SettingText):
            error.hint = error.hint.spelled(flag)
