"""The packages of the product in levels from the ground up: which may import which."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from qgraph.quant.key_tables import markdown_table

# A package imports from its own line and from the lines above it.
LAYERS = (
    (
        "choices",
        "distribution",
        "drafts",
        "enums",
        "errors",
        "files",
        "foreign",
        "downloads",
        "names",
        "notebook",
        "npz",
        "ops",
        "option_text",
        "progress",
        "quiet",
        "records",
        "stopping",
        "tflite_schema",
        "words",
    ),
    ("ir", "numerics", "kernels", "archives", "parallel", "_native"),
    ("interpret", "rewrite"),
    ("passes",),
    ("quant",),
    ("exact",),
    ("program",),
    ("transforms",),
    ("recipes", "pass_text", "pipelines"),
    ("frontends",),
    ("backends",),
    ("static", "train"),
    ("compiler", "optimized", "quantized", "runtime", "stored"),
    ("exports",),
    ("evaluation", "reporting", "retrain", "verification"),
    ("rl",),
    ("cli",),
)


def levels_table() -> str:
    """The levels as a Markdown table."""
    rows = [
        (str(level), ", ".join(f"`{r}`" for r in packages)) for level, packages in enumerate(LAYERS)
    ]
    return markdown_table(("level", "modules"), rows)


TABLES: Mapping[str, Callable[[], str]] = MappingProxyType({"levels of packages": levels_table})
