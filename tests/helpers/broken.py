"""A module of links whose import fails."""

1 / 0  # noqa: B018
