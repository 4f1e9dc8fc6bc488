"""Words that a shell can complete: profiles, export formats, passes, environments."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

from qgraph.choices import ExportFormat


def profile_names() -> list[str]:
    """The built-in profiles, without reading them."""
    found = files("qgraph").joinpath("quant", "profiles").iterdir()
    return sorted(p.name.removesuffix(".yaml") for p in found if p.name.endswith(".yaml"))


def complete_profile(incomplete: str) -> list[str]:
    return _starting(profile_names(), incomplete)


def complete_format(incomplete: str) -> list[str]:
    return _starting(list(ExportFormat), incomplete)


def complete_passes(incomplete: str) -> list[str]:
    """Passes and recipes, behind those that are typed already, with commas between."""
    from qgraph.pipelines import PASSES
    from qgraph.recipes import RECIPES

    before, comma, last = incomplete.rpartition(",")
    return [before + comma + name for name in _starting([*RECIPES, *PASSES], last)]


def complete_environment(incomplete: str) -> list[str]:
    """Environments of the installed packages; those of dm_control once their prefix is typed."""
    from qgraph.rl.environments.names import environment_names

    return _starting(environment_names(incomplete), incomplete)


def _starting(names: Sequence[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]
