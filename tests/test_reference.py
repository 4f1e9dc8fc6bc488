"""Docstrings of the site's reference are read as sections: examples as code, one result each."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.helpers.docstrings import public_names, value_of

griffe = pytest.importorskip("griffe", reason="needs the extra `docs`")
ROOT = Path(__file__).parents[1]


class Loader(yaml.SafeLoader):
    """Reads mkdocs.yml, in which tags name functions of Python."""


Loader.add_multi_constructor("", lambda loader, suffix, node: None)


def options() -> dict[str, object]:
    """How mkdocs.yml has docstrings read."""
    plugins = yaml.load((ROOT / "mkdocs.yml").read_text("utf-8"), Loader)["plugins"]
    (plugin,) = (each["mkdocstrings"] for each in plugins if "mkdocstrings" in each)
    return plugin["handlers"]["python"]["options"]["docstring_options"]


def documented() -> Iterator[tuple[str, str]]:
    """Each name in the pages of the reference, with its docstring."""
    for page in sorted((ROOT / "docs/reference").glob("python*.md")):
        for name in re.findall(r"^::: (\S+)", page.read_text("utf-8"), re.MULTILINE):
            if name.endswith((".pytorch", ".rllib", ".sb3", ".torchrl")):
                continue
            try:
                module = importlib.import_module(name)
                found = public_names(module)
            except ImportError:
                path, _, last = name.rpartition(".")
                module = importlib.import_module(path)
                every = public_names(module)
                found = [n for n in every if n.partition(".")[0] == last] or [last]
            for each in found:
                yield f"{module.__name__}.{each}", inspect.getdoc(value_of(module, each)) or ""


def test_sections_are_read_as_they_are_meant() -> None:
    names = [*documented()]
    assert len(names) > 200
    for name, text in names:
        sections = griffe.parse_google(griffe.Docstring(text), warnings=False, **options())
        kinds = [section.kind.value for section in sections]
        assert "admonition" not in kinds, name
        assert ("examples" in kinds) == (">>>" in text), name
        assert all(len(s.value) == 1 for s in sections if s.kind.value == "returns"), name
