"""Text that names settings, for messages of the library that the command line shows too."""

from __future__ import annotations

from collections.abc import Callable


class SettingText(str):
    """Text that names settings: `SettingText("{discount} is {value}", value=2)`.

    As a string it has the names of fields. `spelled` gives it with other names, such as flags.
    """

    template: str
    values: dict[str, object]

    def __new__(cls, template: str, **values: object) -> SettingText:
        text = super().__new__(cls, template.format_map(_Spelled(values, str)))
        text.template, text.values = template, values
        return text

    def spelled(self, spell: Callable[[str], str]) -> str:
        return self.template.format_map(_Spelled(self.values, spell))


class _Spelled(dict[str, object]):
    """Values by name; any other name stands for a setting."""

    def __init__(self, values: dict[str, object], spell: Callable[[str], str]) -> None:
        super().__init__(values)
        self.spell = spell

    def __missing__(self, name: str) -> str:
        return self.spell(name)
