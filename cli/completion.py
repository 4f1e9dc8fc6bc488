"""Words that a shell can complete: profiles, passes, environments."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files


def profile_names() -> list[str]:
    """The built-in profiles, without reading them."""
    found = files("qgraph").joinpath("quant", "profiles").iterdir()
    return sorted(p.name.removesuffix(".yaml") for p in found if p.name.endswith(".yaml"))


def complete_profile(incomplete: str) -> list[str]:
    return starting(profile_names(), incomplete)


def complete_passes(incomplete: str) -> list[str]:
    """Passes and recipes, after those that are typed already, separated by commas."""
    from qgraph.pass_text import PASSES
    from qgraph.recipes import RECIPES

    before, comma, last = incomplete.rpartition(",")
    return [before + comma + name for name in starting([*RECIPES, *PASSES], last)]


def complete_environment(incomplete: str) -> list[str]:
    """Environments of the installed packages; those of dm_control once their prefix is typed."""
    from qgraph.rl.environments.names import environment_names

    return starting(environment_names(incomplete), incomplete)


def starting(names: Sequence[str], incomplete: str) -> list[str]:
    """The names that begin with what is typed."""
    return [name for name in names if name.startswith(incomplete)]
