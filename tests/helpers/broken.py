"""A module of links that fails as it is imported."""

1 / 0  # noqa: B018
