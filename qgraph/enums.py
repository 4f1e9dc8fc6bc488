"""Enumerations whose members are their text form."""

from __future__ import annotations

from enum import Enum


class StrEnum(str, Enum):
    """Like `enum.StrEnum`, which Python 3.10 lacks: a member equals and prints as its text."""

    __str__ = str.__str__
    __repr__ = str.__repr__  # messages and dumps show the text alone
