"""Folders around the C files: a library for Arduino, a module for Zephyr.

Both have an example that runs one sample and compares all outputs. The test program for a computer
is in `extras/`, which neither of them compiles.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from qgraph.archives import JsonObject
from qgraph.backends.c.layout_texts import (
    KCONFIG,
    MAIN,
    MODULE,
    MODULE_CMAKE,
    PROJECT,
    PROPERTIES,
    SAMPLE_CMAKE,
    SAMPLE_YAML,
    SKETCH,
)
from qgraph.backends.c.sample_header import ends, sample_header
from qgraph.backends.c.source import CUnit
from qgraph.choices import CodeLayout
from qgraph.distribution import version
from qgraph.ir.types import Codes

EXTRAS = "extras"
FOLDERS = ("src", "include", EXTRAS)  # where layouts put the files of a network


def lay_out(layout: CodeLayout, unit: CUnit, folder: Path, codes: Mapping[str, Codes]) -> None:
    """Move the files of a network to the places of a layout, and write the files around them.

    codes: of one sample, by tensor: all entries and exits.
    """
    net = unit.net
    places = {f"{net}.c": "src", f"{net}.h": HEADERS[layout], f"{net}_test.c": EXTRAS}
    for file in [*folder.iterdir()]:
        place = folder / places.get(file.name, EXTRAS)
        place.mkdir(exist_ok=True)
        file.rename(place / file.name)
    words = {"net": net, "NET": net.upper(), "version": _version(), **ends(unit)}
    for name, text in TEXTS[layout](words).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.format(**words), "ascii")
    sample = folder / SAMPLES[layout].format(net=net)
    (sample / f"{net}_sample.h").write_text(sample_header(unit, codes), "ascii")


def _version() -> str:
    """The version of qgraph as three numbers, which Arduino requires."""
    found = re.match(r"\d+\.\d+\.\d+", version())
    return found[0] if found else "0.0.0"


def placed(folder: Path, name: str) -> Path:
    """The path of a file of a network, in any layout."""
    found = (folder / place / name for place in FOLDERS)
    return next((path for path in found if path.is_file()), folder / name)


def _arduino(words: JsonObject) -> Mapping[str, str]:
    net = words["net"]
    return {"library.properties": PROPERTIES, f"examples/{net}/{net}.ino": SKETCH}


def _zephyr(words: JsonObject) -> Mapping[str, str]:
    return {
        "zephyr/module.yml": MODULE,
        "CMakeLists.txt": MODULE_CMAKE,
        "Kconfig": KCONFIG,
        "sample/CMakeLists.txt": SAMPLE_CMAKE,
        "sample/prj.conf": PROJECT,
        "sample/sample.yaml": SAMPLE_YAML,
        "sample/src/main.c": MAIN,
    }


TEXTS: Mapping[CodeLayout, Callable[[JsonObject], Mapping[str, str]]] = MappingProxyType(
    {CodeLayout.ARDUINO: _arduino, CodeLayout.ZEPHYR: _zephyr}
)
HEADERS: Mapping[CodeLayout, str] = MappingProxyType(
    {CodeLayout.ARDUINO: "src", CodeLayout.ZEPHYR: "include"}
)
SAMPLES: Mapping[CodeLayout, str] = MappingProxyType(
    {CodeLayout.ARDUINO: "examples/{net}", CodeLayout.ZEPHYR: "sample/src"}
)
